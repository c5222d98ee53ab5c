// The cache of experts: what is found is the file's bytes, wherever they lie in it, whatever leaves meanwhile, and after a read
// that failed.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/rng.h"
#include "engine/experts.h"
#include "sys/pages.h"
#include "tests/place.h"

enum { N_LAYER = 3, N_EXPERT = 12, N_USED = 2, GATE_BYTES = 7000, DOWN_BYTES = 5000, STRIDE = 20480, FILE_BYTES = 1 << 20 };

// Layer 0: matrices side by side, at multiples of 4096. Layer 1 has no experts. Layer 2: two parts at odd offsets, gate and up in
// one.
typedef struct context {
    int fd;
    uint8_t *bytes; // [FILE_BYTES]
    kin_stream *stream;
    kin_expert_layer layers[N_LAYER];
    kin_experts *experts;
    kin_rng rng;
} context;

static void describe(kin_expert_layer *layers) {
    layers[0] = (kin_expert_layer){.n_parts = 1, .parts = {{0, 8192, STRIDE, STRIDE - 100}}};
    layers[0].matrices[KIN_EXPERT_UP].at = GATE_BYTES + 8;
    layers[0].matrices[KIN_EXPERT_DOWN].at = 2 * GATE_BYTES + 64;
    layers[1] = (kin_expert_layer){0};
    layers[2] = (kin_expert_layer){.n_parts = 2,
                                   .parts = {{0, 300001, 2 * GATE_BYTES, 2 * GATE_BYTES}, {0, 600002, DOWN_BYTES, DOWN_BYTES}}};
    layers[2].matrices[KIN_EXPERT_DOWN].i_part = 1;
}

static void open_stream(context *w) {
    const kin_stream_block block = {0}; // always in memory
    const kin_stream_options o = {
        .fds = &w->fd, .n_files = 1, .blocks = &block, .n_blocks = 1, .n_layer_blocks = 1, .reads_experts = true};
    kin_err err;
    if (kin_stream_open(&w->stream, &o, &err) != 0) fail_msg("%s", err.text);
}

static void open_context(context *w, uint64_t budget) {
    char path[] = "/tmp/kin-test-experts-XXXXXX";
    kin_err err;
    w->fd = mkstemp(path);
    assert_true(w->fd >= 0);
    unlink(path);
    w->bytes = malloc(FILE_BYTES);
    kin_rng_seed(&w->rng, 1);
    for (size_t i = 0; i < FILE_BYTES; i++) w->bytes[i] = (uint8_t)kin_rng_u64(&w->rng);
    assert_int_equal(pwrite(w->fd, w->bytes, FILE_BYTES, 0), FILE_BYTES);
    describe(w->layers);
    open_stream(w);
    if (kin_experts_open(&w->experts, w->stream, w->layers, N_LAYER, N_EXPERT, N_USED, budget, &err) != 0)
        fail_msg("%s", err.text);
}
#define open_context(...) FROM_TEST(open_context(__VA_ARGS__))

static void close_context(context *w) {
    kin_experts_stop_filling(w->experts);
    kin_stream_close(w->stream);
    kin_experts_close(w->experts);
    close(w->fd);
    free(w->bytes);
}

// A step of `n_tokens` tokens chooses experts of a layer. Returns how many different ones, in `order`.
static int choose(context *w, int il, int n_tokens, int n_used, int32_t *order) {
    const kin_expert_source *s = kin_experts_source(w->experts);
    int32_t uses[N_EXPERT] = {0}, begin[N_EXPERT + 1] = {0};
    int n = 0;
    for (int i = 0; i < n_tokens * n_used; i++) uses[kin_rng_u64(&w->rng) % N_EXPERT]++;
    for (int i = 0; i < N_EXPERT; i++) {
        begin[i + 1] = begin[i] + uses[i];
        if (uses[i] > 0) order[n++] = i;
    }
    assert_int_equal(s->choose(s->user, il, n_tokens, begin, order, n, false), n);
    return n;
}

static const uint8_t *find(const context *w, int il, int expert, int matrix) {
    const kin_expert_source *s = kin_experts_source(w->experts);
    return s->find(s->user, il, expert, matrix, true);
}

