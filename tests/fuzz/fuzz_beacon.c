// Decodes any bytes as a discovery datagram, with and without a valid authenticator: it is refused, or encodes to the same bytes.
#include <string.h>

#include "base/err.h"
#include "pure/proto/beacon.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

// A toy authenticator: XORs the bytes, so that the fuzzer can produce a valid one.
static int sign(void *user, const uint8_t *bytes, size_t n, uint8_t tag[KIN_BEACON_TAG]) {
    (void)user;
    memset(tag, 0, KIN_BEACON_TAG);
    for (size_t i = 0; i < n; i++) tag[i % KIN_BEACON_TAG] ^= bytes[i];
    return 0;
}

static void try(const uint8_t *bytes, size_t size) {
    kin_beacon beacon;
    kin_err err = {""};
    uint8_t again[KIN_BEACON_BYTES];
    if (kin_beacon_decode(bytes, size, &beacon, sign, NULL, &err) != 0) {
        kin_assert(err.text[0] != '\0');
        return;
    }
    kin_assert(size == KIN_BEACON_BYTES && strlen(beacon.name) < KIN_BEACON_NAME);
    kin_assert(kin_beacon_encode(again, &beacon, sign, NULL, &err) == 0);
    kin_assert(memcmp(again, bytes, size) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    try(bytes, size);
    uint8_t fitting[KIN_BEACON_BYTES];
    if (size < KIN_BEACON_SIGNED) return 0;
    memcpy(fitting, bytes, KIN_BEACON_SIGNED);
    sign(NULL, fitting, KIN_BEACON_SIGNED, fitting + KIN_BEACON_SIGNED);
    try(fitting, sizeof fitting);
    return 0;
}
