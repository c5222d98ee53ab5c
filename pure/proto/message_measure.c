// A device's measurements of itself and of its links.
#include "pure/proto/message_impl.h"

// A new field of the facts must be added here, and makes a new version of the protocol. cached_factor is not sent: weights that
// fit into a CPU's cache are not divided among devices, and a head knows its own factor.
_Static_assert(sizeof(kin_engine_facts) == 8 * ((2 + KIN_FACTS_BATCHES + KIN_FACTS_CACHED) * KIN_N_QUANT + 5),
               "a number that PROFILE does not carry");
_Static_assert(sizeof(kin_device_facts) == KIN_FACTS_MAX_NAME + 8 + 2 * sizeof(kin_engine_facts) + 9 * 8, "the same");

//     engine (of n_types weight types)
//     byte  0  f64 [n_types]  token_bytes_s
//              f64 [n_types]  prompt_flop_s
//              f64  read_bytes_s, prompt_read_bytes_s, kv_bytes_s
//              f64 [5] [n_types]  batch_factor
//              f64  kv_copy_s, op_s

static void put_engine(kin_writer *w, const kin_engine_facts *e) {
    for (int i = 0; i < KIN_N_QUANT; i++) kin_writer_f64(w, e->token_bytes_s[i]);
    for (int i = 0; i < KIN_N_QUANT; i++) kin_writer_f64(w, e->prompt_flop_s[i]);
    kin_writer_f64(w, e->read_bytes_s);
    kin_writer_f64(w, e->prompt_read_bytes_s);
    kin_writer_f64(w, e->kv_bytes_s);
    for (int i = 0; i < KIN_FACTS_BATCHES; i++) {
        for (int q = 0; q < KIN_N_QUANT; q++) kin_writer_f64(w, e->batch_factor[i][q]);
    }
    kin_writer_f64(w, e->kv_copy_s);
    kin_writer_f64(w, e->op_s);
}

static void read_engine(kin_reader *r, kin_engine_facts *e) {
    for (int i = 0; i < KIN_N_QUANT; i++) e->token_bytes_s[i] = kin_reader_f64(r);
    for (int i = 0; i < KIN_N_QUANT; i++) e->prompt_flop_s[i] = kin_reader_f64(r);
    e->read_bytes_s = kin_reader_f64(r);
    e->prompt_read_bytes_s = kin_reader_f64(r);
    e->kv_bytes_s = kin_reader_f64(r);
    for (int i = 0; i < KIN_FACTS_BATCHES; i++) {
        for (int q = 0; q < KIN_N_QUANT; q++) e->batch_factor[i][q] = kin_reader_f64(r);
    }
    e->kv_copy_s = kin_reader_f64(r);
    e->op_s = kin_reader_f64(r);
}

//     PROFILE
//     byte  0  u8   n_types of weights (11)
//           1  u8   os: 0 linux, 1 macos, 2 android, 3 other, 4 browser, 5 browser on a GPU
//           2  u8   has_gpu (0 or 1)
//           3  u8   uma (0 or 1)
//           4  f64  memory_bytes
//          12  f64  swap_bytes
//          20  f64  gpu_memory_bytes
//          28  f64  disk_bytes_s
//          36  f64  disk_random_bytes_s
//          44  f64  to_gpu_s
//          52  f64  from_gpu_s
//          60  f64  gpu_copy_bytes_s
//          68  f64  window_s
//          76  engine cpu
//         732  engine gpu
//        1388  str  name (at most 47 bytes)

static void put_profile(kin_writer *w, const kin_proto_profile *m) {
    const kin_device_facts *f = &m->facts;
    kin_writer_u8(w, KIN_N_QUANT);
    kin_writer_u8(w, (uint8_t)f->os);
    kin_writer_u8(w, f->has_gpu);
    kin_writer_u8(w, f->uma);
    kin_writer_f64(w, f->memory_bytes);
    kin_writer_f64(w, f->swap_bytes);
    kin_writer_f64(w, f->gpu_memory_bytes);
    kin_writer_f64(w, f->disk_bytes_s);
    kin_writer_f64(w, f->disk_random_bytes_s);
    kin_writer_f64(w, f->to_gpu_s);
    kin_writer_f64(w, f->from_gpu_s);
    kin_writer_f64(w, f->gpu_copy_bytes_s);
    kin_writer_f64(w, f->window_s);
    put_engine(w, &f->cpu);
    put_engine(w, &f->gpu);
    kin_writer_str(w, f->name, KIN_FACTS_MAX_NAME - 1);
}

