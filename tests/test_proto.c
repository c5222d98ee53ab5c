// The wire codec (pure/proto): messages. Frames, labels and activations: test_proto_frame.c.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "pure/proto/message.h"
#include "tests/golden_frames.h"
#include "tests/place.h"

// The golden messages

static kin_proto_hash hash_from(int first) {
    kin_proto_hash h;
    for (int i = 0; i < 32; i++) h.bytes[i] = (uint8_t)(first + i);
    return h;
}

static kin_proto_id id_from(int first) {
    kin_proto_id id;
    for (int i = 0; i < 16; i++) id.bytes[i] = (uint8_t)(first + i);
    return id;
}

static kin_proto_plan golden_plan(void) {
    return (kin_proto_plan){
        .model = hash_from(0x40),
        .n_files = 2,
        .file_size = {1000, 0x123456789},
        .n_ctx = 4096,
        .n_batch = 512,
        .n_seq = 4,
        .kv_type = KIN_PROTO_KV_Q8_0,
        .wire_type = KIN_ACTIVATION_F16,
        .flags = KIN_PROTO_PLAN_FLASH | KIN_PROTO_PLAN_TIMELINE,
        .mode = KIN_PROTO_WILLNEED,
        .memory = 3ull << 30,
        .n_threads = 6,
        .n_rounds = 2,
        .n_windows = 2,
        .window = {{.round = 0, .layer_begin = 0, .layer_end = 8, .n_gpu = 3, .n_cpu_moe = 2},
                   {.round = 1, .layer_begin = 16, .layer_end = 24, .n_gpu = 8, .n_cpu_moe = 5}},
        .next_id = id_from(0x30),
        .next = {7118, 1, {"nuc.lan"}},
        .previous_id = id_from(0x70),
        .previous = {7119, 1, {"fd00::3"}},
        .group = {.n_ranks = 2,
                  .rank = 1,
                  .allreduce = KIN_PROTO_ALLREDUCE_TREE,
                  .head_begin = 3,
                  .head_end = 5,
                  .ff_begin = 512,
                  .ff_end = 1280,
                  .id = {id_from(0x90), id_from(0xa0)},
                  .endpoint = {{7120, 1, {"10.0.0.4"}}}},
    };
}

static kin_proto_step golden_step(void) {
    static uint8_t pos[12], seq[12], out[8], ops[12], tokens[12], activations[24];
    kin_proto_i32_encode(pos, (int32_t[]){5, 6, 7}, 3);
    kin_proto_i32_encode(seq, (int32_t[]){0, 0, 1}, 3);
    kin_proto_i32_encode(out, (int32_t[]){0, 2}, 2);
    kin_activations_encode(activations, (float[]){1, -2, 0.5f, 0, 3, 4}, 6, KIN_ACTIVATION_F32);
    kin_proto_i32_encode(ops, (int32_t[]){1, 0, 64}, 3);
    kin_proto_i32_encode(tokens, (int32_t[]){300, 0, 41}, 3);
    return (kin_proto_step){.step = 42,
                            .round = 1,
                            .flags = KIN_PROTO_STEP_POSITIONS | KIN_PROTO_STEP_TOKENS,
                            .type = KIN_ACTIVATION_F32,
                            .n_tokens = 3,
                            .n_rows = 3,
                            .n_embd = 2,
                            .n_ops = 1,
                            .n_out = 2,
                            .pos = pos,
                            .seq = seq,
                            .out = out,
                            .ops = ops,
                            .tokens = tokens,
                            .activations = activations};
}

static kin_proto_pages golden_pages(void) {
    static uint8_t ops[24];
    kin_proto_i32_encode(ops, (int32_t[]){2, 1, 64, 3, 3, 0}, 6);
    kin_proto_pages m = {
        .step = 42, .loads = true, .n_pages = 3, .n_good = 2, .n_ops = 2, .timeout_ms = 1750, .seq = 5, .first = 9, .ops = ops};
    m.has_states = true;
    for (int i = 0; i < 48; i++) m.key[i / 16].bytes[i % 16] = (uint8_t)(0x50 + i);
    return m;
}

static kin_proto_sum golden_sum(void) {
    static uint8_t values[8];
    kin_activations_encode(values, (float[]){1, -2}, 2, KIN_ACTIVATION_F32);
    return (kin_proto_sum){.step = 42, .round = 1, .i_sum = 5, .n_values = 2, .values = values};
}

static void make_fetch(kin_proto_message *m) {
    static uint8_t hashes[64];
    for (int i = 0; i < 64; i++) hashes[i] = (uint8_t)(0x50 + i);
    switch ((int)m->type) {
    case KIN_FRAME_KEPT: m->kept = (kin_proto_kept){id_from(0x30), {7118, 1, {"10.0.0.3"}}, 131136, 2, hashes}; break;
    case KIN_FRAME_HASHES_WANTED: m->hashes_wanted.model = hash_from(0x40); break;
    case KIN_FRAME_HASHES:
        m->hashes = (kin_proto_hashes){.chunk_bytes = 1 << 22,
                                       .n_files = 2,
                                       .file = {{(1 << 22) + 1, "m-1.gguf"}, {5, "m-2.gguf"}},
                                       .first = 1,
                                       .n_hashes = 2,
                                       .hashes = hashes};
        break;
    case KIN_FRAME_GET: m->get = (kin_proto_get){.model = hash_from(0x40), .i_chunk = 2, .offset = 4096, .length = 65536}; break;
    case KIN_FRAME_DATA: m->data = (kin_proto_data){2, 4096, 5, (const uint8_t *)"GGUF!"}; break;
    case KIN_FRAME_LACK: m->lack.i_chunk = KIN_PROTO_NO_CHUNK; break;
    case KIN_FRAME_HAVE:
        m->have = (kin_proto_have){.model = hash_from(0x40),
                                   .id = id_from(0x30),
                                   .endpoint = {7118, 1, {"10.0.0.3"}},
                                   .n_chunks = 10,
                                   .bitmap = (const uint8_t *)"\x81\x02"};
        break;
    }
}

static void make_link(kin_proto_message *m) {
    switch ((int)m->type) {
    case KIN_FRAME_OPEN:
        m->open = (kin_proto_open){KIN_PROTO_RING, id_from(0x10), id_from(0x60), 0x0102030405060708,
                                   {5, 7},         "nuc",         "0.1.0",       0x80000001};
        break;
    case KIN_FRAME_ACCEPT: m->accept = (kin_proto_accept){id_from(0x20), {5, 7}, "Küche", "0.2", 3}; break;
    case KIN_FRAME_REFUSE: m->refuse = (kin_proto_refuse){"no such model"}; break;
    case KIN_FRAME_PING: m->ping.time = 0x0102030405060708; break;
    case KIN_FRAME_PONG: m->pong = (kin_proto_pong){0x0102030405060708, 0x1112131415161718}; break;
    case KIN_FRAME_BYE: m->bye = (kin_proto_bye){"the user pressed Ctrl-C"}; break;
    }
}

