// The timeline (observe/timeline.h): events of several clocks on one axis, and its SVG and trace files.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "observe/timeline.h"
#include "observe/timeline_file.h"
#include "tests/place.h"

enum { MS = 1000000 };

static kin_timeline *open_timeline(int n_tokens) {
    kin_timeline *t;
    assert_int_equal(kin_timeline_open(&t, n_tokens, NULL), 0);
    return t;
}
#define open_timeline(...) FROM_TEST(open_timeline(__VA_ARGS__))

static kin_proto_event event(kin_proto_event_kind kind, uint64_t begin_ms, uint64_t end_ms) {
    return (kin_proto_event){.kind = kind, .round = 1, .step = 7, .begin = begin_ms * MS, .end = end_ms * MS};
}

static void a_devices_clock_is_brought_to_the_heads(void **state) {
    (void)state;
    kin_timeline *t = open_timeline(2);
    kin_proto_event e = event(KIN_PROTO_EVENT_COMPUTE, 120, 130);
    kin_timeline_mark(t, 100 * MS);
    kin_timeline_add(t, kin_timeline_row(t, "anna"), &e, 1, 15 * MS);
    kin_timeline_add(t, kin_timeline_row(t, "ben"), &e, 1, -40 * MS);
    assert_int_equal(kin_timeline_n_bars(t), 2);
    assert_int_equal(kin_timeline_bar(t, 0).event.begin, 105 * MS);
    assert_int_equal(kin_timeline_bar(t, 1).event.end, 170 * MS);
    kin_timeline_add(t, 0, NULL, 0, 14 * MS); // a better estimate of the clock's offset
    assert_int_equal(kin_timeline_bar(t, 0).event.begin, 106 * MS);
    e.begin = e.end = 5; // a clock that started 5 ns ago
    kin_timeline_add(t, kin_timeline_row(t, "cleo"), &e, 1, -200 * (int64_t)MS);
    assert_int_equal(kin_timeline_bar(t, 2).event.begin, 200 * MS + 5);
    kin_timeline_close(t);
}

static void rows_keep_their_order_and_their_number_is_bounded(void **state) {
    (void)state;
    kin_timeline *t = open_timeline(1);
    char name[16];
    for (int i = 0; i < KIN_TIMELINE_ROWS; i++) {
        snprintf(name, sizeof name, "device %d", i);
        assert_int_equal(kin_timeline_row(t, name), i);
    }
    assert_int_equal(kin_timeline_row(t, "device 3"), 3);
    assert_int_equal(kin_timeline_row(t, "one more"), -1);
    kin_proto_event e = event(KIN_PROTO_EVENT_SEND, 1, 2);
    kin_timeline_mark(t, 0);
    kin_timeline_add(t, -1, &e, 1, 0);
    assert_int_equal(kin_timeline_n_bars(t), 0);
    kin_timeline_close(t);
}

static void what_lies_far_outside_of_the_marks_is_dropped(void **state) {
    (void)state;
    kin_timeline *t = open_timeline(2);
    int row = kin_timeline_row(t, "desk");
    const kin_proto_event prompt = event(KIN_PROTO_EVENT_COMPUTE, 800, 890), before = event(KIN_PROTO_EVENT_COMPUTE, 890, 910),
                          across = event(KIN_PROTO_EVENT_DISK, 990, 1010), later = event(KIN_PROTO_EVENT_COMPUTE, 1290, 1310);
    kin_timeline_add(t, row, &across, 1, 0); // dropped: there is no mark yet
    kin_timeline_mark(t, 1000 * MS);
    kin_timeline_add(t, row, &prompt, 1, 0);
    kin_timeline_add(t, row, &before, 1, 0);
    kin_timeline_add(t, row, &across, 1, 0);
    assert_int_equal(kin_timeline_n_bars(t), 2);
    kin_timeline_mark(t, 1100 * MS);
    assert_false(kin_timeline_is_whole(t));
    kin_timeline_mark(t, 1190 * MS);
    assert_true(kin_timeline_is_whole(t));
    kin_timeline_mark(t, 1400 * MS);
    assert_int_equal(kin_timeline_n_marks(t), 3);
    kin_timeline_add(t, row, &later, 1, 0);
    assert_int_equal(kin_timeline_n_bars(t), 2);
    kin_timeline_close(t);
}

