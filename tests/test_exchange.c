// Sums over sockets: every device gets the same bits with every allreduce variant; any error ends the epoch with an error
// message.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/rng.h"
#include "testkit/group_mesh.h"
#include "tests/place.h"

enum { MAX = KIN_SHARE_RANKS, N_EMBD = 96, MOST_ROWS = 700 }; // 262 KiB per part: more than a socket accepts at once

static kin_exchange *exchanges[MAX];
static int n_broken[MAX];
static atomic_bool stop;

static void ok(int rc, const kin_err *err) {
    if (rc != 0) fail_msg("%s", err->text);
}
#define ok(...) FROM_TEST(ok(__VA_ARGS__))

static void broken(void *user, uint32_t epoch, const char *reason) {
    assert_true(epoch > 0 && reason[0]);
    ++*(int *)user;
}

static int open_one(int i, kin_err *err) {
    const kin_exchange_options o = {.broken = broken, .user = &n_broken[i], .stop = &stop};
    return kin_exchange_open(&exchanges[i], &o, err);
}

static int open_all(void **state) {
    (void)state;
    kin_err err;
    memset(n_broken, 0, sizeof n_broken);
    atomic_store(&stop, false);
    for (int i = 0; i < MAX; i++) {
        if (open_one(i, &err) != 0) return -1;
    }
    return 0;
}

static int close_all(void **state) {
    (void)state;
    for (int i = 0; i < MAX; i++) kin_exchange_close(exchanges[i]);
    return 0;
}

static float value(int rank, int sum, size_t i) {
    return (float)((int)((i * 2654435761u + (unsigned)(rank * 40503 + sum * 977)) % 20011) - 10005) / 77.0f;
}

typedef struct device {
    int rank, n_rows, n_sums, rc;
    uint32_t epoch;
    uint64_t step;
    float *x; // the last sum
    kin_err err;
    pthread_t thread;
} device;

static void *sum_up(void *arg) {
    device *d = arg;
    kin_exchange *x = exchanges[d->rank];
    kin_sum sum = kin_exchange_sum(x);
    size_t n = (size_t)d->n_rows * N_EMBD;
    kin_exchange_use(x, d->epoch);
    sum.begin(sum.user, d->step, 0);
    for (int s = 0; s < d->n_sums && d->rc == 0; s++) {
        for (size_t i = 0; i < n; i++) d->x[i] = value(d->rank, s, i);
        d->rc = sum.add(sum.user, d->x, d->n_rows, N_EMBD, &d->err);
    }
    return NULL;
}

static device start(int rank, uint32_t epoch, uint64_t step, int n_rows, int n_sums) {
    device d = {.rank = rank, .n_rows = n_rows, .n_sums = n_sums, .epoch = epoch, .step = step};
    d.x = malloc((size_t)n_rows * N_EMBD * sizeof *d.x);
    assert_non_null(d.x);
    return d;
}
#define start(...) FROM_TEST(start(__VA_ARGS__))

static void run_all(device *d, int n) {
    for (int i = 0; i < n; i++) assert_int_equal(pthread_create(&d[i].thread, NULL, sum_up, &d[i]), 0);
    for (int i = 0; i < n; i++) pthread_join(d[i].thread, NULL);
}
#define run_all(...) FROM_TEST(run_all(__VA_ARGS__))

static float in_rank_order(int n_ranks, int sum, size_t i) {
    float total = value(0, sum, i);
    for (int r = 1; r < n_ranks; r++) total += value(r, sum, i);
    return total;
}

