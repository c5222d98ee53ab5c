#include "pure/proto/frame.h"

#include <string.h>

#include "base/bytes.h"

typedef struct spec {
    const char *name;
    uint32_t cap;
    const char *links;
    bool needs_epoch;
} spec;

static const spec specs[KIN_FRAME_N_TYPES + 1] = {
#define SPEC(number, NAME, name, cap, links, epoch) [number] = {#NAME, cap, links, epoch},
    KIN_FRAME_TYPES(SPEC)
#undef SPEC
};

static const uint8_t magic[4] = {'K', 'I', 'N', '1'};

static const spec *spec_of(kin_frame_type type) {
    kin_assert((unsigned)type >= 1 && (unsigned)type <= KIN_FRAME_N_TYPES);
    return &specs[type];
}

const char *kin_frame_name(kin_frame_type type) {
    return spec_of(type)->name;
}

uint32_t kin_frame_cap(kin_frame_type type) {
    return spec_of(type)->cap;
}

bool kin_frame_belongs(kin_frame_type type, kin_proto_role role) {
    kin_assert((unsigned)role < KIN_PROTO_N_ROLES);
    return strchr(spec_of(type)->links, "crfopbg"[role]) != NULL;
}

void kin_frame_encode(uint8_t to[KIN_FRAME_HEADER], const kin_frame *frame) {
    const spec *s = spec_of(frame->type);
    kin_assert(frame->length <= s->cap);
    kin_assert(frame->epoch != 0 || !s->needs_epoch);
    memcpy(to, magic, sizeof magic);
    to[4] = KIN_FRAME_VERSION;
    to[5] = (uint8_t)frame->type;
    to[6] = to[7] = 0;
    kin_put_u32(to + 8, frame->epoch);
    kin_put_u32(to + 12, frame->length);
}

// Checks what is possible before the header is complete.
static int check_beginning(const uint8_t *bytes, size_t n, kin_err *err) {
    if (memcmp(bytes, magic, n < sizeof magic ? n : sizeof magic) != 0)
        return kin_err_set(err, "the peer does not speak kin's protocol");
    if (n > 4 && bytes[4] != KIN_FRAME_VERSION) {
        return kin_err_set(err, "the peer uses frame version %d, this program version %d; update kin on %s machine", bytes[4],
                           KIN_FRAME_VERSION, bytes[4] < KIN_FRAME_VERSION ? "the other" : "this");
    }
    if (n > 5 && (bytes[5] < 1 || bytes[5] > KIN_FRAME_N_TYPES)) return kin_err_set(err, "unknown type of frame: %d", bytes[5]);
    return 0;
}

int kin_frame_decode(const uint8_t *bytes, size_t n, kin_frame *frame, kin_err *err) {
    if (n == 0) return 0;
    if (check_beginning(bytes, n, err) != 0) return KIN_FAIL;
    if (n < KIN_FRAME_HEADER) return 0;

    kin_frame f = {.type = bytes[5], .epoch = kin_get_u32(bytes + 8), .length = kin_get_u32(bytes + 12)};
    const spec *s = spec_of(f.type);
    if (kin_get_u16(bytes + 6) != 0) return kin_err_set(err, "%s: bytes 6 and 7 of the header are not zero", s->name);
    if (f.epoch == 0 && s->needs_epoch) return kin_err_set(err, "%s: the frame has epoch 0, which belongs to no plan", s->name);
    if (f.length > s->cap) {
        return kin_err_set(err, "%s: payload of %lu bytes exceeds %lu", s->name, (unsigned long)f.length, (unsigned long)s->cap);
    }
    *frame = f;
    return KIN_FRAME_HEADER;
}
