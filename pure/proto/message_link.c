// Opening, keeping and closing a link.
#include "pure/proto/message_impl.h"

// versions: u16 min, u16 max

static void put_versions(kin_writer *w, kin_proto_versions v) {
    kin_assert(v.min >= 1 && v.min <= v.max);
    kin_writer_u16(w, v.min);
    kin_writer_u16(w, v.max);
}

static kin_proto_versions read_versions(kin_reader *r) {
    kin_proto_versions v;
    v.min = (uint16_t)kin_reader_range(r, kin_reader_u16(r), 1, UINT16_MAX, "lowest version");
    v.max = (uint16_t)kin_reader_range(r, kin_reader_u16(r), v.min, UINT16_MAX, "highest version");
    return v;
}

// OPEN: u8 role, id, id peer, u64 run, versions, str name, str version, u32 features

static void put_open(kin_writer *w, const kin_proto_open *m) {
    kin_writer_u8(w, (uint8_t)m->role);
    kin_proto_put_id(w, &m->id);
    kin_proto_put_id(w, &m->peer);
    kin_writer_u64(w, m->run);
    put_versions(w, m->versions);
    kin_writer_str(w, m->name, KIN_PROTO_MAX_STR);
    kin_writer_str(w, m->version, KIN_PROTO_MAX_STR);
    kin_writer_u32(w, m->features);
}

static void read_open(kin_reader *r, kin_proto_open *m) {
    m->role = kin_reader_range(r, kin_reader_u8(r), 0, KIN_PROTO_N_ROLES - 1, "role");
    kin_proto_read_id(r, &m->id);
    kin_proto_read_id(r, &m->peer);
    m->run = kin_reader_u64(r);
    m->versions = read_versions(r);
    kin_reader_str(r, m->name, KIN_PROTO_MAX_STR, "name");
    kin_reader_str(r, m->version, KIN_PROTO_MAX_STR, "version");
    m->features = kin_reader_u32(r);
}

KIN_PROTO_DEFINE(OPEN, open)

// ACCEPT: id, versions, str name, str version, u32 features

static void put_accept(kin_writer *w, const kin_proto_accept *m) {
    kin_proto_put_id(w, &m->id);
    put_versions(w, m->versions);
    kin_writer_str(w, m->name, KIN_PROTO_MAX_STR);
    kin_writer_str(w, m->version, KIN_PROTO_MAX_STR);
    kin_writer_u32(w, m->features);
}

static void read_accept(kin_reader *r, kin_proto_accept *m) {
    kin_proto_read_id(r, &m->id);
    m->versions = read_versions(r);
    kin_reader_str(r, m->name, KIN_PROTO_MAX_STR, "name");
    kin_reader_str(r, m->version, KIN_PROTO_MAX_STR, "version");
    m->features = kin_reader_u32(r);
}

KIN_PROTO_DEFINE(ACCEPT, accept)

// REFUSE: str reason (at most 1000 bytes)

static void put_refuse(kin_writer *w, const kin_proto_refuse *m) {
    kin_writer_str(w, m->reason, KIN_PROTO_MAX_REASON);
}

static void read_refuse(kin_reader *r, kin_proto_refuse *m) {
    kin_reader_str(r, m->reason, KIN_PROTO_MAX_REASON, "reason");
}

KIN_PROTO_DEFINE(REFUSE, refuse)

//     PING                        PONG
//     byte  0  u64  time          byte  0  u64  time, as it came
//                                       8  u64  own

static void put_ping(kin_writer *w, const kin_proto_ping *m) {
    kin_writer_u64(w, m->time);
}

static void read_ping(kin_reader *r, kin_proto_ping *m) {
    m->time = kin_reader_u64(r);
}

KIN_PROTO_DEFINE(PING, ping)

static void put_pong(kin_writer *w, const kin_proto_pong *m) {
    kin_writer_u64(w, m->time);
    kin_writer_u64(w, m->own);
}

static void read_pong(kin_reader *r, kin_proto_pong *m) {
    m->time = kin_reader_u64(r);
    m->own = kin_reader_u64(r);
}

KIN_PROTO_DEFINE(PONG, pong)

// BYE: str reason (at most 1000 bytes)

static void put_bye(kin_writer *w, const kin_proto_bye *m) {
    kin_writer_str(w, m->reason, KIN_PROTO_MAX_REASON);
}

static void read_bye(kin_reader *r, kin_proto_bye *m) {
    kin_reader_str(r, m->reason, KIN_PROTO_MAX_REASON, "reason");
}

KIN_PROTO_DEFINE(BYE, bye)