static void events_beyond_the_bound_are_dropped(void **state) {
    (void)state;
    kin_timeline *t = open_timeline(1);
    kin_proto_event e = event(KIN_PROTO_EVENT_COMPUTE, 1, 2);
    kin_timeline_mark(t, 0);
    for (int i = 0; i < KIN_TIMELINE_BARS + 10; i++) kin_timeline_add(t, 0, &e, 1, 0);
    assert_int_equal(kin_timeline_n_bars(t), KIN_TIMELINE_BARS);
    kin_timeline_close(t);
}

static void a_recorder_keeps_what_it_can_and_only_while_it_is_on(void **state) {
    (void)state;
    kin_trace *e;
    kin_proto_event got[8];
    assert_int_equal(kin_trace_open(&e, NULL), 0);
    kin_trace_add(e, KIN_PROTO_EVENT_COMPUTE, 1, 0, 1, 2);
    assert_int_equal(kin_trace_pop(e, got, 8), 0);
    kin_trace_turn(e, true);
    for (uint64_t i = 0; i < KIN_TRACE_MAX + 5; i++) kin_trace_add(e, KIN_PROTO_EVENT_WAIT, i, 2, i, i + 1);
    assert_int_equal(kin_trace_pop(e, got, 8), 8);
    assert_true(got[7].step == 7 && got[7].round == 2 && got[7].kind == KIN_PROTO_EVENT_WAIT && got[7].end == 8);
    kin_trace_turn(e, false);
    kin_trace_turn(e, true);
    assert_int_equal(kin_trace_pop(e, got, 8), 0);
    kin_trace_add_disk(e, (kin_interval[]){{3, 4}, {5, 6}}, 2);
    assert_int_equal(kin_trace_pop(e, got, 1), 1);
    assert_true(got[0].kind == KIN_PROTO_EVENT_DISK && got[0].begin == 3);
    kin_trace_pop(e, got, 8);
    // From 10 to 20 with pauses; pauses outside are cut.
    kin_trace_add_compute(e, 9, 1, 10, 20, (kin_interval[]){{3, 12}, {12, 13}, {15, 18}, {19, 25}}, 4);
    static const struct {
        kin_proto_event_kind kind;
        uint64_t begin, end;
    } pieces[] = {{KIN_PROTO_EVENT_COMPUTE, 10, 12},
                  {KIN_PROTO_EVENT_WAIT, 12, 13},
                  {KIN_PROTO_EVENT_COMPUTE, 13, 15},
                  {KIN_PROTO_EVENT_WAIT, 15, 18},
                  {KIN_PROTO_EVENT_COMPUTE, 18, 20}};
    assert_int_equal(kin_trace_pop(e, got, 8), 5);
    for (int i = 0; i < 5; i++)
        assert_true(got[i].kind == pieces[i].kind && got[i].begin == pieces[i].begin && got[i].end == pieces[i].end);
    kin_trace_close(e);
    kin_trace_turn(NULL, true);
    kin_trace_add(NULL, KIN_PROTO_EVENT_SEND, 0, 0, 0, 0);
    assert_int_equal(kin_trace_pop(NULL, got, 8), 0);
}

// ---- SVG

static char *write_as(kin_timeline *t, const char *ending) {
    char path[64];
    static char text[1 << 20];
    kin_err err;
    snprintf(path, sizeof path, "/tmp/kin-test-timeline-XXXXXX%s", ending);
    int fd = mkstemps(path, (int)strlen(ending));
    assert_true(fd >= 0);
    if (kin_timeline_write(t, path, &err) != 0) fail_msg("%s", err.text);
    ssize_t n = read(fd, text, sizeof text - 1);
    assert_true(n > 0 && n < (ssize_t)sizeof text - 1);
    text[n] = '\0';
    close(fd);
    unlink(path);
    return text;
}

static char *draw(kin_timeline *t) {
    return write_as(t, "");
}
#define draw(...) FROM_TEST(draw(__VA_ARGS__))

static int count(const char *text, const char *what) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)); at += strlen(what)) n++;
    return n;
}

// Expects every tag to be closed in order.
static void expect_well_formed(const char *text) {
    const char *open[16];
    int depth = 0;
    for (const char *at = text; (at = strchr(at, '<')); at++) {
        const char *end = strchr(at, '>');
        assert_non_null(end);
        if (at[1] == '/') {
            assert_true(depth > 0);
            depth--;
            assert_int_equal(strncmp(open[depth], at + 2, (size_t)(end - at) - 2), 0);
        } else if (end[-1] != '/') {
            assert_true(depth < 16);
            open[depth++] = at + 1;
        }
    }
    assert_int_equal(depth, 0);
}
#define expect_well_formed(...) FROM_TEST(expect_well_formed(__VA_ARGS__))

