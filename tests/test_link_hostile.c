// Links and hostile peers, with or without the key: one link ends with one clear sentence, and the others continue.
#include "tests/link_context.h"

#ifdef __linux__
#include "tests/narrow_path.h"
#include "tests/place.h"
#endif

// ---- strangers

static void another_key_is_told_to_both_sides(void **state) {
    context *w = *state;
    end client, friend;
    end *server = connect_pair(w, &friend);
    kin_link_options o = w->o.link;
    o.tls = w->other_tls;
    connect_end(w, &client, "127.0.0.1", &o);
    RUN_UNTIL(w, !client.link && n_lines("the other side has another key") > 0);
    run_for(w, 20);
    assert_string_equal(client.reason, "the other side has another key");
    assert_int_equal(n_lines("the other side has another key"), 1); // the connecting side is told, as above
    assert_int_equal(w->n_ends, 1);
    expect_frame(w, &friend, server, "unharmed");
    close_end(w, &friend);
}

static void garbage_before_the_handshake_closes_that_connection_only(void **state) {
    static const char *const garbage[] = {"GET / HTTP/1.1\r\n\r\n", "12345", "KIN1\1\1\0\0\0\0\0\0\0\0\0\0",
                                          "\x16\x03\x01\xff\xff"};
    context *w = *state;
    end friend;
    end *server = connect_pair(w, &friend);
    for (int i = 0; i < 4; i++) {
        stranger s = connect_stranger(w);
        say(&s, garbage[i], i == 2 ? 16 : strlen(garbage[i]));
        while (!s.has_end) {
            turn(w);
            hear(&s);
        }
        assert_in_range(s.n_read, 0, 7); // an alert at most
        leave(&s);
        assert_int_equal(n_lines("127.0.0.1"), i + 1);
        expect_frame(w, &friend, server, "unharmed");
    }
    close_end(w, &friend);
}

static void nothing_is_said_before_the_handshake(void **state) {
    context *w = *state;
    kin_time begun = kin_clock_now();
    stranger s = connect_stranger(w);
    while (!s.has_end) {
        turn(w);
        hear(&s);
    }
    assert_int_equal(s.n_read, 0);
    assert_true(kin_clock_ms(begun, kin_clock_now()) >= HASTY_MS);
    RUN_UNTIL(w, n_lines("no handshake within 400 ms") == 1);
    leave(&s);
}

static void a_handshake_byte_by_byte_ends_at_the_limit(void **state) {
    context *w = *state;
    kin_err err;
    kin_time begun = kin_clock_now();
    stranger s = connect_stranger(w);
    assert_int_equal(kin_tls_open(&s.tls, w->tls, true, &err), 0);
    size_t n, at = 0;
    const uint8_t *hello = kin_tls_output(s.tls, &n);
    while (!s.has_end) {
        if (at < n - 1) say(&s, hello + at++, 1);
        run_for(w, 10);
        hear(&s);
    }
    assert_true(kin_clock_ms(begun, kin_clock_now()) >= HASTY_MS);
    assert_true(at < n - 1); // not much later than the last byte
    assert_int_equal(w->n_ends, 0);
    leave(&s);
}

static void more_handshakes_than_allowed_drop_the_oldest(void **state) {
    context *w = *state;
    stranger s[9];
    for (int i = 0; i < 9; i++) {
        s[i] = connect_stranger(w);
        run_for(w, 10);
    }
    RUN_UNTIL(w, (hear(&s[0]), s[0].has_end));
    for (int i = 1; i < 9; i++) {
        hear(&s[i]);
        assert_false(s[i].has_end);
    }
    end friend;
    end *server = connect_pair(w, &friend); // in spite of all of them
    expect_frame(w, &friend, server, "hello");
    for (int i = 0; i < 9; i++) leave(&s[i]);
    run_for(w, 50);
    close_end(w, &friend);
}

static void strangers_cannot_fill_the_log(void **state) {
    context *w = *state;
    for (int i = 0; i < 40; i++) {
        stranger s = connect_stranger(w);
        say(&s, "nonsense", 8);
        while (!s.has_end) {
            turn(w);
            hear(&s);
        }
        leave(&s);
    }
    assert_in_range(n_lines("\n"), 1, 9);
}

// ---- hostile peers with the key

// Sends bytes after the handshake; the link must end with a reason that contains `words`.
static void expect_refused(context *w, const void *bytes, size_t n, const char *words) {
    end friend, *other;
    end *server = connect_pair(w, &friend);
    stranger s = connect_insider(w, &other);
    send_encrypted(&s, bytes, n);
    RUN_UNTIL(w, !other->link);
    assert_non_null(strstr(other->reason, words));
    RUN_UNTIL(w, (hear(&s), s.has_end));
    leave(&s);
    expect_frame(w, &friend, server, "unharmed");
    close_end(w, &friend);
}
#define expect_refused(...) FROM_TEST(expect_refused(__VA_ARGS__))