static void expect_sums(int n, kin_proto_allreduce variant, kin_activation_type type, int n_rows, uint32_t epoch) {
    const kin_exchange_place place = {.epoch = epoch, .n_ranks = n, .allreduce = variant, .type = type};
    bool in_order =
        (variant == KIN_PROTO_ALLREDUCE_MESH || variant == KIN_PROTO_ALLREDUCE_STAR || n == 2) && type == KIN_ACTIVATION_F32;
    const int n_sums = 3;
    device d[MAX];
    kin_err err;
    ok(kin_group_mesh_enter(exchanges, &place, &err), &err);
    for (int i = 0; i < n; i++) {
        assert_true(kin_exchange_is_complete(exchanges[i]));
        d[i] = start(i, epoch, 7, n_rows, n_sums);
    }
    run_all(d, n);
    for (int i = 0; i < n; i++) {
        ok(d[i].rc, &d[i].err);
        assert_memory_equal(d[i].x, d[0].x, (size_t)n_rows * N_EMBD * sizeof(float));
    }
    for (size_t i = 0; i < (size_t)n_rows * N_EMBD; i++) {
        static const float bounds[] = {[KIN_ACTIVATION_F32] = 1e-3f, [KIN_ACTIVATION_F16] = 2.0f, [KIN_ACTIVATION_Q8] = 6.0f};
        float want = in_rank_order(n, n_sums - 1, i), most = bounds[type];
        if (in_order) assert_true(d[0].x[i] == want);
        assert_true(d[0].x[i] - want < most && want - d[0].x[i] < most);
    }
    for (int i = 0; i < n; i++) free(d[i].x);
}
#define expect_sums(...) FROM_TEST(expect_sums(__VA_ARGS__))

static void every_allreduce_gives_all_devices_the_same_bits(void **state) {
    (void)state;
    uint32_t epoch = 1;
    for (int n = 2; n <= 5; n++) {
        for (int variant = 0; variant < KIN_PROTO_ALLREDUCE_N; variant++) {
            for (int type = 0; type < KIN_ACTIVATION_N_TYPES; type++) expect_sums(n, variant, type, 1 + n % 3, epoch++);
        }
    }
}

static void parts_larger_than_a_socket_takes_do_not_block(void **state) {
    (void)state;
    for (int variant = 0; variant < KIN_PROTO_ALLREDUCE_N; variant++)
        expect_sums(3, variant, KIN_ACTIVATION_F32, MOST_ROWS, 1 + (uint32_t)variant);
}

// ---- many sums by devices that are sometimes late

// A device in a long run of sums that pauses before some of them and mixes large and small ones.
typedef struct adder {
    int rank, n_ranks, n_sums;
    kin_err err;
    const char *wrong; // NULL: all sums were correct
    pthread_t thread;
} adder;

enum { MANY_SUMS = 300, MANY_ROWS = 40, MANY_BUFFER = 4096 }; // 15 KiB per part, more than the smallest buffers hold

static int rows_of(int sum) {
    return sum % 7 == 3 ? MANY_ROWS : 1;
}

// Sums of small whole numbers are exact in any order.
static float whole(int rank, int sum, size_t i) {
    return (float)((rank + 1) * (int)((i + (size_t)sum) % 13));
}

static void *sum_many(void *arg) {
    adder *w = arg;
    float x[MANY_ROWS * N_EMBD];
    kin_rng rng;
    kin_sum sum = kin_exchange_sum(exchanges[w->rank]);
    kin_rng_seed(&rng, (uint64_t)w->rank + 1);
    kin_exchange_use(exchanges[w->rank], 1);
    for (int s = 0; s < w->n_sums && !w->wrong; s++) {
        size_t n = (size_t)rows_of(s) * N_EMBD;
        for (size_t i = 0; i < n; i++) x[i] = whole(w->rank, s, i);
        if (kin_rng_unit(&rng) < 0.1) usleep((unsigned)(kin_rng_unit(&rng) * 300)); // sometimes longer than the others spin
        sum.begin(sum.user, (uint64_t)s + 1, 0);
        if (sum.add(sum.user, x, rows_of(s), N_EMBD, &w->err) != 0) w->wrong = w->err.text;
        for (size_t i = 0; i < n && !w->wrong; i++) {
            if (x[i] != whole(w->n_ranks * (w->n_ranks + 1) / 2 - 1, s, i)) w->wrong = "a sum is wrong";
        }
    }
    return NULL;
}