static void expect_matrices(const context *w, int il, int expert) {
    static const uint64_t sizes[KIN_EXPERT_MATRICES] = {GATE_BYTES, GATE_BYTES, DOWN_BYTES};
    for (int k = 0; k < KIN_EXPERT_MATRICES; k++) {
        const kin_expert_part *p = &w->layers[il].parts[w->layers[il].matrices[k].i_part];
        const uint64_t at = p->offset + (uint64_t)expert * p->stride + w->layers[il].matrices[k].at;
        const uint8_t *found = find(w, il, expert, k);
        assert_non_null(found);
        assert_memory_equal(found, w->bytes + at, sizes[k]);
    }
}
#define expect_matrices(...) FROM_TEST(expect_matrices(__VA_ARGS__))

static void every_expert_has_the_bytes_of_the_file(void **state) {
    context w = {0};
    (void)state;
    open_context(&w, 200000); // about a third
    for (int i = 0; i < 400; i++) {
        int32_t order[N_EXPERT];
        const int il = i % 2 * 2, n = choose(&w, il, 1 + i % 3, 2, order);
        for (int k = 0; k < n; k++) expect_matrices(&w, il, order[k]);
    }
    const kin_experts_stats stats = kin_experts_get_stats(w.experts);
    assert_true(stats.n_hits > 0 && stats.n_misses > 0 && stats.read_bytes > 0);
    assert_true(stats.held_bytes <= 200000);
    close_context(&w);
}

static void experts_in_memory_come_first_in_the_order(void **state) {
    context w = {0};
    int32_t first[N_EXPERT], order[N_EXPERT];
    (void)state;
    open_context(&w, FILE_BYTES);
    const int n_first = choose(&w, 0, 2, 2, first);
    for (int i = 0; i < n_first; i++) find(&w, 0, first[i], 0);
    const int n = choose(&w, 0, 20, 2, order);
    assert_true(n > n_first);
    const uint64_t n_hits = kin_experts_get_stats(w.experts).n_hits;
    for (int i = 0; i < n; i++) {
        bool was_there = false;
        for (int k = 0; k < n_first; k++) was_there = was_there || first[k] == order[i];
        assert_int_equal(was_there, (uint64_t)i < n_hits);
        if (i > 0 && (uint64_t)i != n_hits) assert_true(order[i] > order[i - 1]);
    }
    close_context(&w);
}

static void a_layer_without_experts_here_is_in_its_tensors(void **state) {
    context w = {0};
    int32_t order[N_EXPERT];
    (void)state;
    open_context(&w, FILE_BYTES);
    choose(&w, 1, 1, 2, order);
    assert_null(find(&w, 1, 3, KIN_EXPERT_GATE));
    close_context(&w);
}

// A thread whose step is over computes like this.
static void an_expert_that_has_left_is_some_other_memory(void **state) {
    context w = {0};
    (void)state;
    open_context(&w, FILE_BYTES);
    const uint8_t *found = find(&w, 0, 3, KIN_EXPERT_DOWN);
    assert_non_null(found);
    for (int i = 0; i < STRIDE; i++) assert_int_equal(found[i], 0);
    close_context(&w);
}

static void more_than_the_budget_is_there_while_a_step_needs_it(void **state) {
    context w = {0};
    int32_t order[N_EXPERT];
    (void)state;
    open_context(&w, 1);
    const int n = choose(&w, 2, 50, 2, order);
    assert_int_equal(n, N_EXPERT);
    for (int i = 0; i < n; i++) expect_matrices(&w, 2, order[i]);
    choose(&w, 0, 1, 1, order);
    assert_true(kin_experts_get_stats(w.experts).held_bytes <= STRIDE);
    close_context(&w);
}

// ---- groups

enum { PART_BYTES = STRIDE - 100 }; // of an expert of layer 0

// Begins a step of 50 tokens that use all experts of a layer, in groups. Returns the size of the first one.
static int choose_all(context *w, int il, int32_t order[N_EXPERT]) {
    const kin_expert_source *s = kin_experts_source(w->experts);
    int32_t begin[N_EXPERT + 1] = {0};
    for (int i = 0; i < N_EXPERT; i++) begin[i + 1] = 8 * (i + 1), order[i] = i;
    return s->choose(s->user, il, 50, begin, order, N_EXPERT, true);
}

