// serve/http/websocket.h: messages arrive whole however their bytes are cut, and a client's protocol violation ends the
// connection.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "serve/http/websocket.h"

enum { MAX = 300, ROOM = 4096 };

typedef struct context {
    kin_websocket *ws;
    uint8_t out[ROOM], in[ROOM];
    size_t n_out, n_in;
    int n_messages;
    bool was_text;
} context;

static void on_send(void *user, const uint8_t *bytes, size_t n) {
    context *w = user;
    assert_true(n <= ROOM - w->n_out);
    memcpy(w->out + w->n_out, bytes, n);
    w->n_out += n;
}

static void on_message(void *user, bool is_text, const uint8_t *bytes, size_t n) {
    context *w = user;
    assert_true(n <= ROOM);
    if (n > 0) memcpy(w->in, bytes, n);
    w->n_in = n;
    w->n_messages++;
    w->was_text = is_text;
}

static int open_context(void **state) {
    static const kin_websocket_callbacks callbacks = {.send = on_send, .message = on_message};
    context *w = *state = calloc(1, sizeof *w);
    kin_err err;
    return kin_websocket_open(&w->ws, MAX, &callbacks, w, &err);
}

static int close_context(void **state) {
    context *w = *state;
    kin_websocket_close(w->ws);
    free(w);
    return 0;
}

enum { CONTINUES, TEXT, BINARY, CLOSE = 8, PING, PONG, FIN = 0x80, MASKED = 0x80 };

// Writes a client's frame. Returns its length.
static size_t put_frame(uint8_t *to, uint8_t first, bool is_masked, const void *payload, size_t n) {
    static const uint8_t mask[4] = {1, 2, 3, 250};
    const uint8_t *bytes = payload;
    size_t at = 0;
    to[at++] = first;
    to[at++] = (uint8_t)((is_masked ? MASKED : 0) | (n < 126 ? n : 126));
    if (n >= 126) {
        to[at++] = (uint8_t)(n >> 8);
        to[at++] = (uint8_t)n;
    }
    if (is_masked) memcpy(to + at, mask, sizeof mask);
    if (is_masked) at += sizeof mask;
    for (size_t i = 0; i < n; i++) to[at++] = is_masked ? bytes[i] ^ mask[i % 4] : bytes[i];
    return at;
}