static void expect_many_sums(int n, kin_proto_allreduce variant) {
    const kin_exchange_place place = {.epoch = 1, .n_ranks = n, .allreduce = variant};
    adder w[MAX];
    kin_err err;
    ok(kin_group_mesh_enter_with_buffers(exchanges, &place, MANY_BUFFER, &err), &err);
    for (int i = 0; i < n; i++) {
        w[i] = (adder){.rank = i, .n_ranks = n, .n_sums = MANY_SUMS};
        assert_int_equal(pthread_create(&w[i].thread, NULL, sum_many, &w[i]), 0);
    }
    for (int i = 0; i < n; i++) pthread_join(w[i].thread, NULL);
    for (int i = 0; i < n; i++) {
        if (w[i].wrong) fail_msg("device %d: %s", i + 1, w[i].wrong);
    }
}
#define expect_many_sums(...) FROM_TEST(expect_many_sums(__VA_ARGS__))

static void many_sums_by_mesh(void **state) {
    (void)state;
    expect_many_sums(MAX, KIN_PROTO_ALLREDUCE_MESH);
}

static void many_sums_by_star(void **state) {
    (void)state;
    expect_many_sums(MAX, KIN_PROTO_ALLREDUCE_STAR);
}

static void many_sums_by_tree(void **state) {
    (void)state;
    expect_many_sums(MAX, KIN_PROTO_ALLREDUCE_TREE);
}

static void many_sums_by_ring(void **state) {
    (void)state;
    expect_many_sums(MAX, KIN_PROTO_ALLREDUCE_RING);
}

// ---- failures

static kin_exchange_place mesh_of(int n, uint32_t epoch) {
    return (kin_exchange_place){.epoch = epoch, .n_ranks = n};
}

static void a_device_that_is_gone_ends_sums_of_its_epoch_and_the_next_one_works(void **state) {
    (void)state;
    kin_err err;
    const kin_exchange_place place = mesh_of(3, 5), next = mesh_of(3, 6);
    ok(kin_group_mesh_enter(exchanges, &place, &err), &err);
    kin_exchange_close(exchanges[2]);
    device d[2] = {start(0, 5, 1, 1, 1), start(1, 5, 1, 1, 1)};
    run_all(d, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(d[i].rc, KIN_FAIL);
        assert_non_null(strstr(d[i].err.text, "device 3 of the group: it closed its connection"));
        assert_true(kin_exchange_is_broken(exchanges[i]));
        d[i].rc = 0;
        sum_up(&d[i]); // the epoch has ended for it
        assert_int_equal(d[i].rc, KIN_FAIL);
        assert_int_equal(n_broken[i], 1);
        free(d[i].x);
    }
    ok(open_one(2, &err), &err);
    ok(kin_group_mesh_enter(exchanges, &next, &err), &err);
    expect_sums(3, KIN_PROTO_ALLREDUCE_MESH, KIN_ACTIVATION_F32, 2, 7);
}

// A device that got no answer in time connects again; its earlier connection is unused.
static void the_last_connection_of_a_device_counts_until_steps_come(void **state) {
    (void)state;
    kin_err err;
    const kin_exchange_place place = mesh_of(2, 5);
    int fds[2];
    kin_tls *tls[2];
    uint8_t byte;
    ok(kin_group_mesh_connect(fds, tls, &err), &err);
    kin_exchange_enter(exchanges[0], &place);
    kin_exchange_give(exchanges[0], 5, 1, fds[0], tls[0]);
    ok(kin_group_mesh_enter(exchanges, &place, &err), &err);
    assert_int_equal(read(fds[1], &byte, 1), 0); // end of file: the first connection was closed
    assert_true(kin_exchange_is_complete(exchanges[0]));
    close(fds[1]);
    kin_tls_close(tls[1]);
    device d[2] = {start(0, 5, 1, 1, 1), start(1, 5, 1, 1, 1)};
    run_all(d, 2);
    ok(kin_group_mesh_connect(fds, tls, &err), &err);
    kin_exchange_give(exchanges[0], 5, 1, fds[0], tls[0]);
    assert_int_equal(read(fds[1], &byte, 1), 0);
    close(fds[1]);
    kin_tls_close(tls[1]);
    run_all(d, 2);
    for (int i = 0; i < 2; i++) {
        ok(d[i].rc, &d[i].err);
        free(d[i].x);
    }
}

