// The mailbox of a loop's thread: each call runs once on that thread, calls of one poster run in order, and a full mailbox
// refuses.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>

#include "net/mailbox.h"

enum { N_POSTERS = 3, N_CALLS = 20000, N_MAX = 64 };

typedef struct board {
    uv_loop_t loop;
    kin_mailbox *mailbox;
    pthread_t owner;
    int last[N_POSTERS]; // number of each poster's last call
    int n_calls, n_ended;
    bool is_wrong;
} board;

typedef struct call {
    board *b;
    int i_poster, number;
} call;

typedef struct poster {
    board *b;
    int i;
    pthread_t thread;
    call *calls; // [N_CALLS]
} poster;

static void take(void *arg) {
    call *c = arg;
    board *b = c->b;
    if (c->number != b->last[c->i_poster] + 1 || !pthread_equal(pthread_self(), b->owner)) b->is_wrong = true;
    b->last[c->i_poster] = c->number;
    b->n_calls++;
    if (c->number == N_CALLS && ++b->n_ended == N_POSTERS) kin_mailbox_close(b->mailbox);
}

static void *run_poster(void *arg) {
    poster *p = arg;
    for (int i = 0; i < N_CALLS; i++) {
        p->calls[i] = (call){p->b, p->i, i + 1};
        assert_true(kin_mailbox_call_when_room(p->b->mailbox, take, &p->calls[i]));
    }
    return NULL;
}

static void calls_of_many_threads_run_once_and_in_order(void **state) {
    (void)state;
    board b = {.owner = pthread_self()};
    poster posters[N_POSTERS];
    uv_loop_init(&b.loop);
    assert_int_equal(kin_mailbox_open(&b.mailbox, &b.loop, N_MAX, NULL), 0);
    for (int i = 0; i < N_POSTERS; i++) {
        posters[i] = (poster){.b = &b, .i = i, .calls = calloc(N_CALLS, sizeof(call))};
        assert_int_equal(pthread_create(&posters[i].thread, NULL, run_poster, &posters[i]), 0);
    }
    // The last call closes the mailbox after all other calls have been posted.
    uv_run(&b.loop, UV_RUN_DEFAULT);
    for (int i = 0; i < N_POSTERS; i++) {
        pthread_join(posters[i].thread, NULL);
        free(posters[i].calls);
    }
    assert_int_equal(b.n_calls, N_POSTERS * N_CALLS);
    assert_false(b.is_wrong);
    assert_int_equal(uv_loop_close(&b.loop), 0);
    kin_mailbox_free(b.mailbox);
}

static void count(void *arg) {
    ++*(int *)arg;
}

static void a_full_mailbox_says_so_and_has_room_again(void **state) {
    (void)state;
    uv_loop_t loop;
    kin_mailbox *mailbox;
    int n = 0;
    uv_loop_init(&loop);
    assert_int_equal(kin_mailbox_open(&mailbox, &loop, 2, NULL), 0);
    assert_true(kin_mailbox_call(mailbox, count, &n));
    assert_true(kin_mailbox_call(mailbox, count, &n));
    assert_false(kin_mailbox_call(mailbox, count, &n));
    assert_int_equal(n, 0);
    uv_run(&loop, UV_RUN_ONCE);
    assert_int_equal(n, 2);
    assert_true(kin_mailbox_call(mailbox, count, &n));
    kin_mailbox_close(mailbox);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    kin_mailbox_free(mailbox);
}

static void closing_runs_what_was_left(void **state) {
    (void)state;
    uv_loop_t loop;
    kin_mailbox *mailbox;
    int n = 0;
    uv_loop_init(&loop);
    assert_int_equal(kin_mailbox_open(&mailbox, &loop, 8, NULL), 0);
    for (int i = 0; i < 5; i++) kin_mailbox_call(mailbox, count, &n);
    kin_mailbox_close(mailbox);
    assert_int_equal(n, 5);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    kin_mailbox_free(mailbox);
}

typedef struct chain {
    kin_mailbox *mailbox;
    uv_timer_t timer;
    int n_calls;
    bool is_stopped;
} chain;

static void post_again(void *arg) {
    chain *c = arg;
    c->n_calls++;
    if (!c->is_stopped) assert_true(kin_mailbox_call(c->mailbox, post_again, c));
}

static void stop_chain(uv_timer_t *timer) {
    chain *c = timer->data;
    if (c->n_calls < 3) return;
    c->is_stopped = true;
    uv_close((uv_handle_t *)timer, NULL);
    kin_mailbox_close(c->mailbox);
}

static void calls_that_leave_calls_do_not_hold_up_the_loop(void **state) {
    (void)state;
    uv_loop_t loop;
    chain c = {0};
    uv_loop_init(&loop);
    uv_timer_init(&loop, &c.timer);
    c.timer.data = &c;
    assert_int_equal(kin_mailbox_open(&c.mailbox, &loop, 4, NULL), 0);
    kin_mailbox_call(c.mailbox, post_again, &c);
    uv_timer_start(&c.timer, stop_chain, 1, 1);
    uv_run(&loop, UV_RUN_DEFAULT); // returns only if the timer's callback runs too
    assert_true(c.n_calls >= 3);
    assert_int_equal(uv_loop_close(&loop), 0);
    kin_mailbox_free(c.mailbox);
}

static int n_filled; // used on the loop's thread

static void *fill(void *mailbox) {
    while (kin_mailbox_call_when_room(mailbox, count, &n_filled)) continue;
    return NULL;
}

// Some threads wait for room when the mailbox closes; another call comes after the loop has ended.
static void after_the_end_of_the_loop_calls_are_refused(void **state) {
    (void)state;
    uv_loop_t loop;
    kin_mailbox *mailbox;
    pthread_t threads[N_POSTERS];
    int n = 0;
    uv_loop_init(&loop);
    assert_int_equal(kin_mailbox_open(&mailbox, &loop, 2, NULL), 0);
    for (int i = 0; i < N_POSTERS; i++) assert_int_equal(pthread_create(&threads[i], NULL, fill, mailbox), 0);
    for (int i = 0; i < 100; i++) uv_run(&loop, UV_RUN_ONCE);
    kin_mailbox_close(mailbox);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    assert_false(kin_mailbox_call_when_room(mailbox, count, &n));
    assert_false(kin_mailbox_call(mailbox, count, &n));
    for (int i = 0; i < N_POSTERS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(n, 0);
    kin_mailbox_free(mailbox);
    kin_mailbox_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_of_many_threads_run_once_and_in_order),
        cmocka_unit_test(a_full_mailbox_says_so_and_has_room_again),
        cmocka_unit_test(closing_runs_what_was_left),
        cmocka_unit_test(calls_that_leave_calls_do_not_hold_up_the_loop),
        cmocka_unit_test(after_the_end_of_the_loop_calls_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