// The groups of such a step: each has the file's bytes, and no expert is in two. most: bytes of experts in memory. Returns their
// number.
static int use_all(context *w, int il, uint64_t most) {
    const kin_expert_source *s = kin_experts_source(w->experts);
    int32_t order[N_EXPERT];
    bool seen[N_EXPERT] = {false};
    int n_groups = 0;
    for (int at = 0, n; at < N_EXPERT; at += n, n_groups++) {
        n = at == 0 ? choose_all(w, il, order) : s->choose_next(s->user, il, order + at, N_EXPERT - at);
        assert_in_range(n, 1, N_EXPERT - at);
        for (int k = at; k < at + n; k++) {
            expect_matrices(w, il, order[k]);
            assert_false(seen[order[k]]);
            seen[order[k]] = true;
        }
        assert_true(kin_experts_get_stats(w->experts).held_bytes <= most);
    }
    return n_groups;
}
#define use_all(...) FROM_TEST(use_all(__VA_ARGS__))

static void a_step_in_groups_reads_each_expert_once(void **state) {
    context w = {0};
    (void)state;
    open_context(&w, 5 * STRIDE); // a group has two
    assert_int_equal(use_all(&w, 0, 5 * STRIDE), N_EXPERT / 2);
    kin_experts_stats stats = kin_experts_get_stats(w.experts);
    assert_true(stats.n_hits == 0 && stats.n_misses == N_EXPERT);
    assert_int_equal(stats.read_bytes, N_EXPERT * PART_BYTES);
    for (int i = 1; i < 20; i++) { // what was left there comes first
        assert_int_equal(use_all(&w, 0, 5 * STRIDE), N_EXPERT / 2);
        stats = kin_experts_get_stats(w.experts);
        assert_int_equal(stats.n_hits, i * 5);
        assert_int_equal(stats.read_bytes, (N_EXPERT + i * (N_EXPERT - 5)) * PART_BYTES);
    }
    close_context(&w);
}

static void a_group_has_half_of_the_room_or_one_expert(void **state) {
    (void)state;
    for (int room = 0; room <= N_EXPERT + 1; room++) {
        context w = {0};
        const int n = room >= N_EXPERT ? N_EXPERT : room < 2 ? 1 : room / 2;
        open_context(&w, (uint64_t)room * STRIDE);
        assert_int_equal(use_all(&w, 0, (uint64_t)(room > 0 ? room : 1) * STRIDE), (N_EXPERT + n - 1) / n);
        assert_int_equal(kin_experts_get_stats(w.experts).read_bytes, N_EXPERT * PART_BYTES);
        close_context(&w);
    }
}

static void a_step_that_ends_after_a_group_takes_no_room_from_the_next(void **state) {
    context w = {0};
    int32_t order[N_EXPERT];
    (void)state;
    open_context(&w, 5 * STRIDE);
    for (int i = 0; i < 50; i++) {
        choose_all(&w, 0, order);
        use_all(&w, 2, 5 * STRIDE);
        choose_all(&w, 2, order);
        use_all(&w, 0, 5 * STRIDE);
    }
    close_context(&w);
}

static void a_later_group_whose_read_failed_is_read_again(void **state) {
    context w = {0};
    int32_t order[N_EXPERT];
    kin_err err;
    (void)state;
    open_context(&w, 5 * STRIDE);
    const kin_expert_source *s = kin_experts_source(w.experts);
    assert_int_equal(ftruncate(w.fd, 8192), 0);
    assert_int_equal(choose_all(&w, 0, order), 2);
    find(&w, 0, order[2], 0); // of the next group: its read has ended
    kin_experts_check(w.experts, &err);
    assert_int_equal(pwrite(w.fd, w.bytes, FILE_BYTES, 0), FILE_BYTES);
    assert_int_equal(s->choose_next(s->user, 0, order + 2, N_EXPERT - 2), 2);
    for (int k = 2; k < 4; k++) expect_matrices(&w, 0, order[k]);
    assert_int_equal(kin_experts_check(w.experts, &err), 0);
    close_context(&w);
}

// Changes the budget while experts are used.
typedef struct changer {
    kin_experts *experts;
    atomic_bool ends;
} changer;

static void *change_budgets(void *user) {
    changer *c = user;
    kin_rng rng;
    kin_rng_seed(&rng, 2);
    while (!atomic_load(&c->ends)) kin_experts_set_budget(c->experts, kin_rng_u64(&rng) % 400000);
    return NULL;
}

