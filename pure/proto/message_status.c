// A device's reports about itself while it runs, and the head's report about all devices.
#include "pure/proto/message_impl.h"

// STATUS_WANTED: no bytes

static void put_status_wanted(kin_writer *w, const kin_proto_status_wanted *m) {
    (void)w, (void)m;
}

static void read_status_wanted(kin_reader *r, kin_proto_status_wanted *m) {
    (void)r, (void)m;
}

KIN_PROTO_DEFINE(STATUS_WANTED, status_wanted)

//     STATUS
//     byte  0  u8   state: 0 joined, 1 preparing, 2 waiting, 3 computing
//           1  u64  steps
//           9  u64  tokens
//          17  u64  compute_ns
//          25  u64  wait_ns
//          33  u64  disk_ns
//          41  u64  net_in
//          49  u64  net_out
//          57  u64  streamed_bytes
//          65  u64  resident_bytes
//          73  u64  memory_free
//          81  u64  rtt_ns
//          89  u64  token_compute_ns
//          97  u64  token_stall_ns
//         105  u64  token_disk_ns
//         113  u64  token_disk_bytes
//         121  u32  epoch
//         125  u32  n_came
//         129  u32  n_left
//         133  u32  n_signs
//         137  u8   work: 0 works, 1 idles, 2 fetches
//         138  u64  moving
//         146  str  doing

static void put_status(kin_writer *w, const kin_proto_status *m) {
    kin_writer_u8(w, (uint8_t)m->state);
    kin_writer_u64(w, m->steps);
    kin_writer_u64(w, m->tokens);
    kin_writer_u64(w, m->compute_ns);
    kin_writer_u64(w, m->wait_ns);
    kin_writer_u64(w, m->disk_ns);
    kin_writer_u64(w, m->net_in);
    kin_writer_u64(w, m->net_out);
    kin_writer_u64(w, m->streamed_bytes);
    kin_writer_u64(w, m->resident_bytes);
    kin_writer_u64(w, m->memory_free);
    kin_writer_u64(w, m->rtt_ns);
    kin_writer_u64(w, m->token_compute_ns);
    kin_writer_u64(w, m->token_stall_ns);
    kin_writer_u64(w, m->token_disk_ns);
    kin_writer_u64(w, m->token_disk_bytes);
    kin_writer_u32(w, m->epoch);
    kin_writer_u32(w, m->n_came);
    kin_writer_u32(w, m->n_left);
    kin_writer_u32(w, m->n_signs);
    kin_writer_u8(w, (uint8_t)m->work);
    kin_writer_u64(w, m->moving);
    kin_writer_str(w, m->doing, KIN_PROTO_MAX_STR);
}

static void read_status(kin_reader *r, kin_proto_status *m) {
    m->state = kin_reader_range(r, kin_reader_u8(r), 0, KIN_PROTO_COMPUTING, "state");
    m->steps = kin_reader_u64(r);
    m->tokens = kin_reader_u64(r);
    m->compute_ns = kin_reader_u64(r);
    m->wait_ns = kin_reader_u64(r);
    m->disk_ns = kin_reader_u64(r);
    m->net_in = kin_reader_size(r, "net_in");
    m->net_out = kin_reader_size(r, "net_out");
    m->streamed_bytes = kin_reader_size(r, "streamed_bytes");
    m->resident_bytes = kin_reader_size(r, "resident_bytes");
    m->memory_free = kin_reader_size(r, "memory_free");
    m->rtt_ns = kin_reader_u64(r);
    m->token_compute_ns = kin_reader_u64(r);
    m->token_stall_ns = kin_reader_u64(r);
    m->token_disk_ns = kin_reader_u64(r);
    m->token_disk_bytes = kin_reader_size(r, "token_disk_bytes");
    m->epoch = kin_reader_u32(r);
    m->n_came = kin_reader_u32(r);
    m->n_left = kin_reader_u32(r);
    m->n_signs = kin_reader_u32(r);
    m->work = kin_reader_range(r, kin_reader_u8(r), 0, KIN_PROTO_FETCHES, "work");
    m->moving = kin_reader_size(r, "moving");
    kin_reader_str(r, m->doing, KIN_PROTO_MAX_STR, "doing");
}

KIN_PROTO_DEFINE(STATUS, status)

//     EVENTS
//     byte  0  u16  n_events (0 to 1024)
//           2  n_events x { u8 kind: 0 compute, 1 wait, 2 disk, 3 send; u16 round; u64 step; u64 begin; u64 end (>= begin) }

static void put_events(kin_writer *w, const kin_proto_events *m) {
    kin_assert(m->n_events >= 0 && m->n_events <= KIN_PROTO_MAX_EVENTS);
    kin_writer_u16(w, (uint16_t)m->n_events);
    for (int i = 0; i < m->n_events; i++) {
        const kin_proto_event *e = &m->event[i];
        kin_writer_u8(w, (uint8_t)e->kind);
        kin_writer_u16(w, e->round);
        kin_writer_u64(w, e->step);
        kin_writer_u64(w, e->begin);
        kin_writer_u64(w, e->end);
    }
}

static void read_events(kin_reader *r, kin_proto_events *m) {
    m->n_events = (int)kin_reader_range(r, kin_reader_u16(r), 0, KIN_PROTO_MAX_EVENTS, "number of events");
    for (int i = 0; i < m->n_events; i++) {
        kin_proto_event *e = &m->event[i];
        e->kind = kin_reader_range(r, kin_reader_u8(r), 0, KIN_PROTO_EVENT_SEND, "kind of event");
        e->round = (uint16_t)kin_reader_range(r, kin_reader_u16(r), 0, KIN_PROTO_MAX_WINDOWS - 1, "round");
        e->step = kin_reader_u64(r);
        e->begin = kin_reader_u64(r);
        e->end = kin_reader_u64(r);
        if (e->end < e->begin) kin_reader_fail(r, "event %d ends before it begins", i);
    }
}

KIN_PROTO_DEFINE(EVENTS, events)

// REPORT: u32 n_bytes (1 to 65536), u8 [n_bytes]

static void put_report(kin_writer *w, const kin_proto_report *m) {
    kin_assert(m->n_bytes >= 1 && m->n_bytes <= KIN_FRAME_REPORT_BYTES);
    kin_writer_u32(w, m->n_bytes);
    kin_writer_bytes(w, m->bytes, m->n_bytes);
}

static void read_report(kin_reader *r, kin_proto_report *m) {
    m->n_bytes = kin_reader_range(r, kin_reader_u32(r), 1, KIN_FRAME_REPORT_BYTES, "number of bytes");
    m->bytes = kin_reader_bytes(r, m->n_bytes);
}

KIN_PROTO_DEFINE(REPORT, report)