static void make_run(kin_proto_message *m) {
    switch ((int)m->type) {
    case KIN_FRAME_DEVICE:
        m->device = (kin_proto_device){.n_threads = 8,
                                       .memory = 6ull << 30,
                                       .memory_total = 8ull << 30,
                                       .cpu = "Zen 4",
                                       .os = "Linux",
                                       .gpu = "RTX",
                                       .gpu_memory = 4ull << 30,
                                       .model = hash_from(0x40),
                                       .endpoint = {7117, 2, {"10.0.0.2", "fd00::2"}}};
        break;
    case KIN_FRAME_PROGRESS: m->progress = (kin_proto_progress){KIN_PROTO_FETCHING, 100, 400, 50, 25}; break;
    case KIN_FRAME_READY: m->ready = (kin_proto_ready){1, 2, 3, 4, 5ull << 30}; break;
    case KIN_FRAME_FAILED: m->failed = (kin_proto_failed){9, "compute", "out of memory"}; break;
    case KIN_FRAME_STATUS:
        m->status = (kin_proto_status){
            KIN_PROTO_COMPUTING, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, KIN_PROTO_FETCHES, 20,
            "layers 0 to 8"};
        break;
    case KIN_FRAME_EVENTS:
        m->events =
            (kin_proto_events){2, {{KIN_PROTO_EVENT_COMPUTE, 1, 42, 1000, 2000}, {KIN_PROTO_EVENT_SEND, 1, 42, 2000, 2000}}};
        break;
    case KIN_FRAME_REPORT: m->report = (kin_proto_report){15, (const uint8_t *)"{\"head\":\"desk\"}"}; break;
    case KIN_FRAME_PLAN: m->plan = golden_plan(); break;
    case KIN_FRAME_STEP: m->step = golden_step(); break;
    case KIN_FRAME_PAGES: m->pages = golden_pages(); break;
    case KIN_FRAME_SUM: m->sum = golden_sum(); break;
    case KIN_FRAME_NEXT: m->next = (kin_proto_next){true, "fine"}; break;
    case KIN_FRAME_LEFT_OUT: m->left_out = (kin_proto_left_out){"it would add 27.1 ms/token"}; break;
    case KIN_FRAME_END: m->end = (kin_proto_end){"device 3 is lost"}; break;
    case KIN_FRAME_PREFETCH: m->prefetch = (kin_proto_prefetch){5, KIN_PROTO_FOR_STANDBY, true, golden_plan()}; break;
    case KIN_FRAME_PREFETCHED:
        m->prefetched = (kin_proto_prefetched){5, false, {KIN_PROTO_FETCHING, 100, 400, 50, 25}, "no room on the disk"};
        break;
    }
}

static void make_engine(kin_engine_facts *e, double first) {
    for (int i = 0; i < KIN_N_QUANT; i++) {
        e->token_bytes_s[i] = first + i;
        e->prompt_flop_s[i] = first + 20 + i;
    }
    e->read_bytes_s = first + 50;
    e->prompt_read_bytes_s = first + 52;
    e->kv_bytes_s = first + 53;
    for (int i = 0; i < KIN_FACTS_BATCHES; i++) {
        for (int q = 0; q < KIN_N_QUANT; q++) e->batch_factor[i][q] = first + 1000 + 100 * i + q;
    }
    e->kv_copy_s = first + 51;
    e->op_s = first + 0.5;
}

static void make_measured(kin_proto_message *m) {
    switch ((int)m->type) {
    case KIN_FRAME_PROFILE:
        m->profile.facts = (kin_device_facts){.name = "nuc",
                                              .os = KIN_OS_ANDROID,
                                              .has_gpu = true,
                                              .uma = true,
                                              .memory_bytes = 1,
                                              .swap_bytes = 2,
                                              .gpu_memory_bytes = 3,
                                              .disk_bytes_s = 4,
                                              .disk_random_bytes_s = 5,
                                              .to_gpu_s = 6,
                                              .from_gpu_s = 7,
                                              .gpu_copy_bytes_s = 8,
                                              .window_s = 9};
        make_engine(&m->profile.facts.cpu, 100);
        make_engine(&m->profile.facts.gpu, 200);
        break;
    case KIN_FRAME_MEASURE: m->measure = (kin_proto_measure){id_from(0x30), 16384, {7118, 2, {"10.0.0.3", "nuc.lan"}}}; break;
    case KIN_FRAME_MEASURED: m->measured = (kin_proto_measured){id_from(0x30), 0.0004, 117e6, -0.5, "no answer"}; break;
    case KIN_FRAME_ECHO: m->echo = (kin_proto_echo){0x0102030405060708, 262144, 5, (const uint8_t *)"hello"}; break;
    }
}

static kin_proto_message golden_message(kin_frame_type type) {
    kin_proto_message m;
    memset(&m, 0, sizeof m);
    m.type = type;
    make_link(&m);
    make_run(&m);
    make_fetch(&m);
    make_measured(&m);
    return m;
}

// Messages

static void every_message_has_its_golden_bytes(void **state) {
    (void)state;
    for (int type = 1; type <= KIN_FRAME_N_TYPES; type++) {
        bytes expected = golden_bytes(type), got = bytes_new(expected.n);
        kin_proto_message m = golden_message(type);
        assert_string_equal(kin_frame_name(type), golden_frames[type - 1].name);
        assert_int_equal(kin_proto_encode(NULL, 0, 0, &m), expected.n);
        assert_int_equal(kin_proto_encode(got.at, got.n, kin_get_u32(expected.at + 8), &m), expected.n);
        for (size_t i = 0; i < expected.n; i++) {
            if (got.at[i] != expected.at[i]) fail_msg("%s: byte %zu is %02x", golden_frames[type - 1].name, i, got.at[i]);
        }
        free(expected.memory);
        free(got.memory);
    }
}

// The test above checks the encoder, and different messages have different bytes, so decoding is right if it inverts encoding.
static void every_message_survives_the_round_trip(void **state) {
    (void)state;
    for (int type = 1; type <= KIN_FRAME_N_TYPES; type++) {
        bytes expected = golden_bytes(type), got = bytes_new(expected.n);
        kin_frame frame;
        kin_proto_message m;
        kin_err err;
        assert_int_equal(kin_frame_decode(expected.at, expected.n, &frame, &err), KIN_FRAME_HEADER);
        assert_int_equal(frame.type, type);
        assert_int_equal(frame.length, expected.n - KIN_FRAME_HEADER);
        if (kin_proto_decode(frame.type, expected.at + KIN_FRAME_HEADER, frame.length, &m, &err) != 0) fail_msg("%s", err.text);
        assert_int_equal(kin_proto_encode(got.at, got.n, frame.epoch, &m), expected.n);
        assert_memory_equal(got.at, expected.at, expected.n);
        free(expected.memory);
        free(got.memory);
    }
}