static void garbage_after_the_handshake_closes_that_link_only(void **state) {
    expect_refused(*state, "nonsense that is no frame", 25, "does not speak kin's protocol");
    expect_refused(*state, "x", 1, "does not speak kin's protocol");
}

static void another_version_is_named(void **state) {
    uint8_t header[KIN_FRAME_HEADER];
    char words[32];
    kin_frame_encode(header, &(kin_frame){KIN_FRAME_OPEN, 0, 0});
    header[4] = KIN_FRAME_VERSION + 1;
    snprintf(words, sizeof words, "version %d", KIN_FRAME_VERSION + 1);
    expect_refused(*state, header, sizeof header, words);
}

static void a_frame_longer_than_allowed_is_refused_at_its_header(void **state) {
    uint8_t header[KIN_FRAME_HEADER];
    kin_frame frame = {KIN_FRAME_OPEN, 0, KIN_LINK_FRAME_MAX_FIRST + 1};
    kin_frame_encode(header, &frame);
    expect_refused(*state, header, sizeof header, "OPEN: payload of 4097 bytes exceeds 4096");
    kin_put_u32(header + 12, 0xffffffff);
    expect_refused(*state, header, sizeof header, "exceeds");
    frame = (kin_frame){KIN_FRAME_BYE, 0, 60000};
    kin_frame_encode(header, &frame);
    expect_refused(*state, header, sizeof header, "BYE: payload of 60000 bytes exceeds 1002");
}

static void malformed_frames_of_the_links_own_are_refused(void **state) {
    uint8_t bytes[64] = {0};
    static const kin_frame frames[] = {{KIN_FRAME_PING, 0, 7}, {KIN_FRAME_PONG, 0, 17}, {KIN_FRAME_BYE, 0, 1}};
    static const char *const words[] = {"PING", "PONG", "BYE"};
    for (int i = 0; i < 3; i++) {
        kin_frame_encode(bytes, &frames[i]);
        expect_refused(*state, bytes, KIN_FRAME_HEADER + frames[i].length, words[i]);
    }
}

static void tampered_bytes_close_the_link(void **state) {
    context *w = *state;
    end *other;
    kin_err err;
    stranger s = connect_insider(w, &other);
    assert_int_equal(kin_tls_write(s.tls, "KIN1", 4, &err), 0);
    size_t n;
    uint8_t *bytes = kin_tls_pop_output(s.tls, &n);
    bytes[n - 3] ^= 1;
    say(&s, bytes, n);
    free(bytes);
    RUN_UNTIL(w, !other->link);
    assert_non_null(strstr(other->reason, "damaged"));
    leave(&s);
}

static void a_silent_peer_is_lost_after_silence_ms(void **state) {
    context *w = *state;
    end *other;
    kin_time begun = kin_clock_now();
    stranger s = connect_insider(w, &other);
    RUN_UNTIL(w, !other->link);
    assert_true(kin_clock_ms(begun, kin_clock_now()) >= SILENCE_MS);
    assert_non_null(strstr(other->reason, "no answer for 0.4 s"));
    leave(&s);
}

static void a_peer_that_talks_but_does_not_read_is_closed(void **state) {
    context *w = *state;
    end *other;
    stranger s = connect_insider(w, &other);
    uint8_t *bytes = calloc(1, 15 << 20);
    uint8_t ping[KIN_FRAME_HEADER + 8] = {0};
    kin_frame frame = {KIN_FRAME_PING, 0, 8};
    kin_frame_encode(ping, &frame);
    assert_int_equal(send_bytes(other, KIN_FRAME_STEP, bytes, 15 << 20), KIN_LINK_QUEUED);
    kin_time begun = kin_clock_now();
    while (other->link && kin_clock_ms(begun, kin_clock_now()) < TIMEOUT_MS) {
        send_encrypted(&s, ping, sizeof ping);
        run_for(w, 20);
    }
    assert_null(other->link);
    assert_non_null(strstr(other->reason, "has not read"));
    free(bytes);
    leave(&s);
}