static void end_epoch(void) {
    const kin_exchange_place none = {0};
    kin_exchange_enter(exchanges[0], &none);
}

static void stop_it(void) {
    atomic_store(&stop, true);
}

// Asserts how a sum ends that waits for a device that sends nothing.
static void expect_end(void (*end)(void), const char *sentence, int n_told) {
    kin_err err;
    const kin_exchange_place place = mesh_of(2, 5);
    int fds[2];
    kin_tls *tls[2];
    uint8_t byte;
    ok(kin_group_mesh_connect(fds, tls, &err), &err);
    kin_exchange_enter(exchanges[0], &place);
    assert_false(kin_exchange_is_complete(exchanges[0]));
    kin_exchange_give(exchanges[0], 5, 1, fds[0], tls[0]);
    assert_true(kin_exchange_is_complete(exchanges[0]));
    device d = start(0, 5, 1, 1, 1); // the other device sends nothing
    assert_int_equal(pthread_create(&d.thread, NULL, sum_up, &d), 0);
    assert_int_equal(read(fds[1], &byte, 1), 1); // the device is now inside the sum
    end();
    pthread_join(d.thread, NULL);
    assert_int_equal(d.rc, KIN_FAIL);
    assert_string_equal(d.err.text, sentence);
    assert_int_equal(n_broken[0], n_told);
    free(d.x);
    close(fds[1]);
    kin_tls_close(tls[1]);
}
#define expect_end(...) FROM_TEST(expect_end(__VA_ARGS__))

static void the_end_of_the_epoch_wakes_waiting_threads(void **state) {
    (void)state;
    expect_end(end_epoch, "the group's plan is over", 1);
}

// Ctrl-C, while another device hangs.
static void a_stop_wakes_waiting_threads(void **state) {
    (void)state;
    expect_end(stop_it, "stopped", 0);
}

static void devices_at_other_steps_notice(void **state) {
    (void)state;
    kin_err err;
    const kin_exchange_place place = mesh_of(2, 5);
    ok(kin_group_mesh_enter(exchanges, &place, &err), &err);
    device d[2] = {start(0, 5, 1, 1, 1), start(1, 5, 2, 1, 1)};
    run_all(d, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(d[i].rc, KIN_FAIL);
        assert_non_null(strstr(d[i].err.text, "at sum 0 of step"));
        free(d[i].x);
    }
}

static void other_shapes_are_noticed(void **state) {
    (void)state;
    kin_err err;
    const kin_exchange_place place = mesh_of(2, 5);
    ok(kin_group_mesh_enter(exchanges, &place, &err), &err);
    device d[2] = {start(0, 5, 1, 1, 1), start(1, 5, 1, 2, 1)};
    run_all(d, 2);
    assert_true(d[0].rc == KIN_FAIL && d[1].rc == KIN_FAIL);
    assert_non_null(strstr(d[0].err.text, "an unexpected")); // the frame is longer than it may be
    for (int i = 0; i < 2; i++) free(d[i].x);
}