static void a_plan_says_how_large_a_sliding_window_is(void **state) {
    (void)state;
    static kin_proto_message m, got;
    static uint8_t bytes[4096];
    kin_err err;
    m.type = KIN_FRAME_PLAN;
    m.plan = golden_plan();
    size_t without = (size_t)kin_proto_encode(NULL, 0, 1, &m);
    m.plan.mode = KIN_PROTO_WINDOW;
    m.plan.sliding_blocks = 4;
    m.plan.sliding_retain = 300;
    size_t n = (size_t)kin_proto_encode(bytes, sizeof bytes, 1, &m);
    assert_int_equal(n, without + 4);
    if (kin_proto_decode(KIN_FRAME_PLAN, bytes + KIN_FRAME_HEADER, n - KIN_FRAME_HEADER, &got, &err) != 0)
        fail_msg("%s", err.text);
    assert_int_equal(got.plan.mode, KIN_PROTO_WINDOW);
    assert_int_equal(got.plan.sliding_blocks, 4);
    assert_int_equal(got.plan.sliding_retain, 300);
    assert_int_equal(got.plan.n_files, 2);
}

static void a_plan_says_how_many_windows_have_room(void **state) {
    (void)state;
    static kin_proto_message m, got;
    static uint8_t bytes[4096];
    kin_err err;
    m.type = KIN_FRAME_PLAN;
    m.plan = golden_plan();
    size_t without = (size_t)kin_proto_encode(NULL, 0, 1, &m);
    const uint64_t work = kin_proto_plan_work(&m.plan);
    m.plan.flags |= KIN_PROTO_PLAN_WINDOWS;
    m.plan.n_sequences = 3;
    assert_true(kin_proto_plan_work(&m.plan) != work);
    size_t n = (size_t)kin_proto_encode(bytes, sizeof bytes, 1, &m);
    assert_int_equal(n, without + 2);
    assert_int_equal(kin_proto_decode(KIN_FRAME_PLAN, bytes + KIN_FRAME_HEADER, n - KIN_FRAME_HEADER, &got, &err), 0);
    assert_int_equal(got.plan.n_sequences, 3);
    assert_int_equal(got.plan.n_files, 2);
    bytes[KIN_FRAME_HEADER + 61] = 0;
    assert_int_equal(kin_proto_decode(KIN_FRAME_PLAN, bytes + KIN_FRAME_HEADER, n - KIN_FRAME_HEADER, &got, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "n_sequences is 0"));
}

static void expect_refused(kin_frame_type type, const uint8_t *payload, size_t n, const char *sentence) {
    kin_proto_message m;
    kin_err err = {""};
    if (kin_proto_decode(type, payload, n, &m, &err) == 0) fail_msg("%s was taken; expected: %s", kin_frame_name(type), sentence);
    if (strncmp(err.text, kin_frame_name(type), strlen(kin_frame_name(type))) != 0) fail_msg("%s", err.text);
    if (!strstr(err.text, sentence)) fail_msg("expected: %s\ngot:      %s", sentence, err.text);
    assert_int_equal(kin_proto_decode(type, payload, n, &m, NULL), KIN_FAIL);
}
#define expect_refused(...) FROM_TEST(expect_refused(__VA_ARGS__))

static void a_payload_cut_anywhere_is_refused(void **state) {
    (void)state;
    for (int type = 1; type <= KIN_FRAME_N_TYPES; type++) {
        bytes whole = golden_payload(type);
        for (size_t n = 0; n < whole.n; n++) {
            bytes cut = bytes_new(n);
            memcpy(cut.at, whole.at, n);
            if ((type != KIN_FRAME_DATA || n <= 8) && (type != KIN_FRAME_ECHO || n < 12))
                expect_refused(type, cut.at, n, n == 8 && type == KIN_FRAME_DATA ? "an empty range" : "too early");
            free(cut.memory);
        }
        free(whole.memory);
    }
}

static void a_byte_too_many_is_refused(void **state) {
    (void)state;
    for (int type = 1; type <= KIN_FRAME_N_TYPES; type++) {
        bytes whole = golden_payload(type), longer = bytes_new(whole.n + 1);
        memcpy(longer.at, whole.at, whole.n);
        longer.at[whole.n] = 0;
        if (type != KIN_FRAME_DATA && type != KIN_FRAME_ECHO)
            expect_refused(type, longer.at, longer.n, "1 bytes too many at the end");
        free(whole.memory);
        free(longer.memory);
    }
}

// A malformed payload: the golden payload with these bytes at this offset.
typedef struct lie {
    kin_frame_type type;
    size_t offset;
    const char *hex, *sentence;
} lie;

static void expect_lies_refused(const lie *lies, size_t n) {
    for (size_t i = 0; i < n; i++) {
        bytes b = golden_payload(lies[i].type);
        assert_true(lies[i].offset + strlen(lies[i].hex) / 2 <= b.n);
        put_hex(b.at + lies[i].offset, lies[i].hex);
        expect_refused(lies[i].type, b.at, b.n, lies[i].sentence);
        free(b.memory);
    }
}
#define expect_lies_refused(...) FROM_TEST(expect_lies_refused(__VA_ARGS__))