static void a_changing_budget_never_takes_what_is_in_use(void **state) {
    context w = {0};
    pthread_t thread;
    (void)state;
    open_context(&w, 200000);
    changer c = {.experts = w.experts};
    assert_int_equal(pthread_create(&thread, NULL, change_budgets, &c), 0);
    for (int i = 0; i < 1000; i++) {
        int32_t order[N_EXPERT];
        const int il = i % 2 * 2, n = choose(&w, il, 2, 2, order);
        for (int k = 0; k < n; k++) expect_matrices(&w, il, order[k]);
        if (i % 4 == 0) use_all(&w, il, UINT64_MAX);
    }
    atomic_store(&c.ends, true);
    pthread_join(thread, NULL);
    kin_experts_set_budget(w.experts, 0);
    assert_true(kin_experts_get_stats(w.experts).held_bytes <= 4 * kin_experts_largest(w.layers, N_LAYER));
    close_context(&w);
}

static void a_read_that_fails_is_reported_and_tried_again(void **state) {
    context w = {0};
    int32_t order[N_EXPERT];
    kin_err err;
    (void)state;
    open_context(&w, FILE_BYTES);
    assert_int_equal(ftruncate(w.fd, 8192), 0);
    int n = choose(&w, 0, 50, 2, order);
    for (int i = 0; i < n; i++) find(&w, 0, order[i], 0);
    assert_int_equal(kin_experts_check(w.experts, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "reading experts: "));
    assert_int_equal(kin_experts_check(w.experts, &err), 0);
    assert_int_equal(pwrite(w.fd, w.bytes, FILE_BYTES, 0), FILE_BYTES);
    n = choose(&w, 0, 50, 2, order);
    for (int i = 0; i < n; i++) expect_matrices(&w, 0, order[i]);
    assert_int_equal(kin_experts_check(w.experts, &err), 0);
    close_context(&w);
}

static void a_failed_read_of_a_step_that_ended_early_is_not_reported(void **state) {
    context w = {0};
    int32_t order[N_EXPERT];
    kin_err err;
    (void)state;
    open_context(&w, FILE_BYTES);
    assert_int_equal(ftruncate(w.fd, 300000), 0); // behind layer 0
    assert_int_equal(choose(&w, 2, 50, 2, order), N_EXPERT);
    kin_experts_forget(w.experts, 2);
    const int n = choose(&w, 0, 50, 2, order); // in the same slots, whose reads have ended then
    assert_int_equal(n, N_EXPERT);
    for (int i = 0; i < n; i++) expect_matrices(&w, 0, order[i]);
    assert_int_equal(kin_experts_check(w.experts, &err), 0);
    close_context(&w);
}

static void experts_take_whole_pages_of_any_size(void **state) {
    int32_t order[N_EXPERT];
    (void)state;
    for (uint64_t page = 4 << 10; page <= 64 << 10; page *= 4) {
        context w = {0};
        kin_page_bytes_fake(page);
        open_context(&w, FILE_BYTES);
        assert_int_equal(choose(&w, 0, 50, 2, order), N_EXPERT);
        assert_int_equal(kin_experts_get_stats(w.experts).held_bytes, N_EXPERT * ((STRIDE + page - 1) / page * page));
        for (int i = 0; i < N_EXPERT; i++) expect_matrices(&w, 0, order[i]);
        close_context(&w);
    }
    kin_page_bytes_fake(0);
}

static void a_forgotten_layer_is_read_again(void **state) {
    context w = {0};
    int32_t order[N_EXPERT];
    (void)state;
    open_context(&w, FILE_BYTES);
    int n = choose(&w, 0, 50, 2, order);
    for (int i = 0; i < n; i++) expect_matrices(&w, 0, order[i]);
    for (size_t i = 0; i < FILE_BYTES; i++) w.bytes[i] ^= 0x55;
    assert_int_equal(pwrite(w.fd, w.bytes, FILE_BYTES, 0), FILE_BYTES);
    kin_experts_forget(w.experts, 0);
    n = choose(&w, 0, 50, 2, order);
    for (int i = 0; i < n; i++) expect_matrices(&w, 0, order[i]);
    close_context(&w);
}

static void fill(context *w, const float *counts) {
    kin_experts_set_counts(w->experts, counts);
    kin_experts_start_filling(w->experts);
}

