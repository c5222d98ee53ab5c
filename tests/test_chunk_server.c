// The chunk server serves good clients whatever the bad ones request: fairly, within its limits, and only what it may give.
#include "tests/fetch_context.h"
#include "tests/place.h"

// ---- clients

static void on_raw_frame(void *user, kin_link *link, const kin_frame *frame, const uint8_t *payload) {
    raw *r = user;
    (void)link, (void)payload;
    r->n_frames++;
    r->is_accepted = r->is_accepted || frame->type == KIN_FRAME_ACCEPT;
    r->n_lack += frame->type == KIN_FRAME_LACK;
    r->n_data += frame->type == KIN_FRAME_DATA;
    if (frame->type == KIN_FRAME_ACCEPT) kin_link_set_frame_max(link, KIN_FRAME_CAP_LARGE);
}

static void on_raw_opened(void *user, kin_link *link) {
    uint8_t bytes[256];
    (void)user;
    kin_proto_open hello = {.role = KIN_PROTO_FETCH, .id = {{77}}, .versions = KIN_PROTO_VERSIONS, .name = "raw", .version = "1"};
    kin_link_send(link, KIN_FRAME_OPEN, 0, 1, &(kin_frame_part){bytes, kin_proto_encode_open(bytes, sizeof bytes, &hello)});
}

static raw *connect_raw_to(context *w, uint16_t port, uv_loop_t *loop) {
    static const kin_link_callbacks callbacks = {.opened = on_raw_opened, .frame = on_raw_frame, .closed = forget_raw};
    kin_link_options o = kin_link_options_default(w->tls);
    raw *r = &w->raws[w->n_raws++];
    kin_err err;
    *r = (raw){.w = w};
    assert_int_equal(kin_link_connect(&r->link, loop, "127.0.0.1", port, &o, &callbacks, r, &err), 0);
    RUN_UNTIL(w, r->is_accepted || (loop != &w->loop && (uv_run(loop, UV_RUN_NOWAIT), r->is_accepted)));
    return r;
}
#define connect_raw_to(...) FROM_TEST(connect_raw_to(__VA_ARGS__))

static raw *connect_raw_on(context *w, uv_loop_t *loop) {
    return connect_raw_to(w, w->head.port, loop);
}
#define connect_raw_on(...) FROM_TEST(connect_raw_on(__VA_ARGS__))

static raw *connect_raw(context *w) {
    return connect_raw_on(w, &w->loop);
}
#define connect_raw(...) FROM_TEST(connect_raw(__VA_ARGS__))

static void send_get(raw *r, const uint8_t *model, uint32_t i_chunk, uint32_t offset, uint32_t length) {
    uint8_t bytes[64];
    kin_proto_get get = {.i_chunk = i_chunk, .offset = offset, .length = length};
    memcpy(get.model.bytes, model, sizeof get.model.bytes);
    kin_link_send(r->link, KIN_FRAME_GET, 0, 1, &(kin_frame_part){bytes, kin_proto_encode_get(bytes, sizeof bytes, &get)});
}

static void expect_closed(raw *r, const char *words) {
    RUN_UNTIL(r->w, r->is_closed);
    if (!strstr(r->reason, words)) fail_msg("'%s' does not say '%s'", r->reason, words);
    r->w->n_raws--;
}
#define expect_closed(...) FROM_TEST(expect_closed(__VA_ARGS__))

// ---- claims