static void lies_of_a_device_are_refused_with_a_sentence(void **state) {
    (void)state;
    static const lie lies[] = {
        {KIN_FRAME_OPEN, 0, "07", "OPEN: role is 7, but must be between 0 and 6"},
        {KIN_FRAME_OPEN, 41, "0000", "lowest version is 0, but must be between 1 and 65535"},
        {KIN_FRAME_OPEN, 43, "0400", "highest version is 4, but must be between 5 and 65535"},
        {KIN_FRAME_ACCEPT, 18, "0400", "highest version is 4, but must be between 5 and 65535"},
        {KIN_FRAME_OPEN, 45, "0001", "name has 256 bytes, more than 255"},
        {KIN_FRAME_OPEN, 45, "ff00", "too early"},
        {KIN_FRAME_OPEN, 47, "00", "name is not UTF-8 without control characters"},
        {KIN_FRAME_OPEN, 47, "0a", "name is not UTF-8 without control characters"},
        {KIN_FRAME_OPEN, 47, "1b", "name is not UTF-8 without control characters"},
        {KIN_FRAME_OPEN, 47, "7f", "name is not UTF-8 without control characters"},
        {KIN_FRAME_OPEN, 47, "c285", "name is not UTF-8 without control characters"},
        {KIN_FRAME_OPEN, 47, "ff", "name is not UTF-8 without control characters"},
        {KIN_FRAME_OPEN, 49, "c3", "name is not UTF-8 without control characters"},
        {KIN_FRAME_OPEN, 52, "0a", "version is not UTF-8"},
        {KIN_FRAME_ACCEPT, 22, "0a", "name is not UTF-8"},
        {KIN_FRAME_ACCEPT, 30, "0a", "version is not UTF-8"},
        {KIN_FRAME_REFUSE, 0, "e903", "reason has 1001 bytes, more than 1000"},
        {KIN_FRAME_REFUSE, 2, "0a", "reason is not UTF-8"},
        {KIN_FRAME_BYE, 0, "e903", "reason has 1001 bytes, more than 1000"},
        {KIN_FRAME_DEVICE, 0, "0000", "n_threads is 0, but must be between 1 and 65535"},
        {KIN_FRAME_DEVICE, 2, "0100000000002000", "memory is beyond 2^53 bytes"},
        {KIN_FRAME_DEVICE, 17, "ff", "memory_total is beyond"},
        {KIN_FRAME_DEVICE, 25, "ff", "gpu_memory is beyond"},
        {KIN_FRAME_DEVICE, 60, "00", "cpu is not UTF-8"},
        {KIN_FRAME_DEVICE, 67, "00", "os is not UTF-8"},
        {KIN_FRAME_DEVICE, 74, "00", "gpu is not UTF-8"},
        {KIN_FRAME_DEVICE, 77, "0000", "addresses without a port"},
        {KIN_FRAME_DEVICE, 79, "09", "number of addresses is 9, but must be between 0 and 8"},
        {KIN_FRAME_DEVICE, 80, "0000", "address 0 is empty"},
        {KIN_FRAME_DEVICE, 82, "09", "address is not UTF-8"},
        {KIN_FRAME_PROGRESS, 0, "04", "stage is 4"},
        {KIN_FRAME_PROGRESS, 1, "9101", "done is larger than total"},
        {KIN_FRAME_PROGRESS, 8, "ff", "done is beyond"},
        {KIN_FRAME_PROGRESS, 16, "ff", "total is beyond"},
        {KIN_FRAME_PROGRESS, 24, "ff", "rate is beyond"},
        {KIN_FRAME_PROGRESS, 32, "ff", "from_peers is beyond"},
        {KIN_FRAME_PREFETCHED, 0, "00000000", "ticket is 0"},
        {KIN_FRAME_PREFETCHED, 4, "02", "is_here is 2"},
        {KIN_FRAME_PREFETCHED, 4, "01", "it is both available and failed"},
        {KIN_FRAME_PREFETCHED, 5, "04", "stage is 4"},
        {KIN_FRAME_PREFETCHED, 38, "e903", "reason has 1001 bytes"},
        {KIN_FRAME_READY, 7, "ff", "kv_bytes is beyond"},
        {KIN_FRAME_READY, 15, "ff", "weights_bytes is beyond"},
        {KIN_FRAME_READY, 23, "ff", "resident_bytes is beyond"},
        {KIN_FRAME_READY, 31, "ff", "compute_bytes is beyond"},
        {KIN_FRAME_READY, 39, "ff", "gpu_bytes is beyond"},
        {KIN_FRAME_FAILED, 8, "0001", "stage has 256 bytes"},
        {KIN_FRAME_FAILED, 17, "e903", "reason has 1001 bytes"},
    };
    expect_lies_refused(lies, sizeof lies / sizeof *lies);
}

static void lies_in_a_plan_are_refused_with_a_sentence(void **state) {
    (void)state;
    static const lie lies[] = {
        {KIN_FRAME_PREFETCH, 0, "00000000", "ticket is 0"},
        {KIN_FRAME_PREFETCH, 4, "02", "purpose is 2"},
        {KIN_FRAME_PREFETCH, 5, "02", "gently is 2"},
        {KIN_FRAME_PREFETCH, 38, "00000000", "n_ctx is 0"},
        {KIN_FRAME_PLAN, 32, "00000000", "n_ctx is 0"},
        {KIN_FRAME_PLAN, 32, "01000008", "n_ctx is 134217729"},
        {KIN_FRAME_PLAN, 36, "00000000", "n_batch is 0"},
        {KIN_FRAME_PLAN, 36, "01000100", "n_batch is 65537"},
        {KIN_FRAME_PLAN, 40, "20", "flags is 32, but must be between 0 and 31"},
        {KIN_FRAME_PLAN, 51, "ff", "memory is beyond"},
        {KIN_FRAME_PLAN, 52, "0000", "n_seq is 0"},
        {KIN_FRAME_PLAN, 56, "0000", "n_rounds is 0"},
        {KIN_FRAME_PLAN, 56, "0104", "n_rounds is 1025"},
        {KIN_FRAME_PLAN, 58, "02", "kv_type is 2"},
        {KIN_FRAME_PLAN, 59, "03", "wire_type is 3"},
        {KIN_FRAME_PLAN, 60, "04", "mode is 4"},
        {KIN_FRAME_PLAN, 60, "030000", "sliding_blocks is 0"},
        {KIN_FRAME_PLAN, 61, "0000", "number of files is 0"},
        {KIN_FRAME_PLAN, 61, "4100", "number of files is 65"},
        {KIN_FRAME_PLAN, 63, "0000", "file 0 is empty"},
        {KIN_FRAME_PLAN, 70, "ff", "size of a file is beyond"},
        {KIN_FRAME_PLAN, 79, "0104", "number of windows is 1025"},
        {KIN_FRAME_PLAN, 81, "0200", "window 0 is in round 2 of 2"},
        {KIN_FRAME_PLAN, 83, "0800", "window 0 has no layers"},
        {KIN_FRAME_PLAN, 83, "0900", "window 0 has no layers"},
        {KIN_FRAME_PLAN, 87, "0900", "window 0 has more layers on the GPU than layers"},
        {KIN_FRAME_PLAN, 89, "0400", "n_cpu_moe is 4, but must be between 0 and 3"},
        {KIN_FRAME_PLAN, 91, "0000", "the rounds are not ascending at window 1"},
        {KIN_FRAME_PLAN, 93, "0700", "the layers are not ascending at window 1"},
        {KIN_FRAME_PLAN, 95, "0110", "layer_end is 4097"},
        {KIN_FRAME_PLAN, 117, "0000", "addresses without a port"},
        {KIN_FRAME_PLAN, 157, "09", "number of ranks is 9"},
        {KIN_FRAME_PLAN, 157, "01", "a group of one device"},
        {KIN_FRAME_PLAN, 157, "00", "63 bytes too many"},
        {KIN_FRAME_PLAN, 158, "02", "rank is 2, but must be between 0 and 1"},
        {KIN_FRAME_PLAN, 159, "04", "allreduce is 4"},
        {KIN_FRAME_PLAN, 160, "01", "byte after allreduce is 1"},
        {KIN_FRAME_PLAN, 161, "0500", "head_end is 5, but must be between 6"},
        {KIN_FRAME_PLAN, 165, "00050000", "ff_end is 1280, but must be between 1281"},
        {KIN_FRAME_PLAN, 189, "0000", "addresses without a port"},
        {KIN_FRAME_NEXT, 0, "02", "is_open is 2"},
        {KIN_FRAME_NEXT, 1, "e903", "reason has 1001 bytes"},
        {KIN_FRAME_END, 0, "e903", "reason has 1001 bytes"},
        {KIN_FRAME_LEFT_OUT, 0, "e903", "reason has 1001 bytes"},
    };
    expect_lies_refused(lies, sizeof lies / sizeof *lies);
}

