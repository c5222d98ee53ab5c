#include "pure/proto/beacon.h"

#include <string.h>

#include "pure/proto/cursor.h"
#include "pure/proto/id.h"
#include "pure/proto/label.h"

static const uint8_t magic[4] = {'K', 'I', 'N', 'B'};

static bool is_empty(const kin_beacon *beacon) {
    return beacon->port == 0 && beacon->name[0] == '\0' && kin_proto_id_is_none(&beacon->id);
}

int kin_beacon_encode(uint8_t to[KIN_BEACON_BYTES], const kin_beacon *beacon, kin_beacon_sign sign, void *user, kin_err *err) {
    kin_assert(beacon->kind == KIN_BEACON_SEARCH || beacon->kind == KIN_BEACON_ANNOUNCE);
    kin_assert(beacon->kind == KIN_BEACON_SEARCH ? is_empty(beacon) : beacon->port != 0);
    char name[KIN_BEACON_NAME] = {0};
    kin_label_set(name, sizeof name - 1, beacon->name);

    kin_writer w = {.to = to, .cap = KIN_BEACON_SIGNED};
    kin_writer_bytes(&w, magic, sizeof magic);
    kin_writer_u8(&w, KIN_BEACON_VERSION);
    kin_writer_u8(&w, (uint8_t)beacon->kind);
    kin_writer_u16(&w, beacon->port);
    kin_writer_bytes(&w, beacon->nonce, sizeof beacon->nonce);
    kin_writer_bytes(&w, beacon->id.bytes, sizeof beacon->id.bytes);
    kin_writer_bytes(&w, (const uint8_t *)name, sizeof name);
    kin_writer_u32(&w, beacon->features);
    kin_writer_u32(&w, 0);
    kin_assert(w.n == KIN_BEACON_SIGNED);
    if (sign(user, to, KIN_BEACON_SIGNED, to + KIN_BEACON_SIGNED) != 0) {
        return kin_err_set(err, "beacon: cannot compute the authenticator");
    }
    return 0;
}

// Compares in constant time, so that the time does not reveal how many bytes were right.
static bool is_same_tag(const uint8_t *a, const uint8_t *b) {
    unsigned differs = 0;
    for (int i = 0; i < KIN_BEACON_TAG; i++) differs |= (unsigned)(a[i] ^ b[i]);
    return differs == 0;
}

static int check_frame(const uint8_t *bytes, size_t n, kin_beacon_sign sign, void *user, kin_err *err) {
    uint8_t tag[KIN_BEACON_TAG];
    if (n != KIN_BEACON_BYTES) return kin_err_set(err, "beacon: %zu bytes, but %d are expected", n, (int)KIN_BEACON_BYTES);
    if (memcmp(bytes, magic, sizeof magic) != 0) return kin_err_set(err, "beacon: not a kin datagram");
    if (bytes[4] != KIN_BEACON_VERSION) {
        return kin_err_set(err, "beacon: version %d, but %d is expected", bytes[4], (int)KIN_BEACON_VERSION);
    }
    if (sign(user, bytes, KIN_BEACON_SIGNED, tag) != 0) {
        return kin_err_set(err, "beacon: cannot compute the authenticator");
    }
    if (!is_same_tag(tag, bytes + KIN_BEACON_SIGNED)) return kin_err_set(err, "beacon: made with another key, or damaged");
    return 0;
}

static void read_name(kin_reader *r, char name[KIN_BEACON_NAME]) {
    kin_reader_copy(r, (uint8_t *)name, KIN_BEACON_NAME);
    size_t len = strnlen(name, KIN_BEACON_NAME);
    bool is_padded = len < KIN_BEACON_NAME;
    for (size_t i = len; i < KIN_BEACON_NAME; i++) is_padded = is_padded && name[i] == '\0';
    if (!is_padded)
        kin_reader_fail(r, "the name is not padded with zeros");
    else if (!kin_label_is_clean(name, len))
        kin_reader_fail(r, "the name contains control characters or invalid UTF-8");
}

int kin_beacon_decode(const uint8_t *bytes, size_t n, kin_beacon *beacon, kin_beacon_sign sign, void *user, kin_err *err) {
    *beacon = (kin_beacon){0};
    if (check_frame(bytes, n, sign, user, err) != 0) return KIN_FAIL;
    kin_reader r = kin_reader_open(bytes + 5, KIN_BEACON_SIGNED - 5, err);
    uint32_t kind = kin_reader_range(&r, kin_reader_u8(&r), KIN_BEACON_SEARCH, KIN_BEACON_ANNOUNCE, "kind");
    beacon->kind = (kin_beacon_kind)kind;
    beacon->port = kin_reader_u16(&r);
    kin_reader_copy(&r, beacon->nonce, sizeof beacon->nonce);
    kin_reader_copy(&r, beacon->id.bytes, sizeof beacon->id.bytes);
    read_name(&r, beacon->name);
    beacon->features = kin_reader_u32(&r);
    kin_reader_range(&r, kin_reader_u32(&r), 0, 0, "reserved");
    if (kind == KIN_BEACON_SEARCH && !is_empty(beacon)) kin_reader_fail(&r, "a query with fields of an answer");
    if (kind == KIN_BEACON_ANNOUNCE && beacon->port == 0) kin_reader_fail(&r, "an answer without a port");
    return kin_reader_close(&r, "beacon");
}

bool kin_beacon_answers(const kin_beacon *beacon, const uint8_t nonce[KIN_BEACON_NONCE]) {
    return beacon->kind == KIN_BEACON_ANNOUNCE && memcmp(beacon->nonce, nonce, KIN_BEACON_NONCE) == 0;
}