// As over a slow link: the OS has taken megabytes, and takes no more until a third of them is acknowledged.
static void a_peer_that_reads_slowly_is_waited_for(void **state) {
    context *w = *state;
    end *other;
    stranger s = connect_insider(w, &other);
    uint8_t *bytes = calloc(1, 15 << 20);
    uint8_t ping[KIN_FRAME_HEADER + 8] = {0};
    kin_frame frame = {KIN_FRAME_PING, 0, 8};
    kin_frame_encode(ping, &frame);
    int small = 32 << 10;
    assert_int_equal(setsockopt(s.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
    assert_int_equal(send_bytes(other, KIN_FRAME_STEP, bytes, 15 << 20), KIN_LINK_QUEUED);
    kin_time begun = kin_clock_now();
    while (other->link && kin_clock_ms(begun, kin_clock_now()) < 8 * SILENCE_MS) {
        uint8_t some[16 << 10];
        (void)recv(s.fd, some, sizeof some, MSG_DONTWAIT);
        send_encrypted(&s, ping, sizeof ping);
        run_for(w, 20);
    }
    assert_non_null(other->link);
    free(bytes);
    leave(&s);
    RUN_UNTIL(w, !other->link);
}

#ifdef __linux__
static void frames_that_do_not_arrive_though_small_ones_do_are_said_to_be_the_mtus(void **state) {
    context *w = *state;
    static uint8_t bytes[16 << 10];
    end client;
    narrow_path(w->port, 1000, true, false);
    end *other = connect_pair(w, &client);
    expect_frame(w, &client, other, "small");
    assert_int_equal(send_bytes(&client, KIN_FRAME_STEP, bytes, sizeof bytes), KIN_LINK_SENT);
    RUN_UNTIL(w, !client.link);
    assert_string_equal(client.reason, KIN_LINK_MTU);
    assert_int_equal(other->n_frames, 1);
    free(client.bytes);
}

// A pulled cable is a different case.
static void a_peer_that_is_not_heard_either_says_nothing_of_the_mtu(void **state) {
    context *w = *state;
    static uint8_t bytes[16 << 10];
    end client;
    end *other = connect_pair(w, &client);
    expect_frame(w, &client, other, "small");
    narrow_path(w->port, 0, true, true);
    assert_int_equal(send_bytes(&client, KIN_FRAME_STEP, bytes, sizeof bytes), KIN_LINK_SENT);
    RUN_UNTIL(w, !client.link);
    assert_non_null(strstr(client.reason, "no answer"));
    free(client.bytes);
}
#endif

static void a_connection_cut_without_goodbye_is_said_to_be_so(void **state) {
    context *w = *state;
    end *other;
    stranger s = connect_insider(w, &other);
    run_for(w, 20);
    hear(&s); // unread bytes would cause a reset
    shutdown(s.fd, SHUT_WR);
    RUN_UNTIL(w, !other->link);
    assert_non_null(strstr(other->reason, "closed unexpectedly"));
    leave(&s);
}

static void sending_to_a_gone_peer_ends_the_link_and_not_the_process(void **state) {
    context *w = *state;
    end *other;
    stranger s = connect_insider(w, &other);
    run_for(w, 20);
    hear(&s);
    leave(&s);
    for (int i = 0; i < 5; i++) send_bytes(other, KIN_FRAME_STATUS, "anybody?", 8);
    assert_int_equal(send_bytes(other, KIN_FRAME_STATUS, "", 0), KIN_LINK_SHUT);
    assert_non_null(other->link); // it is reported from the loop
    RUN_UNTIL(w, !other->link);
    assert_non_null(strstr(other->reason, "the connection broke"));
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_context, close_context)
    const struct CMUnitTest tests[] = {
        TEST(another_key_is_told_to_both_sides),
        TEST(garbage_before_the_handshake_closes_that_connection_only),
        cmocka_unit_test_setup_teardown(nothing_is_said_before_the_handshake, open_hasty_context, close_context),
        cmocka_unit_test_setup_teardown(a_handshake_byte_by_byte_ends_at_the_limit, open_hasty_context, close_context),
        TEST(more_handshakes_than_allowed_drop_the_oldest),
        TEST(strangers_cannot_fill_the_log),
        TEST(garbage_after_the_handshake_closes_that_link_only),
        TEST(another_version_is_named),
        TEST(a_frame_longer_than_allowed_is_refused_at_its_header),
        TEST(malformed_frames_of_the_links_own_are_refused),
        TEST(tampered_bytes_close_the_link),
        TEST(a_silent_peer_is_lost_after_silence_ms),
        TEST(a_peer_that_talks_but_does_not_read_is_closed),
        TEST(a_peer_that_reads_slowly_is_waited_for),
#ifdef __linux__
        TEST(frames_that_do_not_arrive_though_small_ones_do_are_said_to_be_the_mtus),
        TEST(a_peer_that_is_not_heard_either_says_nothing_of_the_mtu),
#endif
        TEST(a_connection_cut_without_goodbye_is_said_to_be_so),
        TEST(sending_to_a_gone_peer_ends_the_link_and_not_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