static void only_the_peer_that_asks_for_the_impossible_loses_its_link(void **state) {
    context *w = *state;
    const uint8_t *model = w->manifest.hash;
    uint8_t other[32] = {[31] = 1};
    uint32_t last = w->manifest.n_chunks - 1;
    raw *r = connect_raw(w);
    send_get(r, other, 0, 0, 1);
    expect_closed(r, "the peer requested a chunk of another model");
    r = connect_raw(w);
    send_get(r, model, last + 1, 0, 1);
    expect_closed(r, "but the number of chunks is");
    r = connect_raw(w);
    send_get(r, model, 0, 1, CHUNK);
    expect_closed(r, "65536 bytes at offset 1 of chunk 0 were requested, but its size is 65536");
    r = connect_raw(w);
    send_get(r, model, last, 0, CHUNK);
    expect_closed(r, "were requested, but its size is");
    r = connect_raw(w);
    for (int i = 0; i < 20; i++) send_get(r, model, 0, 0, CHUNK);
    expect_closed(r, "the peer has more than 16 requests in flight");
    r = connect_raw(w);
    kin_link_send(r->link, KIN_FRAME_GET, 0, 1, &(kin_frame_part){model, 5});
    expect_closed(r, "GET");
    r = connect_raw(w);
    kin_link_send(r->link, KIN_FRAME_HASHES_WANTED, 0, 1, &(kin_frame_part){model, 5});
    expect_closed(r, "HASHES_WANTED");
    r = connect_raw(w);
    kin_link_send(r->link, KIN_FRAME_STATUS_WANTED, 0, 0, NULL);
    expect_closed(r, "accepts only requests for chunks");
    w->devices[0].windows = kin_windows_one(0, 1, 0);
    start(&w->devices[0]);
    expect_done(&w->devices[0]);
}

// Computed from the file: true if bytes [begin, end) hold only tensors of the embedding and the output layer.
static bool is_of_ends_alone(const kin_model *m, uint64_t begin, uint64_t end) {
    bool is_header = true;
    for (size_t i = 0; i < kin_gguf_n_tensors(m->gguf); i++) {
        const kin_gguf_tensor *t = kin_gguf_tensor_at(m->gguf, i);
        bool is_end = t == m->token_embd || t == m->output || t == m->output_norm;
        if (t->offset <= begin) is_header = false;
        if (!is_end && t->offset < end && t->offset + t->n_bytes > begin) return false;
    }
    return !is_header;
}

static void what_stays_on_the_head_is_never_sent(void **state) {
    context *w = *state;
    uint32_t n = w->manifest.n_chunks, n_private = 0;
    bool *is_private = calloc(n, sizeof *is_private);
    kin_model model;
    kin_err err;
    assert_int_equal(kin_model_open(&model, w->path[0], &err), 0);
    assert_int_equal(kin_ranges_private(model.gguf, &w->manifest, is_private, &err), 0);
    kin_chunk_store_set_private(w->head.chunks, is_private);
    node *d = &w->devices[0];
    d->windows = kin_windows_one(0, N_LAYER, 0);
    open_chunk_server(d, 0);
    start(d);
    expect_done(d); // no chunk of the layers is withheld
    raw *good = connect_raw(w);
    for (uint32_t i = 0; i < n; i++) {
        kin_chunk c = kin_manifest_chunk(&w->manifest, i);
        bool is_end = is_of_ends_alone(&model, c.offset, c.offset + c.bytes);
        assert_int_equal(kin_chunk_store_withholds(w->head.chunks, i), is_end);
        n_private += is_end;
        if (!is_end) {
            int n_data = good->n_data;
            send_get(good, w->manifest.hash, i, 0, 1);
            RUN_UNTIL(w, good->n_data == n_data + 1);
            continue;
        }
        raw *r = connect_raw(w);
        send_get(r, w->manifest.hash, i, 0, 1);
        expect_closed(r, "those stay on the head");
        assert_int_equal(r->n_data, 0);
        // A device that got the chunk from elsewhere does not give it away either.
        static uint8_t bytes[CHUNK];
        assert_int_equal(kin_store_read(kin_chunk_store_store(w->head.chunks), i, 0, bytes, c.bytes, &err), 0);
        assert_int_equal(kin_store_put(kin_chunk_store_store(d->chunks), i, bytes, c.bytes, &err), KIN_STORE_OK);
        r = connect_raw_to(w, d->port, &w->loop);
        send_get(r, w->manifest.hash, i, 0, 1);
        expect_closed(r, "those stay on the head");
        assert_int_equal(r->n_data, 0);
    }
    assert_in_range(n_private, 2, n / 2);
    kin_model_close(&model);
}

