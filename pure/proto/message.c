// Shared parts of the codecs; decodes and encodes any message by its type.
#include "pure/proto/message_impl.h"

void kin_proto_put_endpoint(kin_writer *w, const kin_proto_endpoint *e) {
    kin_assert(e->n_addresses >= 0 && e->n_addresses <= KIN_PROTO_MAX_ADDRESSES);
    kin_writer_u16(w, e->port);
    kin_writer_u8(w, (uint8_t)e->n_addresses);
    for (int i = 0; i < e->n_addresses; i++) kin_writer_str(w, e->address[i], KIN_PROTO_MAX_STR);
}

void kin_proto_read_endpoint(kin_reader *r, kin_proto_endpoint *e) {
    e->port = kin_reader_u16(r);
    e->n_addresses = (int)kin_reader_range(r, kin_reader_u8(r), 0, KIN_PROTO_MAX_ADDRESSES, "number of addresses");
    for (int i = 0; i < e->n_addresses; i++) {
        kin_reader_str(r, e->address[i], KIN_PROTO_MAX_STR, "address");
        if (!e->address[i][0]) kin_reader_fail(r, "address %d is empty", i);
    }
    if (e->n_addresses && e->port == 0) kin_reader_fail(r, "addresses without a port");
}

int kin_proto_decode(kin_frame_type type, const uint8_t *payload, size_t n, kin_proto_message *m, kin_err *err) {
    m->type = type;
    switch (type) {
#define CASE(number, NAME, name, cap, links, epoch)                                                                              \
    case KIN_FRAME_##NAME: return kin_proto_decode_##name(payload, n, &m->name, err);
        KIN_FRAME_TYPES(CASE)
#undef CASE
    }
    return kin_err_set(err, "unknown type of message: %d", (int)type);
}

static size_t size_of(const kin_proto_message *m) {
    switch (m->type) {
#define CASE(number, NAME, name, cap, links, epoch)                                                                              \
    case KIN_FRAME_##NAME: return kin_proto_size_##name(&m->name);
        KIN_FRAME_TYPES(CASE)
#undef CASE
    }
    kin_assert(!"unknown type of message");
    return 0;
}

static void encode_payload(uint8_t *to, size_t cap, const kin_proto_message *m) {
    switch (m->type) {
#define CASE(number, NAME, name, cap_bytes, links, epoch)                                                                        \
    case KIN_FRAME_##NAME: kin_proto_encode_##name(to, cap, &m->name); break;
        KIN_FRAME_TYPES(CASE)
#undef CASE
    }
}

size_t kin_proto_encode(uint8_t *buf, size_t cap, uint32_t epoch, const kin_proto_message *m) {
    size_t n = size_of(m);
    kin_assert(n <= kin_frame_cap(m->type));
    if (!buf) return KIN_FRAME_HEADER + n;
    kin_assert(cap >= KIN_FRAME_HEADER + n);
    kin_frame_encode(buf, &(kin_frame){.type = m->type, .epoch = epoch, .length = (uint32_t)n});
    encode_payload(buf + KIN_FRAME_HEADER, n, m);
    return KIN_FRAME_HEADER + n;
}
