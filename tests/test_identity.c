// The identity of a process (cluster/identity.h): a process holds the lock on its id file as long as it lives.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "cluster/identity.h"
#include "sys/process.h"
#include "tests/place.h"

static char dir[] = "/tmp/kin-test-identity-XXXXXX", key_file[64];

static int make_folder(void **state) {
    (void)state;
    if (!mkdtemp(dir)) return -1;
    snprintf(key_file, sizeof key_file, "%s/key", dir);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", dir);
    return system(command);
}

static kin_proto_id open_identity(void) {
    kin_identity self;
    kin_identity_options o = {.name = "anna", .key_file = key_file};
    kin_err err;
    if (kin_identity_open(&self, &o, &err) != 0) fail_msg("%s", err.text);
    return self.id;
}

// ---- another process that holds the identity until `release`. Its struct must be static: the forked process's main thread may
// end, which frees its stack

typedef struct other {
    pid_t pid;
    int told[2], release[2];
    kin_proto_id id;
} other;

static void *live_until_released(void *user) {
    other *o = user;
    char byte;
    _exit(read(o->release[0], &byte, 1) != 1);
}

// Starts the process. ends: its main thread ends and another thread keeps its locks, as if its memory were released slowly.
static void start(other *o, bool ends) {
    assert_int_equal(pipe(o->told) | pipe(o->release), 0);
    fflush(stdout);
    o->pid = fork();
    assert_true(o->pid >= 0);
    if (o->pid == 0) {
        close(o->release[1]); // so that the read ends if the parent ends
        kin_identity self;
        kin_identity_options options = {.name = "anna", .key_file = key_file};
        kin_err err;
        pthread_t thread;
        if (kin_identity_open(&self, &options, &err) != 0 || pthread_create(&thread, NULL, live_until_released, o) != 0) _exit(1);
        if (write(o->told[1], self.id.bytes, sizeof self.id.bytes) != sizeof self.id.bytes) _exit(1);
        if (ends) pthread_exit(NULL);
        pause();
    }
    assert_int_equal(read(o->told[0], o->id.bytes, sizeof o->id.bytes), sizeof o->id.bytes);
    while (ends && !kin_process_is_ending(o->pid)) sched_yield();
}
#define start(...) FROM_TEST(start(__VA_ARGS__))

static void release(other *o) {
    assert_int_equal(write(o->release[1], "", 1), 1);
}
#define release(...) FROM_TEST(release(__VA_ARGS__))

static void finish(other *o) {
    int status;
    assert_int_equal(waitpid(o->pid, &status, 0), o->pid);
    assert_int_equal(status, 0);
    for (int i = 0; i < 2; i++) close(o->told[i]), close(o->release[i]);
}
#define finish(...) FROM_TEST(finish(__VA_ARGS__))

// ---- the log

static int n_said;
static other *to_release; // the process to release at the next log line, or NULL

static void listen_to(void *user, kin_log_level level, const char *line) {
    (void)user, (void)level;
    n_said += strstr(line, "to end, which holds the identity") != NULL;
    if (to_release) release(to_release);
    to_release = NULL;
}

static void expect_same_id(const kin_proto_id *a, const kin_proto_id *b, bool same) {
    assert_int_equal(memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0, same);
}
#define expect_same_id(...) FROM_TEST(expect_same_id(__VA_ARGS__))

// ---- claims. Each runs in its own process, because a process keeps its identity as long as it lives.

static void in_child(void (*claim)(void)) {
    int status;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        kin_log_set_sink(listen_to, NULL);
        n_said = 0;
        claim();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}
#define in_child(...) FROM_TEST(in_child(__VA_ARGS__))

static void be_the_same(void) {
    static other o;
    start(&o, true);
    to_release = &o; // released once the log says that this process waits
    kin_proto_id own = open_identity();
    assert_int_equal(n_said, 1);
    expect_same_id(&own, &o.id, true);
    finish(&o);
}

static void a_process_that_starts_while_the_former_ends_is_the_same_device(void **state) {
    (void)state;
    in_child(be_the_same);
}

static void be_another(void) {
    static other o;
    start(&o, true);
    kin_proto_id own = open_identity();
    assert_int_equal(n_said, 1);
    expect_same_id(&own, &o.id, false);
    release(&o);
    finish(&o);
}

static void a_process_that_does_not_end_in_time_is_another_device(void **state) {
    (void)state;
    in_child(be_another);
}

static void be_another_at_once(void) {
    static other o;
    start(&o, false);
    assert_false(kin_process_is_ending(o.pid));
    kin_proto_id own = open_identity();
    assert_int_equal(n_said, 0);
    expect_same_id(&own, &o.id, false);
    release(&o);
    finish(&o);
}

static void a_living_process_is_not_waited_for(void **state) {
    (void)state;
    in_child(be_another_at_once);
}

static void an_id_is_kept_from_one_process_to_the_next(void **state) {
    (void)state;
    other a, b;
    start(&a, false);
    release(&a);
    finish(&a);
    start(&b, false);
    release(&b);
    finish(&b);
    expect_same_id(&a.id, &b.id, true);
    assert_false(kin_process_is_ending(b.pid)); // no process has this pid any more
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_id_is_kept_from_one_process_to_the_next),
        cmocka_unit_test(a_process_that_starts_while_the_former_ends_is_the_same_device),
        cmocka_unit_test(a_process_that_does_not_end_in_time_is_another_device),
        cmocka_unit_test(a_living_process_is_not_waited_for),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