static void a_part_of_a_chunk_can_be_asked_for(void **state) {
    context *w = *state;
    raw *r = connect_raw(w);
    send_get(r, w->manifest.hash, 1, CHUNK - 10, 10);
    RUN_UNTIL(w, r->n_data == 1);
    assert_int_equal(kin_chunk_server_stats_now(w->head.server).bytes, 10);
    assert_int_equal(kin_chunk_server_stats_now(w->head.server).n_chunks, 1);
    assert_int_equal(kin_chunk_server_stats_now(w->head.server).n_links, 1);
}

static void without_a_store_everything_is_lacking(void **state) {
    context *w = *state;
    raw *r = connect_raw(w);
    kin_chunk_server_set_store(w->head.server, NULL);
    send_get(r, w->manifest.hash, 3, 0, 10);
    RUN_UNTIL(w, r->n_lack == 1);
    kin_chunk_server_set_store(w->head.server, w->head.chunks);
    send_get(r, w->manifest.hash, 3, 0, 10);
    RUN_UNTIL(w, r->n_data == 1);
    send_get(r, w->manifest.hash, 3, 0, 10);
    send_get(r, w->manifest.hash, 4, 0, 10);
    RUN_UNTIL(w, r->n_data == 3);
    assert_int_equal(r->n_lack, 1);
}

static void what_is_asked_for_when_the_store_goes_is_lacking(void **state) {
    context *w = *state;
    raw *r = connect_raw(w);
    for (int i = 0; i < 10; i++) send_get(r, w->manifest.hash, (uint32_t)i, 0, CHUNK);
    RUN_UNTIL(w, r->n_data > 0);
    kin_chunk_server_set_store(w->head.server, NULL);
    RUN_UNTIL(w, r->n_data + r->n_lack == 10);
}

static void links_take_turns(void **state) {
    context *w = *state;
    raw *a = connect_raw(w), *b = connect_raw(w);
    for (int i = 0; i < 16; i++) send_get(a, w->manifest.hash, (uint32_t)i, 0, CHUNK);
    RUN_UNTIL(w, a->n_data > 0);
    send_get(b, w->manifest.hash, 0, 0, CHUNK);
    RUN_UNTIL(w, b->n_data > 0);
    assert_true(a->n_data < 16);
    RUN_UNTIL(w, a->n_data == 16);
}

// The client's loop stands still, so nothing is read there.
static void a_slow_client_is_read_for_no_further_than_its_queue(void **state) {
    context *w = *state;
    uv_loop_t loop;
    uv_loop_init(&loop);
    raw *r = connect_raw_on(w, &loop);
    uint32_t n = w->manifest.n_chunks - 1;
    assert_in_range(n, 8, 15);
    for (uint32_t i = 0; i < n; i++) send_get(r, w->manifest.hash, i, 0, KIN_CHUNK_BYTES);
    uv_run(&loop, UV_RUN_NOWAIT);
    run_for(w, 700);
    uint64_t bytes = kin_chunk_server_stats_now(w->head.server).bytes;
    assert_in_range(bytes, 1, (uint64_t)(n - 2) * KIN_CHUNK_BYTES);
    RUN_UNTIL(w, (uv_run(&loop, UV_RUN_NOWAIT), r->n_data == (int)n * 16));
    assert_int_equal(kin_chunk_server_stats_now(w->head.server).bytes, (uint64_t)n * KIN_CHUNK_BYTES);
    assert_int_equal(kin_chunk_server_stats_now(w->head.server).n_chunks, n);
    kin_link_close(r->link, NULL);
    r->link = NULL;
    RUN_UNTIL(w, uv_run(&loop, UV_RUN_NOWAIT) == 0);
    assert_int_equal(uv_loop_close(&loop), 0);
}