// Expects a device to refuse these bytes from its peer.
static void expect_refused(const uint8_t *bytes, size_t n, const char *sentence) {
    static uint32_t epoch = 100;
    const kin_exchange_place place = mesh_of(2, ++epoch);
    int fds[2];
    kin_tls *tls[2];
    kin_err err;
    ok(kin_group_mesh_connect(fds, tls, &err), &err);
    kin_exchange_enter(exchanges[0], &place);
    kin_exchange_give(exchanges[0], epoch, 1, fds[0], tls[0]);
    uint8_t *copy = malloc(n);
    memcpy(copy, bytes, n);
    if (n > 12 && bytes[8] == 0xee) memcpy(copy + 8, &epoch, sizeof epoch); // this test runs on little-endian machines
    ok(kin_tls_write(tls[1], copy, n, &err), &err);
    size_t n_out;
    const uint8_t *out = kin_tls_output(tls[1], &n_out);
    assert_int_equal(write(fds[1], out, n_out), (ssize_t)n_out);
    shutdown(fds[1], SHUT_WR);
    device d = start(0, epoch, 1, 1, 1);
    sum_up(&d);
    assert_int_equal(d.rc, KIN_FAIL);
    if (!strstr(d.err.text, sentence)) fail_msg("'%s' is not in '%s'", sentence, d.err.text);
    free(d.x);
    free(copy);
    kin_tls_close(tls[1]);
    close(fds[1]);
}
#define expect_refused(...) FROM_TEST(expect_refused(__VA_ARGS__))

static void nonsense_from_a_device_is_refused(void **state) {
    (void)state;
    uint8_t sum[KIN_FRAME_HEADER + KIN_PROTO_SUM_HEAD + 4] = {'K', 'I', 'N', '1', KIN_FRAME_VERSION, KIN_FRAME_SUM, 0, 0, 0xee};
    uint8_t ping[KIN_FRAME_HEADER + 8] = {'K', 'I', 'N', '1', KIN_FRAME_VERSION, KIN_FRAME_PING, 0, 0, 0, 0, 0, 0, 8};
    uint8_t get[KIN_FRAME_HEADER] = {'K', 'I', 'N', '1', KIN_FRAME_VERSION, KIN_FRAME_GET};
    sum[12] = KIN_PROTO_SUM_HEAD + 4;
    expect_refused((const uint8_t *)"GET / HTTP/1.1\r\n\r\n", 18, "does not speak kin's protocol");
    expect_refused(get, sizeof get, "it sent GET, which a group link does not accept");
    expect_refused(sum, sizeof sum, "n_values is 0");
    sum[KIN_FRAME_HEADER + 16] = 1;
    expect_refused(sum, sizeof sum, "at sum 0 of step 0 with 1 values");
    sum[8] = 3;
    expect_refused(sum, sizeof sum, "in epoch 3");
    sum[8] = 0xee;
    sum[14] = 200;
    expect_refused(sum, sizeof sum, "an unexpected");              // 13 MB
    expect_refused(ping, sizeof ping, "it closed its connection"); // a PING is skipped
    expect_refused(sum, 20, "an unexpected");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_allreduce_gives_all_devices_the_same_bits, open_all, close_all),
        cmocka_unit_test_setup_teardown(parts_larger_than_a_socket_takes_do_not_block, open_all, close_all),
        cmocka_unit_test_setup_teardown(many_sums_by_mesh, open_all, close_all),
        cmocka_unit_test_setup_teardown(many_sums_by_star, open_all, close_all),
        cmocka_unit_test_setup_teardown(many_sums_by_tree, open_all, close_all),
        cmocka_unit_test_setup_teardown(many_sums_by_ring, open_all, close_all),
        cmocka_unit_test_setup_teardown(a_device_that_is_gone_ends_sums_of_its_epoch_and_the_next_one_works, open_all, close_all),
        cmocka_unit_test_setup_teardown(the_last_connection_of_a_device_counts_until_steps_come, open_all, close_all),
        cmocka_unit_test_setup_teardown(the_end_of_the_epoch_wakes_waiting_threads, open_all, close_all),
        cmocka_unit_test_setup_teardown(a_stop_wakes_waiting_threads, open_all, close_all),
        cmocka_unit_test_setup_teardown(devices_at_other_steps_notice, open_all, close_all),
        cmocka_unit_test_setup_teardown(other_shapes_are_noticed, open_all, close_all),
        cmocka_unit_test_setup_teardown(nonsense_from_a_device_is_refused, open_all, close_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