static void read_profile(kin_reader *r, kin_proto_profile *m) {
    kin_device_facts *f = &m->facts;
    kin_reader_range(r, kin_reader_u8(r), KIN_N_QUANT, KIN_N_QUANT, "number of weight types");
    f->os = kin_reader_range(r, kin_reader_u8(r), 0, KIN_OS_BROWSER_GPU, "os");
    f->has_gpu = kin_reader_range(r, kin_reader_u8(r), 0, 1, "has_gpu");
    f->uma = kin_reader_range(r, kin_reader_u8(r), 0, 1, "uma");
    f->memory_bytes = kin_reader_f64(r);
    f->swap_bytes = kin_reader_f64(r);
    f->gpu_memory_bytes = kin_reader_f64(r);
    f->disk_bytes_s = kin_reader_f64(r);
    f->disk_random_bytes_s = kin_reader_f64(r);
    f->to_gpu_s = kin_reader_f64(r);
    f->from_gpu_s = kin_reader_f64(r);
    f->gpu_copy_bytes_s = kin_reader_f64(r);
    f->window_s = kin_reader_f64(r);
    read_engine(r, &f->cpu);
    read_engine(r, &f->gpu);
    kin_reader_str(r, f->name, KIN_FACTS_MAX_NAME - 1, "name");
}

KIN_PROTO_DEFINE(PROFILE, profile)

// MEASURE: id, u32 hidden_bytes (1 to 2^20), endpoint

static void put_measure(kin_writer *w, const kin_proto_measure *m) {
    kin_proto_put_id(w, &m->id);
    kin_writer_u32(w, m->hidden_bytes);
    kin_proto_put_endpoint(w, &m->endpoint);
}

static void read_measure(kin_reader *r, kin_proto_measure *m) {
    kin_proto_read_id(r, &m->id);
    m->hidden_bytes = kin_reader_range(r, kin_reader_u32(r), 1, KIN_FRAME_ECHO_BYTES, "hidden_bytes");
    kin_proto_read_endpoint(r, &m->endpoint);
}

KIN_PROTO_DEFINE(MEASURE, measure)

//     MEASURED
//     byte  0  id
//          16  f64  rtt_s
//          24  f64  to_bytes_s
//          32  f64  from_bytes_s
//          40  str  reason (at most 1000 bytes)

static void put_measured(kin_writer *w, const kin_proto_measured *m) {
    kin_proto_put_id(w, &m->id);
    kin_writer_f64(w, m->rtt_s);
    kin_writer_f64(w, m->to_bytes_s);
    kin_writer_f64(w, m->from_bytes_s);
    kin_writer_str(w, m->reason, KIN_PROTO_MAX_REASON);
}

static void read_measured(kin_reader *r, kin_proto_measured *m) {
    kin_proto_read_id(r, &m->id);
    m->rtt_s = kin_reader_f64(r);
    m->to_bytes_s = kin_reader_f64(r);
    m->from_bytes_s = kin_reader_f64(r);
    kin_reader_str(r, m->reason, KIN_PROTO_MAX_REASON, "reason");
}

KIN_PROTO_DEFINE(MEASURED, measured)

// ECHO: u64 token, u32 answer_bytes (0 to 2^20), u8 [] (0 to 2^20) to the end

static void put_echo(kin_writer *w, const kin_proto_echo *m) {
    kin_assert(m->n_bytes <= KIN_FRAME_ECHO_BYTES);
    kin_writer_u64(w, m->token);
    kin_writer_u32(w, m->answer_bytes);
    kin_writer_bytes(w, m->bytes, m->n_bytes);
}

static void read_echo(kin_reader *r, kin_proto_echo *m) {
    m->token = kin_reader_u64(r);
    m->answer_bytes = kin_reader_range(r, kin_reader_u32(r), 0, KIN_FRAME_ECHO_BYTES, "answer_bytes");
    size_t n = (size_t)(r->end - r->at);
    if (n > KIN_FRAME_ECHO_BYTES) kin_reader_fail(r, "%zu bytes, more than %u", n, KIN_FRAME_ECHO_BYTES);
    m->n_bytes = r->failed ? 0 : (uint32_t)n;
    m->bytes = kin_reader_bytes(r, m->n_bytes);
}

KIN_PROTO_DEFINE(ECHO, echo)