static void so_many_links_and_no_more(void **state) {
    context *w = *state;
    kin_chunk_server_options o = kin_chunk_server_options_default();
    kin_err err;
    o.n_links = 2;
    kin_chunk_server_close(w->head.server);
    assert_int_equal(kin_chunk_server_open(&w->head.server, &w->loop, &o, &err), 0);
    kin_chunk_server_set_store(w->head.server, w->head.chunks);
    raw *a = connect_raw(w), *b = connect_raw(w);
    raw *c = connect_raw(w);
    expect_closed(c, "busy: ");
    send_get(a, w->manifest.hash, 0, 0, CHUNK);
    send_get(b, w->manifest.hash, 0, 0, CHUNK);
    RUN_UNTIL(w, a->n_data == 1 && b->n_data == 1);
}

static void a_share_can_be_closed_while_the_disk_is_read(void **state) {
    context *w = *state;
    for (int i = 0; i < 6; i++) {
        raw *r = connect_raw(w);
        for (int k = 0; k < 10; k++) send_get(r, w->manifest.hash, (uint32_t)k, 0, CHUNK);
        uint64_t out = kin_chunk_server_stats_now(w->head.server).bytes;
        RUN_UNTIL(w, kin_chunk_server_stats_now(w->head.server).bytes > out);
        uint16_t port = w->head.port;
        close_share(&w->head);
        expect_closed(r, "this device has stopped sharing models");
        open_chunk_server(&w->head, port);
    }
}

static void many_hashes_come_in_several_messages(void **state) {
    const uint64_t size = (uint64_t)40000 * CHUNK;
    const char *name = "model.gguf";
    static kin_proto_hashes m;
    kin_manifest from, to = {0};
    uint32_t first = 0, n_taken = 0;
    kin_err err;
    (void)state;
    assert_int_equal(kin_manifest_begin(&from, CHUNK, 1, &size, &name, &err), 0);
    for (uint32_t i = 0; i < from.n_chunks; i++) memcpy(from.hashes[i], &i, sizeof i);
    assert_int_equal(kin_manifest_finish(&from, NULL, &err), 0);
    for (int i = 0; i < 3; i++, first += m.n_hashes) {
        kin_manifest_transfer_give(&m, &from, first);
        assert_int_equal(kin_manifest_transfer_add(&to, &n_taken, &m, 1, &size, &err),
                         i < 2 ? KIN_MANIFEST_TRANSFER_MORE : KIN_MANIFEST_TRANSFER_WHOLE);
    }
    assert_int_equal(kin_manifest_finish(&to, from.hash, &err), 0);
    kin_manifest_transfer_give(&m, &from, 5);
    assert_int_equal(kin_manifest_transfer_add(&to, &n_taken, &m, 1, &size, &err), KIN_MANIFEST_TRANSFER_BAD);
    assert_string_equal(err.text, "its messages with the model's hashes are inconsistent");
    kin_manifest_fini(&to);
    assert_int_equal(kin_manifest_transfer_add(&to, &n_taken, &m, 2, &size, &err), KIN_MANIFEST_TRANSFER_BAD);
    assert_string_equal(err.text, "the model has 2 files, but the manifest lists 1");
    kin_manifest_fini(&from);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(only_the_peer_that_asks_for_the_impossible_loses_its_link),
        TEST(what_stays_on_the_head_is_never_sent),
        TEST(a_part_of_a_chunk_can_be_asked_for),
        TEST(without_a_store_everything_is_lacking),
        TEST(what_is_asked_for_when_the_store_goes_is_lacking),
        TEST(links_take_turns),
        cmocka_unit_test_setup_teardown(a_slow_client_is_read_for_no_further_than_its_queue, open_large_context, close_context),
        TEST(so_many_links_and_no_more),
        TEST(a_share_can_be_closed_while_the_disk_is_read),
        cmocka_unit_test(many_hashes_come_in_several_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