static void the_picture_has_a_row_for_each_member_and_a_bar_for_each_event(void **state) {
    (void)state;
    kin_timeline *t = open_timeline(2);
    int anna = kin_timeline_row(t, "anna"), desk = kin_timeline_row(t, "<desk> & \"co\"");
    const kin_proto_event events[] = {event(KIN_PROTO_EVENT_COMPUTE, 100, 150), event(KIN_PROTO_EVENT_WAIT, 150, 199),
                                      event(KIN_PROTO_EVENT_DISK, 90, 160), event(KIN_PROTO_EVENT_SEND, 150, 151)};
    kin_timeline_mark(t, 100 * MS);
    kin_timeline_add(t, anna, events, 4, 0);
    kin_trace_add(kin_timeline_own(t), KIN_PROTO_EVENT_COMPUTE, 1, 0, 120 * MS, 140 * MS);
    kin_timeline_add_own(t, desk);
    kin_timeline_mark(t, 150 * MS);
    kin_timeline_mark(t, 200 * MS);
    const char *svg = draw(t);
    expect_well_formed(svg);
    assert_int_equal(count(svg, "class=\"device\""), 2);
    assert_int_equal(count(svg, " ms</title></rect>"), 5);
    assert_int_equal(count(svg, ">anna<"), 1);
    assert_int_equal(count(svg, "&lt;desk&gt; &amp; \"co\""), 1);
    assert_int_equal(count(svg, ">token "), 2);
    assert_int_equal(count(svg, "computes 50 %"), 1);
    assert_int_equal(count(svg, "reading from disk, 70.000 ms"), 1);
    // 100 ms are 950 units wide, and the disk's bar is cut at the first mark.
    assert_int_equal(count(svg, "class=\"disk\" x=\"130.00\" y=\"20\" width=\"570.00\""), 1);
    kin_timeline_close(t);
}

static atomic_bool is_drawn;

static void *add_late(void *timeline) {
    const kin_proto_event late = event(KIN_PROTO_EVENT_COMPUTE, 150, 160);
    enum { MOST = 3000 }; // a thread that waits long for its turn would find more than the buffer holds
    for (int i = 0; i < MOST && !atomic_load(&is_drawn); i++) {
        char name[16];
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
        snprintf(name, sizeof name, "late %d", i % 50);
        kin_timeline_add(timeline, kin_timeline_row(timeline, name), &late, 1, i);
    }
    return NULL;
}

static void late_events_do_not_move_a_picture_that_is_being_drawn(void **state) {
    (void)state;
    kin_timeline *t = open_timeline(2);
    pthread_t thread;
    const kin_proto_event events[] = {event(KIN_PROTO_EVENT_COMPUTE, 100, 150), event(KIN_PROTO_EVENT_COMPUTE, 160, 190)};
    kin_timeline_mark(t, 100 * MS);
    kin_timeline_mark(t, 150 * MS);
    kin_timeline_mark(t, 200 * MS);
    kin_timeline_add(t, kin_timeline_row(t, "anna"), events, 2, 0);
    atomic_store(&is_drawn, false);
    assert_int_equal(pthread_create(&thread, NULL, add_late, t), 0);
    char *first = strdup(draw(t));
    const char *second = draw(t);
    atomic_store(&is_drawn, true);
    pthread_join(thread, NULL);
    expect_well_formed(first);
    assert_string_equal(first, second);
    free(first);
    kin_timeline_close(t);
}

// ---- trace events

static json_t *trace_of(kin_timeline *t) {
    json_error_t where;
    json_t *root = json_loads(write_as(t, ".json"), JSON_REJECT_DUPLICATES, &where);
    if (!root) fail_msg("%s", where.text);
    return root;
}
#define trace_of(...) FROM_TEST(trace_of(__VA_ARGS__))

static const char *text_of(const json_t *event, const char *key) {
    const char *text = json_string_value(json_object_get(event, key));
    return text ? text : "";
}

// Returns the i-th event of a phase ("X", "M", "i"), or NULL.
static const json_t *event_of(const json_t *root, const char *phase, int i) {
    const json_t *events = json_object_get(root, "traceEvents"), *e;
    size_t k;
    json_array_foreach((json_t *)events, k, e) {
        if (strcmp(text_of(e, "ph"), phase) == 0 && i-- == 0) return e;
    }
    return NULL;
}