static void pages_that_are_computed_again_have_borders(void **state) {
    (void)state;
    kin_proto_pages m = golden_pages(), got;
    uint8_t payload[256];
    kin_err err;
    size_t n = kin_proto_size_pages(&m);
    m.recomputes = true;
    m.has_states = false;
    kin_border_set_add(&m.borders, 8);
    kin_border_set_add(&m.borders, 21);
    assert_int_equal(kin_proto_size_pages(&m), n + sizeof m.borders);
    assert_int_equal(kin_proto_encode_pages(payload, sizeof payload, &m), n + sizeof m.borders);
    assert_int_equal(payload[n + 1], 1);
    assert_int_equal(payload[n + 2], 1 << 5);
    assert_int_equal(kin_proto_decode_pages(payload, n + sizeof m.borders, &got, &err), 0);
    assert_memory_equal(&got.borders, &m.borders, sizeof m.borders);
    assert_memory_equal(got.key, m.key, sizeof m.key);
}

static void pages_that_leave_the_disks_are_neither_kept_nor_loaded(void **state) {
    (void)state;
    kin_proto_pages m = golden_pages(), got;
    uint8_t payload[256];
    kin_err err;
    size_t n = kin_proto_size_pages(&m);
    m.loads = false;
    m.drops = true;
    assert_int_equal(kin_proto_encode_pages(payload, sizeof payload, &m), n);
    assert_int_equal(payload[8], 3);
    assert_int_equal(kin_proto_decode_pages(payload, n, &got, &err), 0);
    assert_true(got.drops && !got.loads && !got.recomputes);
}

static void lies_in_a_step_are_refused_with_a_sentence(void **state) {
    (void)state;
    static const lie lies[] = {
        {KIN_FRAME_STEP, 8, "0004", "round is 1024"},
        {KIN_FRAME_STEP, 10, "2000", "flags is 32, but must be between 0 and 31"},
        {KIN_FRAME_STEP, 10, "100000000000", "numbers of tokens without positions"},
        {KIN_FRAME_STEP, 10, "0a00", "n_out is 2, but must be between 3 and 3"},
        {KIN_FRAME_STEP, 10, "0000", "n_ops is 1, but must be between 0 and 0"},
        {KIN_FRAME_STEP, 10, "000000000000", "56 bytes too many"},
        {KIN_FRAME_STEP, 10, "0000000000000000010000000100000010000000", "activations of 274877906944 bytes"},
        {KIN_FRAME_STEP, 12, "03", "type is 3"},
        {KIN_FRAME_STEP, 12, "02", "n_embd is 2, but q8 needs a multiple of 32"},
        {KIN_FRAME_STEP, 13, "01", "type is 256"},
        {KIN_FRAME_STEP, 14, "0110", "n_ops is 4097, but must be between 0 and 4096"},
        {KIN_FRAME_STEP, 16, "00000000", "n_tokens is 0"},
        {KIN_FRAME_STEP, 16, "01000100", "n_tokens is 65537"},
        {KIN_FRAME_STEP, 20, "04", "n_rows is 4, but must be between 0 and 3"},
        {KIN_FRAME_STEP, 20, "01", "n_rows is neither n_tokens nor n_out"},
        {KIN_FRAME_STEP, 20, "00", "n_rows is neither n_tokens nor n_out"},
        {KIN_FRAME_STEP, 24, "00", "n_embd is 0"},
        {KIN_FRAME_STEP, 24, "01001000", "n_embd is 1048577"},
        {KIN_FRAME_STEP, 28, "04", "n_out is 4, but must be between 0 and 3"},
        {KIN_FRAME_STEP, 36, "ffffffff", "position of token 1 is -1"},
        {KIN_FRAME_STEP, 52, "00000080", "sequence of token 2 is -2147483648"},
        {KIN_FRAME_STEP, 56, "ffffffff", "wanted row -1 after -1 of 3"},
        {KIN_FRAME_STEP, 60, "00000000", "wanted row 0 after 0 of 3"},
        {KIN_FRAME_STEP, 60, "03000000", "wanted row 3 after 0 of 3"},
        {KIN_FRAME_STEP, 64, "feffffff", "sequence -2 becomes 64 tokens of 0"},
        {KIN_FRAME_STEP, 68, "ffffffff", "sequence 1 becomes 64 tokens of -1"},
        {KIN_FRAME_STEP, 72, "ffffffff", "sequence 1 becomes -1 tokens of 0"},
        {KIN_FRAME_STEP, 80, "ffffffff", "number of token 1 is -1"},
        {KIN_FRAME_SUM, 8, "0004", "round is 1024"},
        {KIN_FRAME_SUM, 10, "0040", "i_sum is 16384"},
        {KIN_FRAME_SUM, 12, "03", "type is 3"},
        {KIN_FRAME_SUM, 12, "02", "n_values is 2, but q8 needs a multiple of 32"},
        {KIN_FRAME_SUM, 14, "01", "byte 14 is 1"},
        {KIN_FRAME_SUM, 16, "00000000", "n_values is 0"},
        {KIN_FRAME_SUM, 16, "01000000", "4 bytes too many"},
        {KIN_FRAME_PAGES, 8, "04", "loads is 4"},
        {KIN_FRAME_PAGES, 8, "02030200", "ends 32 bytes too early"},
        {KIN_FRAME_PAGES, 8, "02", "states is 1"},
        {KIN_FRAME_PAGES, 9, "00", "n_pages is 0"},
        {KIN_FRAME_PAGES, 9, "09", "n_pages is 9"},
        {KIN_FRAME_PAGES, 9, "02", "16 bytes too many"},
        {KIN_FRAME_PAGES, 10, "04", "n_good is 4, but must be between 0 and 3"},
        {KIN_FRAME_PAGES, 11, "02", "states is 2"},
        {KIN_FRAME_PAGES, 12, "0110", "n_ops is 4097"},
        {KIN_FRAME_PAGES, 16, "00000080", "seq is 2147483648"},
        {KIN_FRAME_PAGES, 20, "01002000", "first is 2097153"},
        {KIN_FRAME_PAGES, 24, "feffffff", "sequence -2 becomes 64 tokens of 1"},
    };
    expect_lies_refused(lies, sizeof lies / sizeof *lies);
}