static void experts_of_earlier_runs_are_there_before_they_are_needed(void **state) {
    context w = {0};
    float counts[N_LAYER * N_EXPERT] = {0};
    int32_t order[N_EXPERT];
    (void)state;
    open_context(&w, FILE_BYTES);
    for (int i = 0; i < N_LAYER * N_EXPERT; i++) counts[i] = 1;
    fill(&w, counts);
    while (kin_experts_get_stats(w.experts).n_filled < 2 * N_EXPERT) usleep(100); // the thread needs no other event
    kin_experts_stop_filling(w.experts);
    for (int il = 0; il < N_LAYER; il += 2) {
        const int n = choose(&w, il, 50, 2, order);
        assert_int_equal(n, N_EXPERT);
        for (int i = 0; i < n; i++) expect_matrices(&w, il, order[i]);
    }
    const kin_experts_stats stats = kin_experts_get_stats(w.experts);
    assert_true(stats.n_misses == 0 && stats.n_hits == 2 * N_EXPERT && stats.n_filled == 2 * N_EXPERT);
    close_context(&w);
}

static void a_step_uses_experts_while_others_are_read_ahead(void **state) {
    float counts[N_LAYER * N_EXPERT];
    (void)state;
    for (int i = 0; i < N_LAYER * N_EXPERT; i++) counts[i] = (float)(1 + i % 5);
    for (int round = 0; round < 50; round++) {
        context w = {0};
        open_context(&w, 200000);
        fill(&w, counts);
        for (int i = 0; i < 20; i++) {
            int32_t order[N_EXPERT];
            const int il = i % 2 * 2, n = choose(&w, il, 2, 2, order);
            if (i == 10) kin_experts_set_budget(w.experts, 140000);
            for (int k = 0; k < n; k++) expect_matrices(&w, il, order[k]);
        }
        assert_true(kin_experts_get_stats(w.experts).held_bytes <= 140000);
        close_context(&w);
    }
}

static void a_read_ahead_that_fails_is_tried_again_when_it_is_needed(void **state) {
    context w = {0};
    float counts[N_LAYER * N_EXPERT] = {1, 1, 1};
    int32_t order[N_EXPERT];
    kin_err err;
    (void)state;
    open_context(&w, FILE_BYTES);
    assert_int_equal(ftruncate(w.fd, 8192), 0);
    fill(&w, counts);
    while (kin_experts_get_stats(w.experts).n_filled < 3) usleep(100);
    kin_experts_stop_filling(w.experts);
    assert_int_equal(pwrite(w.fd, w.bytes, FILE_BYTES, 0), FILE_BYTES);
    const int n = choose(&w, 0, 50, 2, order);
    for (int i = 0; i < n; i++) expect_matrices(&w, 0, order[i]);
    assert_int_equal(kin_experts_check(w.experts, &err), 0);
    assert_int_equal(kin_experts_get_stats(w.experts).n_misses, N_EXPERT);
    close_context(&w);
}

// ---- look-ahead

// Layer 1 has experts, too: those of layer 0, so that it can be guessed.
static void open_guessing(context *w, uint64_t budget) {
    kin_err err;
    open_context(w, budget);
    kin_experts_close(w->experts);
    w->layers[1] = w->layers[0];
    if (kin_experts_open(&w->experts, w->stream, w->layers, N_LAYER, N_EXPERT, N_USED, budget, &err) != 0)
        fail_msg("%s", err.text);
}
#define open_guessing(...) FROM_TEST(open_guessing(__VA_ARGS__))

// A token chooses two experts of a layer, which must have the bytes of the file.
static void use_two(context *w, int il, int32_t a, int32_t b) {
    const kin_expert_source *s = kin_experts_source(w->experts);
    int32_t begin[N_EXPERT + 1] = {0}, order[N_USED] = {a < b ? a : b, a < b ? b : a};
    for (int i = 0; i < N_EXPERT; i++) begin[i + 1] = begin[i] + (i == a || i == b);
    s->choose(s->user, il, 1, begin, order, N_USED, false);
    if (il == 1) expect_matrices(w, il, order[0]), expect_matrices(w, il, order[1]);
}
#define use_two(...) FROM_TEST(use_two(__VA_ARGS__))

// A token in layers 0 and 1. right: whether layer 1's experts are those that were guessed. Returns whether they were guessed.
static bool pass_token(context *w, bool right) {
    const kin_expert_source *s = kin_experts_source(w->experts);
    const int32_t a = (int32_t)(kin_rng_u64(&w->rng) % (N_EXPERT / 2)), b = a + N_EXPERT / 2, likely[N_USED] = {a, b};
    use_two(w, 0, a, b);
    const bool is_due = s->is_due(s->user, 1);
    if (is_due) s->expect(s->user, 1, likely, 1, N_USED);
    use_two(w, 1, right ? a : (a + 1) % (N_EXPERT / 2), right ? b : N_EXPERT / 2 + (b + 1) % (N_EXPERT / 2));
    return is_due;
}
#define pass_token(...) FROM_TEST(pass_token(__VA_ARGS__))

