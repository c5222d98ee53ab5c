// The queue of reads: its order, and what is taken out of it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "engine/stream.h"
#include "engine/stream_queue.h"
#include "tests/place.h"

static kin_stream_queue *new_queue(void) {
    kin_stream_queue *q = malloc(sizeof *q);
    assert_non_null(q);
    kin_stream_queue_init(q);
    return q;
}

static void push(kin_stream_queue *q, kin_stream_ticket *ticket, uint64_t offset) {
    const kin_stream_chunk c = {.ticket = ticket, .offset = offset};
    kin_stream_queue_push_last(q, &c);
}

// The offsets of all chunks are these, in this order.
static void expect_offsets(kin_stream_queue *q, size_t n, const uint64_t *offsets) {
    assert_int_equal(kin_stream_queue_n(q), n);
    for (size_t i = 0; i < n; i++) assert_int_equal(kin_stream_queue_at(q, i)->offset, offsets[i]);
}
#define expect_offsets(q, n, ...) FROM_TEST(expect_offsets(q, n, (const uint64_t[]){__VA_ARGS__}))

static void chunks_leave_in_order_but_for_those_pushed_first(void **state) {
    kin_stream_queue *q = new_queue();
    const kin_stream_chunk urgent = {.offset = 9};
    (void)state;
    push(q, NULL, 1), push(q, NULL, 2);
    kin_stream_queue_push_first(q, &urgent);
    expect_offsets(q, 3, 9, 1, 2);
    assert_int_equal(kin_stream_queue_pop(q).offset, 9);
    assert_int_equal(kin_stream_queue_n_free(q), KIN_STREAM_QUEUE - 2);
    free(q);
}

static void only_a_tickets_chunks_are_removed(void **state) {
    kin_stream_queue *q = new_queue();
    kin_stream_ticket a, b;
    (void)state;
    push(q, &a, 1), push(q, &b, 2), push(q, &a, 3), push(q, &b, 4), push(q, &a, 5);
    assert_int_equal(kin_stream_queue_remove(q, &a, NULL), 3);
    expect_offsets(q, 2, 2, 4);
    assert_int_equal(kin_stream_queue_remove(q, &a, NULL), 0);
    expect_offsets(q, 2, 2, 4);
    free(q);
}

static void chunks_that_move_come_first_and_keep_their_order(void **state) {
    kin_stream_queue *from = new_queue(), *to = new_queue();
    kin_stream_ticket a, b;
    (void)state;
    push(from, &b, 1), push(from, &a, 2), push(from, &a, 3), push(to, &b, 4);
    assert_int_equal(kin_stream_queue_remove(from, &a, to), 2);
    expect_offsets(from, 1, 1);
    expect_offsets(to, 3, 2, 3, 4);
    free(from), free(to);
}

static void what_has_no_room_stays(void **state) {
    kin_stream_queue *from = new_queue(), *to = new_queue();
    kin_stream_ticket a;
    (void)state;
    for (int i = 0; i < KIN_STREAM_QUEUE - 1; i++) push(to, NULL, 0);
    push(from, &a, 1), push(from, &a, 2);
    assert_int_equal(kin_stream_queue_remove(from, &a, to), 1);
    expect_offsets(from, 1, 1);
    assert_int_equal(kin_stream_queue_at(to, 0)->offset, 2);
    free(from), free(to);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_leave_in_order_but_for_those_pushed_first),
        cmocka_unit_test(only_a_tickets_chunks_are_removed),
        cmocka_unit_test(chunks_that_move_come_first_and_keep_their_order),
        cmocka_unit_test(what_has_no_room_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