static void expect_event(const json_t *e, const char *name, int pid, int tid, double ts) {
    assert_non_null(e);
    assert_string_equal(text_of(e, "name"), name);
    assert_int_equal(json_integer_value(json_object_get(e, "pid")), pid);
    assert_int_equal(json_integer_value(json_object_get(e, "tid")), tid);
    assert_float_equal(json_number_value(json_object_get(e, "ts")), ts, 1e-6);
}
#define expect_event(...) FROM_TEST(expect_event(__VA_ARGS__))

static void a_file_named_json_has_a_trace_event_for_each_event_in_microseconds(void **state) {
    (void)state;
    kin_timeline *t = open_timeline(2);
    const kin_windows windows = {.n = 2, .at = {{0, 4, 0, 0}, {8, 12, 0, 0}}};
    int anna = kin_timeline_place(t, "\"anna\" of the attic", &windows), desk = kin_timeline_row(t, "desk");
    const kin_proto_event events[] = {event(KIN_PROTO_EVENT_COMPUTE, 100, 150), event(KIN_PROTO_EVENT_DISK, 90, 160)},
                          sent = event(KIN_PROTO_EVENT_SEND, 150, 151);
    kin_timeline_mark(t, 100 * MS);
    kin_timeline_add(t, anna, events, 2, 0);
    kin_timeline_add(t, desk, &sent, 1, 0);
    kin_timeline_mark(t, 150 * MS + 500);
    json_t *root = trace_of(t);
    expect_event(event_of(root, "M", 0), "process_name", 1, 0, 0);
    assert_string_equal(text_of(json_object_get(event_of(root, "M", 0), "args"), "name"), "\"anna\" of the attic");
    expect_event(event_of(root, "M", 1), "thread_name", 1, 1, 0);
    expect_event(event_of(root, "X", 0), "layers 0-3, 8-11, step 7", 1, 1, 10000); // the disk's event is 10 ms earlier
    assert_float_equal(json_number_value(json_object_get(event_of(root, "X", 0), "dur")), 50000, 1e-6);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(event_of(root, "X", 0), "args"), "round")), 2);
    expect_event(event_of(root, "X", 1), "disk", 1, 1 + KIN_PROTO_EVENT_DISK, 0);
    expect_event(event_of(root, "X", 2), "send, step 7", 2, 1 + KIN_PROTO_EVENT_SEND, 60000);
    assert_null(event_of(root, "X", 3));
    expect_event(event_of(root, "i", 0), "end of the prompt", 1, 1, 10000);
    expect_event(event_of(root, "i", 1), "token 1", 1, 1, 60000.5);
    json_decref(root);
    kin_timeline_close(t);
}

static void a_picture_of_nothing_is_an_error(void **state) {
    (void)state;
    kin_timeline *t = open_timeline(2);
    kin_err err = {""};
    kin_timeline_mark(t, 1);
    assert_int_equal(kin_timeline_write(t, "/tmp/never", &err), KIN_FAIL);
    assert_string_equal(err.text, "/tmp/never: no token was generated after the prompt");
    kin_timeline_mark(t, 1);
    assert_int_equal(kin_timeline_write(t, "/nowhere/at/all.svg", &err), KIN_FAIL);
    assert_string_equal(err.text, "cannot write /nowhere/at/all.svg");
    assert_int_equal(kin_timeline_write(t, "/dev/full", &err), KIN_FAIL);
    assert_string_equal(err.text, "cannot write /dev/full completely");
    kin_timeline_close(t);
}

static void without_a_timeline_nothing_happens(void **state) {
    (void)state;
    kin_timeline_mark(NULL, 1);
    kin_timeline_add_own(NULL, 0);
    kin_timeline_add(NULL, 0, NULL, 0, 0);
    assert_true(kin_timeline_is_whole(NULL));
    assert_null(kin_timeline_own(NULL));
    assert_int_equal(kin_timeline_row(NULL, "x"), -1);
    kin_timeline_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_devices_clock_is_brought_to_the_heads),
        cmocka_unit_test(rows_keep_their_order_and_their_number_is_bounded),
        cmocka_unit_test(what_lies_far_outside_of_the_marks_is_dropped),
        cmocka_unit_test(events_beyond_the_bound_are_dropped),
        cmocka_unit_test(a_recorder_keeps_what_it_can_and_only_while_it_is_on),
        cmocka_unit_test(the_picture_has_a_row_for_each_member_and_a_bar_for_each_event),
        cmocka_unit_test(late_events_do_not_move_a_picture_that_is_being_drawn),
        cmocka_unit_test(a_file_named_json_has_a_trace_event_for_each_event_in_microseconds),
        cmocka_unit_test(a_picture_of_nothing_is_an_error),
        cmocka_unit_test(without_a_timeline_nothing_happens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
