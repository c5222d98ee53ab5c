// Requests from one thread to another, matched by generation (sys/completion.h).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>

#include "sys/completion.h"

typedef struct doer {
    kin_completion *c;
    uint32_t generation;
    bool result;
} doer;

static void *finish(void *arg) {
    doer *d = arg;
    kin_completion_done(d->c, d->generation, d->result);
    return NULL;
}

static void a_wait_ends_with_its_own_result(void **state) {
    (void)state;
    kin_completion c;
    kin_completion_init(&c);
    for (int i = 0; i < 1000; i++) {
        uint32_t generation = kin_completion_ask(&c);
        assert_int_equal(kin_completion_asked(&c), generation);
        doer d = {&c, generation, i % 3 == 0};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, finish, &d), 0);
        assert_int_equal(kin_completion_wait(&c, generation), i % 3 == 0);
        pthread_join(thread, NULL);
    }
    kin_completion_fini(&c);
}

static void an_earlier_answer_ends_no_later_wait(void **state) {
    (void)state;
    kin_completion c;
    kin_completion_init(&c);
    uint32_t first = kin_completion_ask(&c), second = kin_completion_ask(&c);
    kin_completion_done(&c, first, false);
    assert_false(kin_completion_wait(&c, first));
    doer d = {&c, second, true};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, finish, &d), 0);
    assert_true(kin_completion_wait(&c, second)); // would be false if the first request's answer counted
    pthread_join(thread, NULL);
    kin_completion_done(&c, first, false); // too late: changes nothing
    assert_true(kin_completion_wait(&c, second));
    kin_completion_fini(&c);
}

static void generations_go_on_after_the_largest(void **state) {
    (void)state;
    kin_completion c;
    kin_completion_init(&c);
    c.asked = c.done = UINT32_MAX;
    uint32_t generation = kin_completion_ask(&c);
    assert_int_equal(generation, 0);
    kin_completion_done(&c, generation, true);
    assert_true(kin_completion_wait(&c, generation));
    kin_completion_fini(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wait_ends_with_its_own_result),
        cmocka_unit_test(an_earlier_answer_ends_no_later_wait),
        cmocka_unit_test(generations_go_on_after_the_largest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