static void the_answer_to_a_key_is_that_of_the_rfc(void **state) {
    (void)state;
    char accept[KIN_WEBSOCKET_ACCEPT];
    assert_true(kin_websocket_accept(accept, (kin_str){"dGhlIHNhbXBsZSBub25jZQ==", 24}));
    assert_string_equal(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    assert_false(kin_websocket_accept(accept, (kin_str){"dGhlIHNhbXBsZSBub25jZQ=", 23}));
    assert_false(kin_websocket_accept(accept, (kin_str){NULL, 0}));
}

static void messages_come_whole_however_their_bytes_are_cut(void **state) {
    context *w = *state;
    uint8_t bytes[ROOM], payload[200];
    for (size_t i = 0; i < sizeof payload; i++) payload[i] = (uint8_t)i;
    size_t n = put_frame(bytes, TEXT, true, "hel", 3);
    n += put_frame(bytes + n, FIN | CONTINUES, true, "lo", 2);
    n += put_frame(bytes + n, FIN | BINARY, true, payload, sizeof payload);
    for (size_t i = 0; i < n; i++) {
        assert_true(kin_websocket_feed(w->ws, bytes + i, 1));
        if (w->n_messages != 1 || !w->was_text) continue;
        assert_int_equal(w->n_in, 5);
        assert_memory_equal(w->in, "hello", 5);
    }
    assert_int_equal(w->n_messages, 2);
    assert_false(w->was_text);
    assert_int_equal(w->n_in, sizeof payload);
    assert_memory_equal(w->in, payload, sizeof payload);
}

static void what_is_sent_is_a_frame_without_a_mask(void **state) {
    context *w = *state;
    assert_true(kin_websocket_send(w->ws, true, "hi", 2));
    assert_int_equal(w->n_out, 4);
    assert_memory_equal(w->out, "\x81\x02hi", 4);
}

static void a_ping_is_answered(void **state) {
    context *w = *state;
    uint8_t bytes[ROOM];
    assert_true(kin_websocket_feed(w->ws, bytes, put_frame(bytes, FIN | PING, true, "now", 3)));
    assert_int_equal(w->n_messages, 0);
    assert_int_equal(w->n_out, 5);
    assert_memory_equal(w->out, "\x8a\x03now", 5);
}

static void a_message_that_is_too_long_ends_it_before_it_has_come(void **state) {
    context *w = *state;
    uint8_t bytes[ROOM] = {0}, payload[MAX + 1] = {0};
    put_frame(bytes, FIN | BINARY, true, payload, sizeof payload);
    assert_false(kin_websocket_feed(w->ws, bytes, 20));
    assert_int_equal(w->n_messages, 0);
    assert_int_equal(w->out[0], FIN | CLOSE);
    assert_int_equal(w->out[2] << 8 | w->out[3], 1009);
}

static void pieces_that_are_too_long_together_end_it(void **state) {
    context *w = *state;
    uint8_t bytes[ROOM], payload[MAX] = {0};
    assert_true(kin_websocket_feed(w->ws, bytes, put_frame(bytes, BINARY, true, payload, MAX)));
    assert_false(kin_websocket_feed(w->ws, bytes, put_frame(bytes, FIN | CONTINUES, true, payload, 1)));
    assert_int_equal(w->n_messages, 0);
}

// Each fragment takes memory, even if the total length is within the limit.
static void endless_pieces_end_it(void **state) {
    context *w = *state;
    uint8_t bytes[ROOM];
    bool goes_on = kin_websocket_feed(w->ws, bytes, put_frame(bytes, BINARY, true, "", 0));
    int n = 1;
    for (; goes_on && n < 10000; n++) goes_on = kin_websocket_feed(w->ws, bytes, put_frame(bytes, CONTINUES, true, "", 0));
    assert_in_range(n, 4000, 5000);
    assert_int_equal(w->n_messages, 0);
}

static void a_close_is_answered_and_ends_it(void **state) {
    context *w = *state;
    uint8_t bytes[ROOM];
    assert_false(kin_websocket_feed(w->ws, bytes, put_frame(bytes, FIN | CLOSE, true, "\x03\xe8", 2)));
    assert_int_equal(w->out[0], FIN | CLOSE);
}

// A reason has at most 123 bytes and must be UTF-8, so no character may be cut.
static void a_long_reason_ends_behind_a_character(void **state) {
    context *w = *state;
    char reason[201] = "";
    for (int i = 0; i < 100; i++) strcat(reason, "ä");
    kin_websocket_end(w->ws, 1000, reason);
    assert_int_equal(w->out[0], FIN | CLOSE);
    assert_int_equal(w->out[1], 2 + 120 + 3); // the status, 60 characters, "..."
    assert_memory_equal(w->out + w->n_out - 5, "ä...", 5);
}

static void what_a_client_must_not_send_ends_it(void **state) {
    (void)state;
    static const struct {
        uint8_t first;
        bool is_masked;
        const char *payload;
        size_t n;
    } cases[] = {{FIN | TEXT, true, "\xff\xfe", 2},  // not UTF-8
                 {FIN | TEXT, false, "hi", 2},       // no mask
                 {FIN | CONTINUES, true, "hi", 2},   // continues no message
                 {FIN | 0x40 | TEXT, true, "hi", 2}, // an extension that was not negotiated
                 {FIN | 3, true, "hi", 2},           // an unknown opcode
                 {PING, true, "hi", 2}};             // a fragmented control frame
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t bytes[ROOM];
        void *one;
        assert_int_equal(open_context(&one), 0);
        context *w = one;
        size_t n = put_frame(bytes, cases[i].first, cases[i].is_masked, cases[i].payload, cases[i].n);
        if (kin_websocket_feed(w->ws, bytes, n)) fail_msg("case %zu", i);
        assert_int_equal(w->n_messages, 0);
        close_context(&one);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_answer_to_a_key_is_that_of_the_rfc),
        cmocka_unit_test_setup_teardown(messages_come_whole_however_their_bytes_are_cut, open_context, close_context),
        cmocka_unit_test_setup_teardown(what_is_sent_is_a_frame_without_a_mask, open_context, close_context),
        cmocka_unit_test_setup_teardown(a_ping_is_answered, open_context, close_context),
        cmocka_unit_test_setup_teardown(a_message_that_is_too_long_ends_it_before_it_has_come, open_context, close_context),
        cmocka_unit_test_setup_teardown(pieces_that_are_too_long_together_end_it, open_context, close_context),
        cmocka_unit_test_setup_teardown(endless_pieces_end_it, open_context, close_context),
        cmocka_unit_test_setup_teardown(a_close_is_answered_and_ends_it, open_context, close_context),
        cmocka_unit_test_setup_teardown(a_long_reason_ends_behind_a_character, open_context, close_context),
        cmocka_unit_test(what_a_client_must_not_send_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