static void lies_in_reports_and_measurements_are_refused_with_a_sentence(void **state) {
    (void)state;
    static const lie lies[] = {
        {KIN_FRAME_STATUS, 0, "04", "state is 4"},
        {KIN_FRAME_STATUS, 48, "ff", "net_in is beyond"},
        {KIN_FRAME_STATUS, 56, "ff", "net_out is beyond"},
        {KIN_FRAME_STATUS, 64, "ff", "streamed_bytes is beyond"},
        {KIN_FRAME_STATUS, 72, "ff", "resident_bytes is beyond"},
        {KIN_FRAME_STATUS, 80, "ff", "memory_free is beyond"},
        {KIN_FRAME_STATUS, 120, "ff", "token_disk_bytes is beyond"},
        {KIN_FRAME_STATUS, 137, "03", "work is 3"},
        {KIN_FRAME_STATUS, 145, "ff", "moving is beyond"},
        {KIN_FRAME_STATUS, 148, "0d", "doing is not UTF-8"},
        {KIN_FRAME_EVENTS, 0, "0104", "number of events is 1025"},
        {KIN_FRAME_EVENTS, 2, "04", "kind of event is 4"},
        {KIN_FRAME_EVENTS, 3, "0004", "round is 1024"},
        {KIN_FRAME_EVENTS, 21, "e703", "event 0 ends before it begins"},
        {KIN_FRAME_REPORT, 0, "00000000", "number of bytes is 0"},
        {KIN_FRAME_REPORT, 0, "01000100", "number of bytes is 65537"},
        {KIN_FRAME_REPORT, 0, "10000000", "ends 1 bytes too early"},
        {KIN_FRAME_PROFILE, 0, "0a", "number of weight types is 10, but must be between 11 and 11"},
        {KIN_FRAME_PROFILE, 0, "0c", "number of weight types is 12, but must be between 11 and 11"},
        {KIN_FRAME_PROFILE, 1, "06", "os is 6"},
        {KIN_FRAME_PROFILE, 2, "02", "has_gpu is 2"},
        {KIN_FRAME_PROFILE, 3, "02", "uma is 2"},
        {KIN_FRAME_PROFILE, 1388, "30", "name has 48 bytes, more than 47"},
        {KIN_FRAME_PROFILE, 1390, "0a", "name is not UTF-8"},
        {KIN_FRAME_MEASURE, 16, "00000000", "hidden_bytes is 0"},
        {KIN_FRAME_MEASURE, 16, "01001000", "hidden_bytes is 1048577"},
        {KIN_FRAME_MEASURE, 20, "0000", "addresses without a port"},
        {KIN_FRAME_MEASURE, 22, "09", "number of addresses is 9"},
        {KIN_FRAME_MEASURED, 40, "e903", "reason has 1001 bytes"},
        {KIN_FRAME_MEASURED, 42, "0a", "reason is not UTF-8"},
        {KIN_FRAME_ECHO, 8, "01001000", "answer_bytes is 1048577"},
    };
    expect_lies_refused(lies, sizeof lies / sizeof *lies);
}

static void lies_about_chunks_are_refused_with_a_sentence(void **state) {
    (void)state;
    static const lie lies[] = {
        {KIN_FRAME_HASHES, 0, "00000000", "chunk_bytes is 0"},
        {KIN_FRAME_HASHES, 0, "00000008", "chunk_bytes is 134217728"},
        {KIN_FRAME_HASHES, 0, "01", "chunk_bytes is not a power of two"},
        {KIN_FRAME_HASHES, 4, "0000", "number of files is 0"},
        {KIN_FRAME_HASHES, 4, "4100", "number of files is 65"},
        {KIN_FRAME_HASHES, 6, "0000000000000000", "file 0 is empty"},
        {KIN_FRAME_HASHES, 6, "0000000000200000", "the model has more than 4194304 chunks"},
        {KIN_FRAME_HASHES, 13, "ff", "size of a file is beyond"},
        {KIN_FRAME_HASHES, 16, "2f", "'/-1.gguf' is not the name of a file"},
        {KIN_FRAME_HASHES, 16, "2e2e5c", "is not the name of a file"},
        {KIN_FRAME_HASHES, 16, "0a", "name of a file is not UTF-8"},
        {KIN_FRAME_HASHES, 42, "02", "hashes of chunks after the model's last"},
        {KIN_FRAME_HASHES, 42, "ffffffff", "hashes of chunks after the model's last"},
        {KIN_FRAME_HASHES, 46, "01400000", "number of hashes is 16385"},
        {KIN_FRAME_GET, 32, "00004000", "chunk is 4194304"},
        {KIN_FRAME_GET, 36, "ffffffff", "a range beyond the largest chunk"},
        {KIN_FRAME_GET, 40, "00000000", "an empty range"},
        {KIN_FRAME_GET, 40, "ffffffff", "a range beyond the largest chunk"},
        {KIN_FRAME_DATA, 0, "00004000", "chunk is 4194304"},
        {KIN_FRAME_DATA, 4, "fcffff03", "a range beyond the largest chunk"},
        {KIN_FRAME_LACK, 0, "00004000", "chunk is 4194304"},
        {KIN_FRAME_HAVE, 50, "09", "number of addresses is 9"},
        {KIN_FRAME_HAVE, 61, "00000000", "number of chunks is 0"},
        {KIN_FRAME_HAVE, 61, "01004000", "number of chunks is 4194305"},
        {KIN_FRAME_HAVE, 66, "04", "bits after the last chunk"},
        {KIN_FRAME_KEPT, 18, "09", "number of addresses is 9"},
        {KIN_FRAME_KEPT, 29, "00000000", "page_bytes is 0"},
        {KIN_FRAME_KEPT, 29, "01000004", "page_bytes is 67108865"},
        {KIN_FRAME_KEPT, 33, "0104", "number of names is 1025"},
    };
    expect_lies_refused(lies, sizeof lies / sizeof *lies);
}

static void expect_message_refused(const kin_proto_message *m, const char *sentence) {
    bytes b = bytes_new(kin_proto_encode(NULL, 0, 0, m));
    kin_proto_encode(b.at, b.n, 1, m);
    expect_refused(m->type, b.at + KIN_FRAME_HEADER, b.n - KIN_FRAME_HEADER, sentence);
    free(b.memory);
}
#define expect_message_refused(...) FROM_TEST(expect_message_refused(__VA_ARGS__))

static void a_device_must_listen(void **state) {
    (void)state;
    kin_proto_message m = golden_message(KIN_FRAME_DEVICE);
    m.device.endpoint = (kin_proto_endpoint){0};
    expect_message_refused(&m, "the device has no port");
}

static void names_of_files_stay_in_their_folder(void **state) {
    (void)state;
    static const char *const bad[] = {"", ".", "..", "a/b", "/", "..\\a"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        kin_proto_message m = golden_message(KIN_FRAME_HASHES);
        strcpy(m.hashes.file[1].name, bad[i]);
        expect_message_refused(&m, "is not the name of a file");
    }
}

static void data_is_at_most_256_kib(void **state) {
    (void)state;
    bytes b = bytes_new(8 + KIN_FRAME_DATA_BYTES + 1);
    memset(b.at, 0, b.n);
    expect_refused(KIN_FRAME_DATA, b.at, b.n, "262145 bytes, more than 262144");
    kin_proto_data m;
    assert_int_equal(kin_proto_decode_data(b.at, b.n - 1, &m, NULL), 0);
    assert_int_equal(m.n_bytes, KIN_FRAME_DATA_BYTES);
    free(b.memory);
}

static void an_echo_is_at_most_1_mib(void **state) {
    (void)state;
    bytes b = bytes_new(12 + KIN_FRAME_ECHO_BYTES + 1);
    memset(b.at, 0, b.n);
    expect_refused(KIN_FRAME_ECHO, b.at, b.n, "1048577 bytes, more than 1048576");
    kin_proto_echo m;
    assert_int_equal(kin_proto_decode_echo(b.at, b.n - 1, &m, NULL), 0);
    assert_int_equal(m.n_bytes, KIN_FRAME_ECHO_BYTES);
    assert_int_equal(kin_proto_decode_echo(b.at, 12, &m, NULL), 0);
    assert_int_equal(m.n_bytes, 0);
    free(b.memory);
}

