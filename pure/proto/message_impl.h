// Internals of the message codecs, shared by message*.c. All other files include pure/proto/message.h.
//
// A codec is two static functions with the same list of fields: put_X(writer, message) and take_X(reader, message).
// KIN_PROTO_DEFINE makes the three public functions from them.
#pragma once

#include "pure/proto/cursor.h"
#include "pure/proto/message.h"

#define KIN_PROTO_DEFINE(NAME, name)                                                                                             \
    size_t kin_proto_size_##name(const kin_proto_##name *m) {                                                                    \
        kin_writer w = {0};                                                                                                      \
        put_##name(&w, m);                                                                                                       \
        return w.n;                                                                                                              \
    }                                                                                                                            \
    size_t kin_proto_encode_##name(uint8_t *buf, size_t cap_bytes, const kin_proto_##name *m) {                                  \
        kin_writer w = {.to = buf, .cap = cap_bytes};                                                                            \
        put_##name(&w, m);                                                                                                       \
        return w.n;                                                                                                              \
    }                                                                                                                            \
    int kin_proto_decode_##name(const uint8_t *payload, size_t n, kin_proto_##name *m, kin_err *err) {                           \
        kin_reader r = kin_reader_open(payload, n, err);                                                                         \
        *m = (kin_proto_##name){0};                                                                                              \
        read_##name(&r, m);                                                                                                      \
        return kin_reader_close(&r, #NAME);                                                                                      \
    }

// endpoint: u16 port, u8 n_addresses (0 to 8), n_addresses x str address
void kin_proto_put_endpoint(kin_writer *w, const kin_proto_endpoint *e);
void kin_proto_read_endpoint(kin_reader *r, kin_proto_endpoint *e);

static inline void kin_proto_put_id(kin_writer *w, const kin_proto_id *id) {
    kin_writer_bytes(w, id->bytes, sizeof id->bytes);
}

static inline void kin_proto_read_id(kin_reader *r, kin_proto_id *id) {
    kin_reader_copy(r, id->bytes, sizeof id->bytes);
}

static inline void kin_proto_put_hash(kin_writer *w, const kin_proto_hash *hash) {
    kin_writer_bytes(w, hash->bytes, sizeof hash->bytes);
}

static inline void kin_proto_read_hash(kin_reader *r, kin_proto_hash *hash) {
    kin_reader_copy(r, hash->bytes, sizeof hash->bytes);
}