static void guesses_that_come_true_are_read_ahead(void **state) {
    context w = {0};
    (void)state;
    open_guessing(&w, 8 * STRIDE);
    for (int i = 0; i < 300; i++) pass_token(&w, true);
    const kin_experts_stats stats = kin_experts_get_stats(w.experts);
    assert_true(stats.n_foreseen > 100);
    assert_int_equal(stats.n_guessed, stats.n_foreseen);
    assert_true(stats.held_bytes <= stats.budget);
    close_context(&w);
}

static void guesses_that_do_not_come_true_are_given_up(void **state) {
    context w = {0};
    int n_due = 0;
    (void)state;
    open_guessing(&w, 8 * STRIDE);
    for (int i = 0; i < 320; i++) n_due += pass_token(&w, false);
    assert_int_equal(kin_experts_get_stats(w.experts).n_guessed, 0);
    assert_in_range(n_due, 320 / 16, 320 / 8);
    close_context(&w);
}

static void experts_are_right_whatever_was_guessed_and_leaves(void **state) {
    context w = {0};
    (void)state;
    open_guessing(&w, 8 * STRIDE);
    for (int i = 0; i < 100; i++) pass_token(&w, true); // so that guesses are read
    for (int i = 0; i < 2000; i++) {
        pass_token(&w, i % 8 != 0);
        if (i % 16 == 3) kin_experts_set_budget(w.experts, (uint64_t)(4 + i % 5) * STRIDE);
        if (i % 64 == 5) kin_experts_forget(w.experts, 1);
    }
    const kin_experts_stats stats = kin_experts_get_stats(w.experts);
    assert_true(stats.n_foreseen > 500 && stats.n_guessed >= stats.n_foreseen);
    close_context(&w);
}

static void a_large_step_is_not_guessed(void **state) {
    context w = {0};
    int32_t order[N_EXPERT];
    (void)state;
    open_guessing(&w, FILE_BYTES);
    const kin_expert_source *s = kin_experts_source(w.experts);
    choose(&w, 0, 4, N_USED, order);
    assert_true(s->is_due(s->user, 1) && !s->is_due(s->user, 2));
    choose(&w, 0, 5, N_USED, order);
    assert_false(s->is_due(s->user, 1));
    close_context(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_expert_has_the_bytes_of_the_file),
        cmocka_unit_test(experts_in_memory_come_first_in_the_order),
        cmocka_unit_test(a_layer_without_experts_here_is_in_its_tensors),
        cmocka_unit_test(an_expert_that_has_left_is_some_other_memory),
        cmocka_unit_test(more_than_the_budget_is_there_while_a_step_needs_it),
        cmocka_unit_test(a_step_in_groups_reads_each_expert_once),
        cmocka_unit_test(a_group_has_half_of_the_room_or_one_expert),
        cmocka_unit_test(a_step_that_ends_after_a_group_takes_no_room_from_the_next),
        cmocka_unit_test(a_later_group_whose_read_failed_is_read_again),
        cmocka_unit_test(a_changing_budget_never_takes_what_is_in_use),
        cmocka_unit_test(a_read_that_fails_is_reported_and_tried_again),
        cmocka_unit_test(a_failed_read_of_a_step_that_ended_early_is_not_reported),
        cmocka_unit_test(experts_take_whole_pages_of_any_size),
        cmocka_unit_test(a_forgotten_layer_is_read_again),
        cmocka_unit_test(experts_of_earlier_runs_are_there_before_they_are_needed),
        cmocka_unit_test(a_step_uses_experts_while_others_are_read_ahead),
        cmocka_unit_test(a_read_ahead_that_fails_is_tried_again_when_it_is_needed),
        cmocka_unit_test(guesses_that_come_true_are_read_ahead),
        cmocka_unit_test(guesses_that_do_not_come_true_are_given_up),
        cmocka_unit_test(experts_are_right_whatever_was_guessed_and_leaves),
        cmocka_unit_test(a_large_step_is_not_guessed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