// The codec passes the numbers on unchanged; the planner checks them.
static void measured_numbers_may_be_any_bits(void **state) {
    (void)state;
    static const uint64_t odd[] = {0x7ff8000000000001, 0xfff0000000000000, 0x8000000000000000, 1};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        bytes b = golden_payload(KIN_FRAME_PROFILE);
        kin_proto_profile m;
        uint64_t bits;
        kin_put_u64(b.at + 1380, odd[i]); // the last number before the name
        assert_int_equal(kin_proto_decode_profile(b.at, b.n, &m, NULL), 0);
        memcpy(&bits, &m.facts.gpu.op_s, sizeof bits);
        assert_true(bits == odd[i]);
        free(b.memory);
    }
}

static void an_unknown_type_of_message_is_refused(void **state) {
    (void)state;
    kin_proto_message m;
    kin_err err;
    assert_int_equal(kin_proto_decode(KIN_FRAME_N_TYPES + 1, (const uint8_t *)"", 0, &m, &err), KIN_FAIL);
    assert_string_equal(err.text, "unknown type of message: 35");
}

static void an_empty_payload_may_be_no_memory(void **state) {
    (void)state;
    kin_proto_status_wanted m;
    assert_int_equal(kin_proto_decode_status_wanted(NULL, 0, &m, NULL), 0);
    expect_refused(KIN_FRAME_PING, NULL, 0, "PING: ends 8 bytes too early");
}

static void fill(char *text, size_t n) {
    memset(text, 'x', n);
    text[n] = 0;
}

static void fill_endpoint(kin_proto_endpoint *e) {
    *e = (kin_proto_endpoint){.port = 1, .n_addresses = KIN_PROTO_MAX_ADDRESSES};
    for (int i = 0; i < KIN_PROTO_MAX_ADDRESSES; i++) fill(e->address[i], KIN_PROTO_MAX_STR);
}

static void expect_fits(const kin_proto_message *m) {
    size_t n = kin_proto_encode(NULL, 0, 0, m);
    bytes b = bytes_new(n);
    kin_proto_message again;
    kin_err err;
    kin_proto_encode(b.at, n, 1, m);
    if (kin_proto_decode(m->type, b.at + KIN_FRAME_HEADER, n - KIN_FRAME_HEADER, &again, &err) != 0) fail_msg("%s", err.text);
    free(b.memory);
}
#define expect_fits(...) FROM_TEST(expect_fits(__VA_ARGS__))

static void the_largest_messages_fit_their_caps(void **state) {
    (void)state;
    kin_proto_message plan = golden_message(KIN_FRAME_PLAN);
    plan.plan.n_rounds = plan.plan.n_windows = KIN_PROTO_MAX_WINDOWS;
    for (uint16_t i = 0; i < KIN_PROTO_MAX_WINDOWS; i++) plan.plan.window[i] = (kin_proto_window){i, i, (uint16_t)(i + 1), 1, 0};
    plan.plan.n_files = KIN_PROTO_MAX_FILES;
    for (int i = 0; i < KIN_PROTO_MAX_FILES; i++) plan.plan.file_size[i] = 1ull << 53;
    fill_endpoint(&plan.plan.next);
    plan.plan.group.n_ranks = KIN_PROTO_MAX_RANKS;
    for (int i = 0; i < KIN_PROTO_MAX_RANKS; i++) fill_endpoint(&plan.plan.group.endpoint[i]);
    expect_fits(&plan);

    kin_proto_message events = golden_message(KIN_FRAME_EVENTS);
    events.events.n_events = KIN_PROTO_MAX_EVENTS;
    expect_fits(&events);

    kin_proto_message report = golden_message(KIN_FRAME_REPORT);
    uint8_t *text = calloc(1, KIN_FRAME_REPORT_BYTES);
    report.report = (kin_proto_report){KIN_FRAME_REPORT_BYTES, text};
    expect_fits(&report);
    free(text);

    kin_proto_message hashes = golden_message(KIN_FRAME_HASHES);
    uint8_t *zeros = calloc(KIN_PROTO_MAX_HASHES, 32);
    hashes.hashes.n_files = KIN_PROTO_MAX_FILES;
    for (int i = 0; i < KIN_PROTO_MAX_FILES; i++) {
        hashes.hashes.file[i].size = 1ull << 38;
        fill(hashes.hashes.file[i].name, KIN_PROTO_MAX_STR);
    }
    hashes.hashes.first = KIN_PROTO_MAX_CHUNKS - KIN_PROTO_MAX_HASHES;
    hashes.hashes.n_hashes = KIN_PROTO_MAX_HASHES;
    hashes.hashes.hashes = zeros;
    expect_fits(&hashes);

    kin_proto_message have = golden_message(KIN_FRAME_HAVE);
    fill_endpoint(&have.have.endpoint);
    have.have.n_chunks = KIN_PROTO_MAX_CHUNKS;
    have.have.bitmap = zeros;
    expect_fits(&have);

    kin_proto_message kept = golden_message(KIN_FRAME_KEPT);
    fill_endpoint(&kept.kept.endpoint);
    kept.kept.n_names = KIN_PROTO_MAX_KEPT;
    kept.kept.names = zeros;
    expect_fits(&kept);
    free(zeros);
}

// Long parts

static void long_parts_may_be_filled_in_place(void **state) {
    (void)state;
    bytes expected = golden_payload(KIN_FRAME_STEP), got = bytes_new(expected.n);
    kin_proto_step full = golden_step(), m = full;
    m.pos = m.seq = m.out = m.ops = m.tokens = m.activations = NULL;
    kin_proto_step_layout l = kin_proto_step_lay_out(&m);
    assert_int_equal(l.size, kin_proto_size_step(&m));
    memset(got.at, 0xee, got.n);
    assert_int_equal(kin_proto_encode_step(got.at, got.n, &m), expected.n);
    for (size_t i = l.pos; i < l.size; i++) assert_int_equal(got.at[i], 0xee);
    kin_proto_i32_encode(got.at + l.pos, (int32_t[]){5, 6, 7}, 3);
    kin_proto_i32_encode(got.at + l.seq, (int32_t[]){0, 0, 1}, 3);
    kin_proto_i32_encode(got.at + l.out, (int32_t[]){0, 2}, 2);
    kin_proto_i32_encode(got.at + l.ops, (int32_t[]){1, 0, 64}, 3);
    kin_proto_i32_encode(got.at + l.tokens, (int32_t[]){300, 0, 41}, 3);
    memcpy(got.at + l.activations, full.activations, l.activations_bytes);
    assert_memory_equal(got.at, expected.at, expected.n);
    free(expected.memory);
    free(got.memory);
}

static void a_payload_may_be_sent_in_parts(void **state) {
    (void)state;
    static const kin_frame_type types[] = {KIN_FRAME_STEP, KIN_FRAME_DATA};
    for (int i = 0; i < 2; i++) {
        kin_frame_type type = types[i];
        bytes whole = golden_payload(type);
        kin_proto_message m = golden_message(type);
        size_t n_head = type == KIN_FRAME_STEP ? kin_proto_step_lay_out(&m.step).activations : 8;
        bytes head = bytes_new(n_head);
        size_t n = type == KIN_FRAME_STEP ? kin_proto_encode_step_head(head.at, head.n, &m.step)
                                          : kin_proto_encode_data_head(head.at, head.n, &m.data);
        assert_int_equal(n, n_head);
        assert_memory_equal(head.at, whole.at, n_head);
        free(whole.memory);
        free(head.memory);
    }
}

static void long_parts_are_read_at_any_alignment(void **state) {
    (void)state;
    bytes b = golden_payload(KIN_FRAME_STEP);
    kin_proto_step m;
    int32_t seq[3];
    float x[6];
    assert_int_equal(kin_proto_decode_step(b.at, b.n, &m, NULL), 0);
    assert_int_equal(kin_proto_i32_at(m.pos, 2), 7);
    kin_proto_i32_decode(seq, m.seq, 3);
    assert_int_equal(seq[2], 1);
    kin_activations_decode(x, m.activations, 6, m.type);
    assert_true(x[0] == 1 && x[1] == -2 && x[2] == 0.5f && x[5] == 4);
    free(b.memory);
}

static void blocks_of_q8_are_whole(void **state) {
    (void)state;
    static const uint8_t bytes[4 * KIN_ACTIVATION_Q8_BYTES] = {7};
    uint8_t buf[256];
    kin_err err;
    kin_proto_step m = {.n_tokens = 2, .n_rows = 2, .n_embd = 64, .n_out = 2, .type = KIN_ACTIVATION_Q8, .activations = bytes},
                   step;
    kin_proto_sum s = {.n_values = 64, .type = KIN_ACTIVATION_Q8, .values = bytes}, sum;
    size_t n = kin_proto_encode_step(buf, sizeof buf, &m);
    assert_int_equal(n, 32 + 4 * KIN_ACTIVATION_Q8_BYTES);
    assert_int_equal(kin_proto_decode_step(buf, n, &step, &err), 0);
    assert_memory_equal(step.activations, bytes, sizeof bytes);
    assert_int_equal(kin_proto_decode_step(buf, n - 1, &step, &err), KIN_FAIL);
    kin_put_u32(buf + 24, 48);
    assert_int_equal(kin_proto_decode_step(buf, n, &step, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "n_embd is 48, but q8"));
    kin_put_u16(buf + 12, KIN_ACTIVATION_N_TYPES);
    assert_int_equal(kin_proto_decode_step(buf, n, &step, &err), KIN_FAIL);
    n = kin_proto_encode_sum(buf, sizeof buf, &s);
    assert_int_equal(n, KIN_PROTO_SUM_HEAD + 2 * KIN_ACTIVATION_Q8_BYTES);
    assert_int_equal(kin_proto_decode_sum(buf, n, &sum, &err), 0);
    assert_int_equal(kin_proto_decode_sum(buf, n + 1, &sum, &err), KIN_FAIL);
    kin_put_u32(buf + 16, 65);
    assert_int_equal(kin_proto_decode_sum(buf, n, &sum, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "n_values is 65, but q8"));
}

static void a_step_without_positions_or_rows_is_short(void **state) {
    (void)state;
    kin_proto_step m = {.n_tokens = 2, .n_embd = 2, .flags = KIN_PROTO_STEP_NO_OUTPUT}, again;
    uint8_t buf[32];
    assert_int_equal(kin_proto_encode_step(buf, sizeof buf, &m), 32);
    assert_int_equal(kin_proto_decode_step(buf, sizeof buf, &again, NULL), 0);
    assert_null(again.pos);
    assert_null(again.out);
}

static void no_step_of_a_ring_is_larger_than_its_bound(void **state) {
    (void)state;
    kin_proto_step m = {.n_tokens = 8, .n_rows = 8, .n_embd = 16, .n_out = 8, .type = KIN_ACTIVATION_F16};
    for (unsigned flags = 0; flags <= KIN_PROTO_STEP_FLAGS; flags++) {
        m.flags = (uint16_t)flags;
        assert_true(kin_proto_size_step(&m) <= kin_proto_step_size_max(8, 16, KIN_ACTIVATION_F16));
    }
    assert_int_equal(kin_proto_step_size_max(8, 16, KIN_ACTIVATION_F16), 32 + 4 * 8 * 4 + 12 * KIN_PROTO_MAX_OPS + 8 * 16 * 2);
}

static void a_bitmap_tells_each_chunk(void **state) {
    (void)state;
    kin_proto_message m = golden_message(KIN_FRAME_HAVE);
    for (uint32_t i = 0; i < 10; i++) assert_int_equal(kin_proto_have_chunk(&m.have, i), i == 0 || i == 7 || i == 9);
}

static void each_file_starts_a_new_chunk(void **state) {
    (void)state;
    kin_proto_message m = golden_message(KIN_FRAME_HASHES);
    assert_int_equal(kin_proto_n_chunks(&m.hashes), 3);
    m.hashes.file[0].size = 1 << 22;
    assert_int_equal(kin_proto_n_chunks(&m.hashes), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_message_has_its_golden_bytes),
        cmocka_unit_test(every_message_survives_the_round_trip),
        cmocka_unit_test(a_plan_says_how_large_a_sliding_window_is),
        cmocka_unit_test(a_plan_says_how_many_windows_have_room),
        cmocka_unit_test(a_payload_cut_anywhere_is_refused),
        cmocka_unit_test(a_byte_too_many_is_refused),
        cmocka_unit_test(lies_of_a_device_are_refused_with_a_sentence),
        cmocka_unit_test(lies_in_a_plan_are_refused_with_a_sentence),
        cmocka_unit_test(pages_that_are_computed_again_have_borders),
        cmocka_unit_test(pages_that_leave_the_disks_are_neither_kept_nor_loaded),
        cmocka_unit_test(lies_in_a_step_are_refused_with_a_sentence),
        cmocka_unit_test(lies_in_reports_and_measurements_are_refused_with_a_sentence),
        cmocka_unit_test(lies_about_chunks_are_refused_with_a_sentence),
        cmocka_unit_test(a_device_must_listen),
        cmocka_unit_test(names_of_files_stay_in_their_folder),
        cmocka_unit_test(data_is_at_most_256_kib),
        cmocka_unit_test(an_echo_is_at_most_1_mib),
        cmocka_unit_test(measured_numbers_may_be_any_bits),
        cmocka_unit_test(an_unknown_type_of_message_is_refused),
        cmocka_unit_test(an_empty_payload_may_be_no_memory),
        cmocka_unit_test(the_largest_messages_fit_their_caps),
        cmocka_unit_test(long_parts_may_be_filled_in_place),
        cmocka_unit_test(a_payload_may_be_sent_in_parts),
        cmocka_unit_test(long_parts_are_read_at_any_alignment),
        cmocka_unit_test(blocks_of_q8_are_whole),
        cmocka_unit_test(a_step_without_positions_or_rows_is_short),
        cmocka_unit_test(no_step_of_a_ring_is_larger_than_its_bound),
        cmocka_unit_test(a_bitmap_tells_each_chunk),
        cmocka_unit_test(each_file_starts_a_new_chunk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
