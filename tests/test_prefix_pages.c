// Sequences whose keys and values are loaded from disks (pipeline/prefix_pages.h): they give the same tokens as without pages, on
// one machine and in a ring, whatever is missing or damaged on the disks.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <openssl/evp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "engine/border_log.h"
#include "pipeline/drafter.h"
#include "pipeline/scheduler.h"
#include "testkit/model_gen.h"
#include "testkit/thread_ring.h"
#include "tests/memory_dir.h"
#include "tests/place.h"

enum {
    N_VOCAB = 320,
    N_LAYER = 6,
    N_EMBD = 256,
    N_CTX = 1024,
    N_BATCH = 64,
    N_PROMPT = 590,
    N_MADE = 5,
    N_FULL = N_PROMPT / KIN_KV_CELLS,
    SHORT = 140,
    N = 3
};

static char model_path[] = "/tmp/kin-test-prefix-pages-XXXXXX", root[64];

static void ignore(void *user, kin_log_level level, const char *line) {
    (void)user;
    (void)level;
    (void)line;
}

static int make_model(void **state) {
    (void)state;
    kin_model_spec spec = kin_model_spec_defaults();
    kin_err err;
    spec.n_layer = N_LAYER;
    spec.n_embd = spec.n_ff = N_EMBD;
    spec.n_vocab = N_VOCAB;
    spec.mix = "q4_k_m";
    kin_log_set_sink(ignore, NULL);
    int fd = mkstemp(model_path);
    return fd < 0 || close(fd) != 0 || kin_model_gen(&spec, model_path, &err) != 0 ? -1 : 0;
}

static int remove_model(void **state) {
    (void)state;
    return unlink(model_path);
}

static int make_root(void **state) {
    (void)state;
    snprintf(root, sizeof root, "%s/kin-test-prefix-XXXXXX", memory_dir());
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

static atomic_int n_hashes_fail; // that many of the next hashes, by which pages are named

// Replaces OpenSSL's function, which kin_sha256 calls.
int EVP_Digest(const void *data, size_t n, unsigned char *hash, unsigned int *n_hash, const EVP_MD *type, ENGINE *engine) {
    if (n_hashes_fail > 0 && n_hashes_fail-- > 0) return 0;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    int ok =
        ctx && EVP_DigestInit_ex(ctx, type, engine) && EVP_DigestUpdate(ctx, data, n) && EVP_DigestFinal_ex(ctx, hash, n_hash);
    EVP_MD_CTX_free(ctx);
    return ok;
}

// ---- a ring whose members keep pages in DIR/0, DIR/1, ...; the head keeps the tokens in DIR/head

typedef struct context {
    kin_thread_ring *ring;
    kin_scheduler *s;
    kin_prefix_pages *pages;
    char dirs[KIN_THREAD_RING_MEMBERS][80];
} context;

static bool is_one_disk; // all members use DIR/0
static int n_rounds = 1, draft_least;

static void open_context(context *w, int n_members, int n_ctx, bool has_pages) {
    kin_thread_ring_options o = {.n_members = n_members, .n_batch = N_BATCH, .n_ctx = n_ctx, .n_steps = n_members > 1 ? 8 : 1};
    char head[80];
    kin_err err;
    *w = (context){0};
    for (int i = 0; i < n_members; i++) {
        o.shares[i] = (kin_layer_share){N_LAYER / n_members / n_rounds, 0, 0};
        snprintf(w->dirs[i], sizeof w->dirs[i], "%s/%d", root, is_one_disk ? 0 : i);
        if (has_pages) o.kv_dirs[i] = w->dirs[i];
    }
    snprintf(head, sizeof head, "%s/head", root);
    kin_prefix_pages_options po = {.disk = {.dir = head}, .context = "model", .n_context = 5};
    kin_scheduler_options so = {.n_ctx = n_ctx, .n_vocab = N_VOCAB, .n_embd = N_EMBD, .n_parallel = 4, .keeps = true};
    if (has_pages && kin_prefix_pages_open(&w->pages, &po, &err) != 0) fail_msg("%s", err.text);
    so.pages = w->pages;
    so.draft_least = draft_least;
    if (kin_thread_ring_open(&w->ring, model_path, &o, &err) != 0 || kin_scheduler_open(&w->s, &so, &err) != 0 ||
        kin_scheduler_set_head(w->s, kin_thread_ring_head(w->ring), &err) != 0)
        fail_msg("%s", err.text);
}
#define open_context(...) FROM_TEST(open_context(__VA_ARGS__))

// Closes the ring like a process that ends: everything in memory is lost.
static void close_context(context *w) {
    kin_err err;
    if (kin_scheduler_settle(w->s, &err) != 0) fail_msg("%s", err.text);
    kin_scheduler_close(w->s);
    kin_prefix_pages_close(w->pages);
    kin_thread_ring_close(w->ring);
}
#define close_context(...) FROM_TEST(close_context(__VA_ARGS__))

typedef struct request {
    int32_t prompt[N_PROMPT];
    int n_prompt, n_made;
    uint64_t logits; // a hash of all its logits
    int n_cached, n_ended;
    kin_generation_end how;
} request;

static int32_t next(void *user, float *logits) {
    request *t = user;
    int32_t best = 0;
    t->logits = kin_hash64(logits, N_VOCAB * sizeof *logits, t->logits);
    for (int32_t i = 1; i < N_VOCAB; i++) best = logits[i] > logits[best] ? i : best;
    return t->n_made++ == N_MADE ? KIN_GENERATION_NO_TOKEN : best;
}

static void progress(void *user, int n_done, int n_cached) {
    request *t = user;
    assert_true(n_done >= n_cached);
    t->n_cached = n_cached;
}

static void ended(void *user, kin_generation_end how, const kin_err *why) {
    request *t = user;
    (void)why;
    t->n_ended++;
    t->how = how;
}

static request new_request(int seed, int n_prompt) {
    request t = {.n_prompt = n_prompt};
    for (int i = 0; i < n_prompt; i++) t.prompt[i] = (seed * (i + 7) * 37 + i / 3) % N_VOCAB;
    return t;
}

static void submit(context *w, request *t, bool no_cache) {
    kin_generation_options o = {.prompt = t->prompt,
                                .n_prompt = t->n_prompt,
                                .no_cache = no_cache,
                                .next = next,
                                .progress = progress,
                                .ended = ended,
                                .user = t};
    kin_generation *g;
    kin_err err;
    if (kin_scheduler_submit(w->s, &o, &g, &err) != 0) fail_msg("%s", err.text);
}
#define submit(...) FROM_TEST(submit(__VA_ARGS__))

static void run(context *w) {
    bool busy = true;
    kin_err err;
    while (busy) {
        if (kin_scheduler_step(w->s, &busy, &err) != 0) fail_msg("%s", err.text);
    }
}
#define run(...) FROM_TEST(run(__VA_ARGS__))

static request run_one(int n_members, bool has_pages, int seed, int n_prompt) {
    context w;
    request t = new_request(seed, n_prompt);
    open_context(&w, n_members, N_CTX, has_pages);
    submit(&w, &t, false);
    run(&w);
    close_context(&w);
    assert_int_equal(t.how, KIN_GENERATION_DONE);
    return t;
}
#define run_one(...) FROM_TEST(run_one(__VA_ARGS__))

static void expect_same(const request *got, const request *expected) {
    assert_int_equal(got->n_ended, 1);
    assert_int_equal(got->n_made, expected->n_made);
    assert_int_equal(got->logits, expected->logits);
}
#define expect_same(...) FROM_TEST(expect_same(__VA_ARGS__))

static void a_sequence_is_found_after_a_restart(void **state) {
    (void)state;
    const int n_members[] = {1, N};
    for (int i = 0; i < 2; i++) {
        remove_root(NULL);
        request without = run_one(n_members[i], false, 1, N_PROMPT), first = run_one(n_members[i], true, 1, N_PROMPT);
        assert_int_equal(first.n_cached, 0);
        expect_same(&first, &without);
        request again = run_one(n_members[i], true, 1, N_PROMPT);
        assert_int_equal(again.n_cached, N_FULL * KIN_KV_CELLS);
        expect_same(&again, &without);
    }
}

// A block whose page cannot be named is kept by a later step.
static void what_cannot_be_named_is_kept_later(void **state) {
    (void)state;
    for (int n = 1; n <= N; n += N - 1) {
        context w;
        request t = new_request(1, N_PROMPT);
        kin_err err;
        bool busy = true;
        remove_root(NULL);
        open_context(&w, n, N_CTX, true);
        submit(&w, &t, false);
        for (int i = 0; t.n_made == 0; i++) {
            n_hashes_fail = i < 2 ? 0 : 1000; // the first steps name the disks' folders, too
            assert_int_equal(kin_scheduler_step(w.s, &busy, &err), 0);
        }
        n_hashes_fail = 0;
        run(&w);
        close_context(&w);
        request again = run_one(n, true, 1, N_PROMPT);
        assert_int_equal(again.n_cached, N_FULL * KIN_KV_CELLS);
        expect_same(&again, &t);
    }
}

// Page requests go round the ring once, steps several times; a request must not overtake earlier steps.
static void a_sequence_is_kept_and_found_in_a_ring_of_several_rounds(void **state) {
    (void)state;
    request without = run_one(N, false, 1, N_PROMPT);
    n_rounds = 2;
    request first = run_one(N, true, 1, N_PROMPT), again = run_one(N, true, 1, N_PROMPT);
    n_rounds = 1;
    expect_same(&first, &without);
    assert_int_equal(again.n_cached, N_FULL * KIN_KV_CELLS);
    expect_same(&again, &without);
}

// The last token must be computed because it gives the logits, so the last block is computed even if it is full.
static void a_prompt_of_whole_blocks_computes_its_last_one(void **state) {
    (void)state;
    request first = run_one(1, true, 1, 2 * KIN_KV_CELLS), again = run_one(1, true, 1, 2 * KIN_KV_CELLS);
    assert_int_equal(again.n_cached, KIN_KV_CELLS);
    expect_same(&again, &first);
}

static void a_sequence_with_another_beginning_is_not_found(void **state) {
    (void)state;
    run_one(1, true, 1, N_PROMPT);
    request t = new_request(1, N_PROMPT), without;
    t.prompt[0] = (t.prompt[0] + 1) % N_VOCAB;
    context w;
    for (int k = 0; k < 2; k++) {
        request copy = t;
        open_context(&w, 1, N_CTX, k == 1);
        submit(&w, &copy, false);
        run(&w);
        close_context(&w);
        if (k == 0) without = copy;
        if (k == 1) assert_int_equal(copy.n_cached, 0);
        if (k == 1) expect_same(&copy, &without);
    }
}

static void a_sequence_that_must_not_be_cached_is_neither_kept_nor_found(void **state) {
    (void)state;
    context w;
    request t = new_request(1, N_PROMPT);
    open_context(&w, 1, N_CTX, true);
    submit(&w, &t, true);
    run(&w);
    close_context(&w);
    request first = run_one(1, true, 1, N_PROMPT);
    assert_int_equal(first.n_cached, 0);
    open_context(&w, 1, N_CTX, true);
    request again = new_request(1, N_PROMPT);
    submit(&w, &again, true);
    run(&w);
    close_context(&w);
    assert_int_equal(again.n_cached, 0);
    expect_same(&again, &first);
}

// Counts a member's pages: of its layers, or (of_border) of the hidden states that it sent on.
static int count_pages(int member, bool of_border) {
    char path[200];
    int n = 0;
    snprintf(path, sizeof path, "%s/%d/kv", root, member);
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        char inner[600];
        snprintf(inner, sizeof inner, "%s/%s", path, e->d_name);
        DIR *in = e->d_name[0] == '.' ? NULL : opendir(inner);
        for (struct dirent *f; in && (f = readdir(in));) {
            char file[1000];
            struct stat st;
            snprintf(file, sizeof file, "%s/%s", inner, f->d_name);
            if (strchr(f->d_name, '.') || stat(file, &st) != 0) continue;
            n += (st.st_size == N_EMBD * KIN_KV_CELLS * (int)sizeof(float) + KIN_KV_PAGE_FRAME) == of_border;
        }
        if (in) closedir(in);
    }
    if (d) closedir(d);
    return n;
}

// Pages are written for the steps that were in flight when the first one came back.
static void a_prompt_is_kept_while_it_is_computed(void **state) {
    (void)state;
    context w;
    request t = new_request(1, N_PROMPT);
    kin_err err;
    bool busy;
    open_context(&w, N, N_CTX, true);
    submit(&w, &t, false);
    assert_int_equal(kin_scheduler_step(w.s, &busy, &err), 0);
    int n_sent = (8 - 8 / 2) * N_BATCH / KIN_KV_CELLS; // half of the 8 messages in flight may be page requests
    for (int ms = 0; ms < 20000 && (count_pages(0, false) < n_sent * N_LAYER / N || count_pages(0, true) < n_sent); ms += 10)
        usleep(10000);
    assert_true(count_pages(0, false) >= n_sent * N_LAYER / N);
    assert_true(count_pages(0, true) >= n_sent);
    run(&w);
    close_context(&w);
    request without = run_one(N, false, 1, N_PROMPT);
    expect_same(&t, &without);
}

// A sequence whose every next token is the second draft, in a branch.
typedef struct branching {
    request t;
    int32_t made[N_MADE + 1];
} branching;

static int32_t next_noted(void *user, float *logits) {
    branching *b = user;
    int32_t id = next(&b->t, logits);
    b->made[b->t.n_made - 1] = id;
    return id;
}

static void propose_second(void *user, const int32_t *tokens, int n, int most, kin_draft *out) {
    const branching *known = user;
    int32_t right = known->made[n - known->t.n_prompt];
    (void)tokens;
    out->kind = KIN_DRAFT_NGRAM;
    if (most < 2 || right < 0) return;
    kin_draft_add(out, -1, (right + 1) % N_VOCAB, 0);
    kin_draft_add(out, -1, right, 0);
}

static branching run_branching(int n_prompt, const branching *known) {
    context w;
    branching b = {.t = new_request(1, n_prompt)};
    kin_draft_source drafts = {.propose = propose_second, .user = (void *)known};
    kin_generation_options o = {.prompt = b.t.prompt, .n_prompt = n_prompt, .next = next_noted, .ended = ended, .user = &b};
    kin_generation *g;
    kin_err err;
    if (known) o.drafts = &drafts;
    draft_least = 2;
    open_context(&w, N, N_CTX, known != NULL);
    draft_least = 0;
    if (kin_scheduler_submit(w.s, &o, &g, &err) != 0) fail_msg("%s", err.text);
    run(&w);
    if (known) assert_true(kin_scheduler_get_stats(w.s).drafts.accepted_branches > 0);
    close_context(&w);
    return b;
}
#define run_branching(...) FROM_TEST(run_branching(__VA_ARGS__))

// Generation continues in the branch, so the sequence whose page is about to be written is dropped. All members keep the page.
static void a_block_that_is_full_when_a_branch_is_right_is_kept(void **state) {
    (void)state;
    for (int n_prompt = KIN_KV_CELLS - 4; n_prompt < KIN_KV_CELLS; n_prompt++) {
        branching plain = run_branching(n_prompt, NULL), drafted = run_branching(n_prompt, &plain);
        assert_memory_equal(drafted.made, plain.made, sizeof plain.made);
        for (int member = 0; member < N; member++) assert_int_equal(count_pages(member, false), N_LAYER / N);
        remove_root(NULL);
    }
}

// The prompt has more tokens than the log of sent hidden states has rows.
static void of_a_long_prompt_all_is_logged(void **state) {
    (void)state;
    enum { N_BLOCKS = 24, LONG = N_BLOCKS * KIN_KV_CELLS + 1 };
    static int32_t prompt[LONG];
    context w;
    request t = {.n_prompt = LONG};
    kin_generation_options o = {.prompt = prompt, .n_prompt = LONG, .next = next, .ended = ended, .user = &t};
    kin_generation *g;
    kin_err err;
    for (int i = 0; i < LONG; i++) prompt[i] = (i * 37 + i / 3) % N_VOCAB;
    assert_true(kin_border_log_most_bytes(N_EMBD, N_BATCH) < (uint64_t)N_BLOCKS * KIN_KV_CELLS * N_EMBD * sizeof(float));
    open_context(&w, N, 2 * N_CTX, true);
    assert_int_equal(kin_scheduler_submit(w.s, &o, &g, &err), 0);
    run(&w);
    close_context(&w);
    for (int member = 0; member < N; member++) assert_int_equal(count_pages(member, true), member < N - 1 ? N_BLOCKS : 0);
}

// Counts the tokens after the last full block of running sequences whose pages are kept.
static void tokens_beyond_pages_are_counted(void **state) {
    (void)state;
    for (int k = 0; k < 3; k++) {
        const bool has_pages = k != 1, no_cache = k == 2;
        context w;
        request t = new_request(1, N_PROMPT);
        kin_err err;
        bool busy = true;
        open_context(&w, 1, N_CTX, has_pages);
        submit(&w, &t, no_cache);
        while (busy && t.n_ended == 0) {
            if (kin_scheduler_step(w.s, &busy, &err) != 0) fail_msg("%s", err.text);
            if (t.n_made == 0 || t.n_ended > 0) continue;
            const int n_done = N_PROMPT + t.n_made - 1; // the last token has not been sent yet
            assert_int_equal(kin_scheduler_n_beyond_pages(w.s), has_pages && !no_cache ? n_done % KIN_KV_CELLS : 0);
        }
        assert_int_equal(kin_scheduler_n_beyond_pages(w.s), 0);
        close_context(&w);
    }
}

// One member's pages are deleted: all tokens are computed and kept again.
static void a_member_without_its_pages_is_made_up_for(void **state) {
    (void)state;
    for (int i = 0; i < N; i++) {
        char command[128];
        request first = run_one(N, true, 1, SHORT);
        snprintf(command, sizeof command, "rm -rf %s/%d", root, i);
        assert_int_equal(system(command), 0);
        request again = run_one(N, true, 1, SHORT), third = run_one(N, true, 1, SHORT);
        assert_int_equal(again.n_cached, 0);
        assert_int_equal(third.n_cached, SHORT / KIN_KV_CELLS * KIN_KV_CELLS);
        expect_same(&again, &first);
        expect_same(&third, &first);
    }
}

// Flips a bit. (Writing a fixed byte into the encrypted file would change nothing in one of 256 cases.)
static void flip_byte(const char *path) {
    int fd = open(path, O_RDWR);
    uint8_t byte;
    assert_int_equal(pread(fd, &byte, 1, 4000), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, 4000), 1);
    close(fd);
}

// Damages one page in each of a member's folders, or (removes) deletes every other page.
static void harm(int member, bool removes) {
    char path[200];
    int n;
    snprintf(path, sizeof path, "%s/%d/kv", root, member);
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        char inner[600];
        snprintf(inner, sizeof inner, "%s/%s", path, e->d_name);
        DIR *in = e->d_name[0] == '.' ? NULL : opendir(inner);
        n = 0;
        for (struct dirent *f; in && (f = readdir(in));) {
            char file[1000];
            if (f->d_name[0] == '.') continue;
            snprintf(file, sizeof file, "%s/%s", inner, f->d_name);
            n++;
            if (removes && n % 2) unlink(file);
            if (!removes && n == 3) flip_byte(file);
        }
        if (in) closedir(in);
    }
    if (d) closedir(d);
}
#define harm(...) FROM_TEST(harm(__VA_ARGS__))

static void damaged_and_missing_pages_are_computed(void **state) {
    (void)state;
    for (int removes = 0; removes < 2; removes++) {
        request first = run_one(N, true, 1, N_PROMPT);
        harm(1, removes);
        request again = run_one(N, true, 1, N_PROMPT);
        assert_true(again.n_cached < N_FULL * KIN_KV_CELLS);
        expect_same(&again, &first);
        request third = run_one(N, true, 1, N_PROMPT);
        assert_int_equal(third.n_cached, N_FULL * KIN_KV_CELLS);
        expect_same(&third, &first);
    }
}

// ---- wrong steps

// Overwrites the weights of the last norm in the model's file, which is mapped. With NaN no logit is a number.
static void set_output_norm(const float *weights, float *before) {
    kin_gguf *gguf;
    kin_err err;
    if (kin_gguf_open(&gguf, model_path, &err) != 0) fail_msg("%s", err.text);
    const kin_gguf_tensor *t = kin_gguf_find_tensor(gguf, "output_norm.weight");
    int fd = open(model_path, O_RDWR);
    if (before) assert_int_equal(pread(fd, before, N_EMBD * sizeof *before, (off_t)t->offset), N_EMBD * sizeof *before);
    assert_int_equal(pwrite(fd, weights, N_EMBD * sizeof *weights, (off_t)t->offset), N_EMBD * sizeof *weights);
    close(fd);
    kin_gguf_close(gguf);
}

static int32_t next_number(void *user, float *logits) {
    if (!isfinite(logits[0])) return KIN_GENERATION_NO_TOKEN;
    return next(user, logits);
}

static bool fails_to_drop; // the first two requests to drop pages cannot name them

// Runs a sequence while the last norm is NaN: until a wrong step has been noticed, and again behind the next token until
// `n_times` have been; 0: until the end.
static request run_wrong(int n_members, uint64_t n_times, uint64_t *n_wrong) {
    context w;
    request t = new_request(1, N_PROMPT);
    float nan[N_EMBD], good[N_EMBD];
    kin_err err;
    for (int i = 0; i < N_EMBD; i++) nan[i] = NAN;
    open_context(&w, n_members, N_CTX, true);
    const kin_generation_options o = {
        .prompt = t.prompt, .n_prompt = N_PROMPT, .next = next_number, .progress = progress, .ended = ended, .user = &t};
    kin_generation *g;
    if (kin_scheduler_submit(w.s, &o, &g, &err) != 0) fail_msg("%s", err.text);
    int n_made = 0; // when it was last wrong
    bool busy = true, is_wrong = true;
    *n_wrong = 0;
    for (int i = 0; i < 3; i++) { // until the disks' folders are named, which needs the unmodified file
        if (kin_scheduler_step(w.s, &busy, &err) != 0) fail_msg("%s", err.text);
    }
    kin_gguf_set_filled(kin_thread_ring_model(w.ring)->gguf); // otherwise the change of the file would end the sequence
    set_output_norm(nan, good);
    while (busy) {
        const uint64_t n_before = *n_wrong;
        if (kin_scheduler_step(w.s, &busy, &err) != 0) fail_msg("%s", err.text);
        *n_wrong = kin_scheduler_get_stats(w.s).n_wrong;
        if (*n_wrong > n_before) n_hashes_fail = fails_to_drop ? 2 : 0;
        if (n_times > 0 && *n_wrong > n_before) {
            set_output_norm(good, NULL);
            is_wrong = false;
            n_made = t.n_made;
        } else if (!is_wrong && *n_wrong < n_times && t.n_made > n_made) {
            set_output_norm(nan, NULL);
            is_wrong = true;
        }
    }
    set_output_norm(good, NULL);
    close_context(&w);
    return t;
}
#define run_wrong(...) FROM_TEST(run_wrong(__VA_ARGS__))

static void a_step_without_numbers_is_computed_again_once(void **state) {
    (void)state;
    for (int n = 1; n <= N; n += N - 1) {
        uint64_t n_wrong;
        remove_root(NULL);
        request without = run_one(n, false, 1, N_PROMPT), t = run_wrong(n, 1, &n_wrong);
        assert_int_equal(n_wrong, 1);
        expect_same(&t, &without);
        t = run_wrong(n, 2, &n_wrong); // each step once
        assert_int_equal(n_wrong, 2);
        expect_same(&t, &without);
        t = run_wrong(n, 0, &n_wrong);
        assert_int_equal(n_wrong, 1);
        assert_int_equal(t.n_ended, 1);
        assert_int_equal(t.n_made, 0);
    }
}

// Gives each of a member's pages a second name, DIR/pages-M-0, ..., by which one sees whether it is removed; returns how many.
static int link_pages(int member) {
    char path[200];
    int n = 0;
    snprintf(path, sizeof path, "%s/%d/kv", root, member);
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        char inner[600];
        snprintf(inner, sizeof inner, "%s/%s", path, e->d_name);
        DIR *in = e->d_name[0] == '.' ? NULL : opendir(inner);
        for (struct dirent *f; in && (f = readdir(in));) {
            char file[1200], second[200];
            snprintf(file, sizeof file, "%s/%s", inner, f->d_name);
            snprintf(second, sizeof second, "%s/pages-%d-%d", root, member, n);
            if (!strchr(f->d_name, '.') && link(file, second) == 0) n++;
        }
        if (in) closedir(in);
    }
    if (d) closedir(d);
    return n;
}

// Returns how many of a member's n linked pages are still on its disk.
static int count_linked(int member, int n) {
    int n_there = 0;
    for (int i = 0; i < n; i++) {
        char second[200];
        struct stat st;
        snprintf(second, sizeof second, "%s/pages-%d-%d", root, member, i);
        assert_int_equal(stat(second, &st), 0);
        n_there += st.st_nlink > 1;
    }
    return n_there;
}
#define count_linked(...) FROM_TEST(count_linked(__VA_ARGS__))

// The sequence was loaded from the disks, its logits were not numbers, and its pages were removed.
static void the_pages_of_a_wrong_sequence_leave_all_disks(void **state) {
    (void)state;
    for (int k = 0; k < 4; k++) {
        const int n = k % 2 ? N : 1;
        int n_pages[N];
        uint64_t n_wrong;
        fails_to_drop = k >= 2;
        remove_root(NULL);
        request first = run_one(n, true, 1, N_PROMPT);
        for (int i = 0; i < n; i++) assert_true((n_pages[i] = link_pages(i)) >= N_FULL * N_LAYER / n);
        request t = run_wrong(n, 0, &n_wrong);
        assert_int_equal(n_wrong, 1);
        for (int i = 0; i < n; i++) assert_int_equal(count_linked(i, n_pages[i]), 0);
        remove_root(NULL); // the pages that the second attempt kept
        request again = run_wrong(n, 1, &n_wrong);
        expect_same(&again, &first);
        t = run_one(n, true, 1, N_PROMPT);
        assert_int_equal(t.n_cached, N_FULL * KIN_KV_CELLS); // from the second attempt
        expect_same(&t, &first);
    }
    fails_to_drop = false;
}

// A page belongs to a layer, so another member with this layer can use it if it is on its disk.
static void members_of_another_plan_find_the_pages(void **state) {
    (void)state;
    is_one_disk = true;
    request first = run_one(N, true, 1, N_PROMPT), fewer = run_one(2, true, 1, N_PROMPT), alone = run_one(1, true, 1, N_PROMPT);
    is_one_disk = false;
    assert_int_equal(first.n_cached, 0);
    assert_int_equal(fewer.n_cached, N_FULL * KIN_KV_CELLS);
    assert_int_equal(alone.n_cached, N_FULL * KIN_KV_CELLS);
    expect_same(&fewer, &first);
    expect_same(&alone, &first);
}

// A sequence continues in another ring: only tokens that are not in a page are computed again.
static void a_sequence_goes_on_in_another_ring_with_its_pages(void **state) {
    (void)state;
    context w, smaller;
    bool busy = true;
    kin_err err;
    request expected = run_one(N, false, 1, N_PROMPT), t = new_request(1, N_PROMPT);
    is_one_disk = true;
    open_context(&w, N, N_CTX, true);
    open_context(&smaller, 2, N_CTX, true);
    is_one_disk = false;
    submit(&w, &t, false);
    while (t.n_made < 2) assert_int_equal(kin_scheduler_step(w.s, &busy, &err), 0);
    assert_int_equal(kin_scheduler_settle(w.s, &err), 0);
    kin_thread_ring_close(w.ring); // waits until its pages are written
    assert_int_equal(kin_scheduler_set_head(w.s, kin_thread_ring_head(smaller.ring), &err), 0);
    w.ring = NULL;
    run(&w);
    uint64_t n_replayed = kin_scheduler_get_stats(w.s).n_replayed_tokens;
    assert_in_range(n_replayed, 1, KIN_KV_CELLS);
    expect_same(&t, &expected);
    close_context(&w);
    close_context(&smaller);
}

// Sequences are computed while others are loaded; some share a prefix with them.
static void sequences_beside_each_other_are_what_they_are_alone(void **state) {
    (void)state;
    request alone[4], requests[4];
    const int seeds[] = {1, 2, 1, 3}, n_prompts[] = {300, 200, 260, 100};
    for (int i = 0; i < 4; i++) alone[i] = run_one(N, false, seeds[i], n_prompts[i]);
    run_one(N, true, 1, 300);
    run_one(N, true, 2, 130);
    for (int k = 0; k < 2; k++) { // the second time all pages are found
        context w;
        open_context(&w, N, N_CTX, true);
        for (int i = 0; i < 4; i++) {
            requests[i] = new_request(seeds[i], n_prompts[i]);
            submit(&w, &requests[i], false);
        }
        run(&w);
        close_context(&w);
        for (int i = 0; i < 4; i++) expect_same(&requests[i], &alone[i]);
        assert_int_equal(requests[0].n_cached, 256);
        assert_int_equal(requests[1].n_cached, k ? 192 : 128);
        assert_int_equal(requests[3].n_cached, k ? 64 : 0);
    }
}

// A prefix that is in memory is taken from memory, and the rest from the disks.
static void the_disks_have_more_than_the_memory(void **state) {
    (void)state;
    request alone = run_one(1, false, 1, 500);
    run_one(1, true, 1, 500);
    context w;
    open_context(&w, 1, N_CTX, true);
    request shorter = new_request(1, 100), again = new_request(1, 500);
    submit(&w, &shorter, false);
    run(&w);
    submit(&w, &again, false);
    run(&w);
    close_context(&w);
    assert_int_equal(again.n_cached, 500 / KIN_KV_CELLS * KIN_KV_CELLS);
    expect_same(&again, &alone);
}

static void a_sequence_that_is_erased_is_not_found_any_more(void **state) {
    (void)state;
    context w;
    request t = new_request(1, 200);
    open_context(&w, 1, N_CTX, true);
    submit(&w, &t, false);
    run(&w);
    assert_int_equal(kin_scheduler_erase(w.s, 0), 200 + N_MADE);
    request again = new_request(1, 200);
    submit(&w, &again, false);
    run(&w);
    close_context(&w);
    assert_int_equal(again.n_cached, 0);
    expect_same(&again, &t);
}

static void a_sequence_is_cancelled_while_it_is_loaded(void **state) {
    (void)state;
    run_one(N, true, 1, N_PROMPT);
    context w;
    open_context(&w, N, N_CTX, true);
    request t = new_request(1, N_PROMPT);
    kin_generation_options o = {.prompt = t.prompt, .n_prompt = N_PROMPT, .next = next, .ended = ended, .user = &t};
    kin_generation *g;
    kin_err err;
    bool busy;
    assert_int_equal(kin_scheduler_submit(w.s, &o, &g, &err), 0);
    assert_int_equal(kin_scheduler_step(w.s, &busy, &err), 0);
    assert_true(kin_head_n_in_flight(kin_thread_ring_head(w.ring)) == 0);
    kin_scheduler_cancel(w.s, g);
    run(&w);
    assert_int_equal(t.n_ended, 1);
    assert_int_equal(t.how, KIN_GENERATION_CANCELLED);
    close_context(&w);
}

// As if a user stopped the program: pages that arrive afterwards belong to sequences that have ended.
static void sequences_fail_while_they_are_loaded(void **state) {
    (void)state;
    const kin_err why = {"stopped"};
    request first = run_one(N, true, 1, SHORT), requests[2];
    run_one(N, true, 2, SHORT);
    context w;
    bool busy;
    kin_err err;
    open_context(&w, N, N_CTX, true);
    for (int i = 0; i < 2; i++) {
        requests[i] = new_request(i + 1, SHORT);
        submit(&w, &requests[i], false);
    }
    assert_int_equal(kin_scheduler_step(w.s, &busy, &err), 0);
    assert_true(kin_head_n_in_flight(kin_thread_ring_head(w.ring)) > 0);
    kin_scheduler_fail(w.s, &why);
    uint64_t n_cached = kin_scheduler_get_stats(w.s).n_cached_tokens;
    assert_int_equal(kin_scheduler_settle(w.s, &err), 0);
    assert_int_equal(kin_scheduler_get_stats(w.s).n_cached_tokens, n_cached);
    for (int i = 0; i < 2; i++) assert_int_equal(requests[i].how, KIN_GENERATION_FAILED);
    request again = new_request(1, SHORT);
    submit(&w, &again, false);
    run(&w);
    close_context(&w);
    expect_same(&again, &first);
}

// ---- what followed

static kin_prefix_pages *open_pages(void) {
    kin_prefix_pages *pages;
    kin_prefix_pages_options o = {.disk = {.dir = root}, .context = "model", .n_context = 5};
    kin_err err;
    if (kin_prefix_pages_open(&pages, &o, &err) != 0) fail_msg("%s", err.text);
    return pages;
}
#define open_pages(...) FROM_TEST(open_pages(__VA_ARGS__))

static void keep_tokens(const int32_t *tokens, int first, int n) {
    kin_page_key keys[KIN_PAGES_MAX];
    kin_prefix_pages *pages = open_pages();
    assert_true(kin_prefix_pages_name(pages, tokens, first, n, keys));
    kin_prefix_pages_keep(pages, tokens, first, n, keys, &(kin_border_set){0});
    kin_prefix_pages_close(pages);
}
#define keep_tokens(...) FROM_TEST(keep_tokens(__VA_ARGS__))

static void expect_next(const int32_t *tokens, int n_blocks, const int32_t *expected) {
    int32_t next_block[KIN_KV_CELLS];
    kin_prefix_pages *pages = open_pages();
    assert_true(kin_prefix_pages_next(pages, tokens, n_blocks, next_block) == (expected != NULL));
    if (expected) assert_memory_equal(next_block, expected, sizeof next_block);
    kin_prefix_pages_close(pages);
}
#define expect_next(...) FROM_TEST(expect_next(__VA_ARGS__))

static void what_followed_last_is_known(void **state) {
    (void)state;
    request a = new_request(1, N_PROMPT), b = a;
    for (int i = 2 * KIN_KV_CELLS; i < N_PROMPT; i++) b.prompt[i] = 7;
    keep_tokens(a.prompt, 0, 2);
    expect_next(a.prompt, 1, a.prompt + KIN_KV_CELLS);
    expect_next(a.prompt, 2, NULL);
    keep_tokens(a.prompt, 2, 3);
    expect_next(a.prompt, 2, a.prompt + 2 * KIN_KV_CELLS);
    expect_next(a.prompt, 4, a.prompt + 4 * KIN_KV_CELLS);
    keep_tokens(b.prompt, 2, 1);
    expect_next(a.prompt, 2, b.prompt + 2 * KIN_KV_CELLS);
    expect_next(a.prompt, 4, a.prompt + 4 * KIN_KV_CELLS);
    kin_prefix_pages *pages = open_pages();
    kin_prefix_pages_forget(pages, a.prompt, 2);
    kin_prefix_pages_close(pages);
    expect_next(a.prompt, 1, NULL);
    expect_next(a.prompt, 2, NULL);
}

// Three pages of a ring with a hop before layer 4, and one of a later ring.
static void each_page_has_the_borders_of_the_ring_that_computed_it(void **state) {
    (void)state;
    request a = new_request(1, N_PROMPT);
    kin_page_key keys[4];
    kin_border_set before = {0}, after, got;
    kin_border_set_add(&before, 4);
    after = before;
    kin_border_set_add(&after, KIN_BORDER_SET_LAYERS - 1);
    kin_border_set_add(&after, KIN_BORDER_SET_LAYERS); // out of range, ignored
    kin_prefix_pages *pages = open_pages();
    assert_true(kin_prefix_pages_name(pages, a.prompt, 0, 4, keys));
    kin_prefix_pages_keep(pages, a.prompt, 0, 3, keys, &before);
    kin_prefix_pages_keep(pages, a.prompt, 3, 1, keys + 3, &after);
    kin_prefix_pages_close(pages);
    pages = open_pages();
    assert_int_equal(kin_prefix_pages_find(pages, a.prompt, 0, 4), 4);
    assert_int_equal(kin_prefix_pages_borders(pages, keys, 2, &got), 2);
    assert_int_equal(kin_prefix_pages_borders(pages, keys, 4, &got), 3);
    assert_true(kin_border_set_has(&got, 4) && !kin_border_set_has(&got, 5) &&
                !kin_border_set_has(&got, KIN_BORDER_SET_LAYERS - 1));
    assert_int_equal(kin_prefix_pages_borders(pages, keys + 3, 1, &got), 1);
    assert_true(kin_border_set_has(&got, 4) && kin_border_set_has(&got, KIN_BORDER_SET_LAYERS - 1) &&
                !kin_border_set_has(&got, KIN_BORDER_SET_LAYERS));
    kin_prefix_pages_close(pages);
}

static void what_is_forgotten_is_not_written_later(void **state) {
    (void)state;
    request a = new_request(1, N_PROMPT);
    kin_page_key keys[KIN_PAGES_MAX];
    kin_prefix_pages *pages = open_pages();
    assert_true(kin_prefix_pages_name(pages, a.prompt, 0, KIN_PAGES_MAX, keys));
    kin_prefix_pages_keep(pages, a.prompt, 0, KIN_PAGES_MAX, keys, &(kin_border_set){0});
    kin_prefix_pages_forget(pages, a.prompt, KIN_PAGES_MAX);
    kin_prefix_pages_close(pages);
    pages = open_pages();
    assert_int_equal(kin_prefix_pages_find(pages, a.prompt, 0, KIN_PAGES_MAX), 0);
    kin_prefix_pages_close(pages);
}

static void the_drafter_has_what_followed_as_long_as_it_fits(void **state) {
    (void)state;
    request a = new_request(1, N_PROMPT);
    kin_drafter *drafter;
    kin_draft draft;
    kin_err err;
    keep_tokens(a.prompt, 0, 3);
    kin_prefix_pages *pages = open_pages();
    assert_int_equal(kin_drafter_open(&drafter, pages, &err), 0);
    const kin_draft_source *source = kin_drafter_source(drafter);
    source->propose(source->user, a.prompt, KIN_KV_CELLS, KIN_DRAFT_MAX, &draft);
    assert_int_equal(draft.kind, KIN_DRAFT_EARLIER);
    assert_int_equal(draft.n, KIN_DRAFT_MAX);
    assert_memory_equal(draft.tokens, a.prompt + KIN_KV_CELLS, sizeof draft.tokens);
    source->propose(source->user, a.prompt, 3 * KIN_KV_CELLS - 2, KIN_DRAFT_MAX, &draft);
    assert_int_equal(draft.n, 2);
    assert_memory_equal(draft.tokens, a.prompt + 3 * KIN_KV_CELLS - 2, 2 * sizeof *draft.tokens);
    a.prompt[3 * KIN_KV_CELLS - 2] = 3; // another token than before
    source->propose(source->user, a.prompt, 3 * KIN_KV_CELLS - 1, KIN_DRAFT_MAX, &draft);
    assert_true(draft.n == 0 || draft.kind == KIN_DRAFT_NGRAM);
    kin_drafter_close(drafter);
    kin_prefix_pages_close(pages);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_sequence_is_found_after_a_restart, make_root, remove_root),
        cmocka_unit_test_setup_teardown(what_cannot_be_named_is_kept_later, make_root, remove_root),
        cmocka_unit_test_setup_teardown(a_sequence_is_kept_and_found_in_a_ring_of_several_rounds, make_root, remove_root),
        cmocka_unit_test_setup_teardown(a_block_that_is_full_when_a_branch_is_right_is_kept, make_root, remove_root),
        cmocka_unit_test_setup_teardown(what_followed_last_is_known, make_root, remove_root),
        cmocka_unit_test_setup_teardown(each_page_has_the_borders_of_the_ring_that_computed_it, make_root, remove_root),
        cmocka_unit_test_setup_teardown(what_is_forgotten_is_not_written_later, make_root, remove_root),
        cmocka_unit_test_setup_teardown(the_drafter_has_what_followed_as_long_as_it_fits, make_root, remove_root),
        cmocka_unit_test_setup_teardown(a_prompt_of_whole_blocks_computes_its_last_one, make_root, remove_root),
        cmocka_unit_test_setup_teardown(a_sequence_with_another_beginning_is_not_found, make_root, remove_root),
        cmocka_unit_test_setup_teardown(a_sequence_that_must_not_be_cached_is_neither_kept_nor_found, make_root, remove_root),
        cmocka_unit_test_setup_teardown(a_prompt_is_kept_while_it_is_computed, make_root, remove_root),
        cmocka_unit_test_setup_teardown(of_a_long_prompt_all_is_logged, make_root, remove_root),
        cmocka_unit_test_setup_teardown(tokens_beyond_pages_are_counted, make_root, remove_root),
        cmocka_unit_test_setup_teardown(a_member_without_its_pages_is_made_up_for, make_root, remove_root),
        cmocka_unit_test_setup_teardown(a_step_without_numbers_is_computed_again_once, make_root, remove_root),
        cmocka_unit_test_setup_teardown(the_pages_of_a_wrong_sequence_leave_all_disks, make_root, remove_root),
        cmocka_unit_test_setup_teardown(members_of_another_plan_find_the_pages, make_root, remove_root),
        cmocka_unit_test_setup_teardown(a_sequence_goes_on_in_another_ring_with_its_pages, make_root, remove_root),
        cmocka_unit_test_setup_teardown(damaged_and_missing_pages_are_computed, make_root, remove_root),
        cmocka_unit_test_setup_teardown(sequences_beside_each_other_are_what_they_are_alone, make_root, remove_root),
        cmocka_unit_test_setup_teardown(the_disks_have_more_than_the_memory, make_root, remove_root),
        cmocka_unit_test_setup_teardown(a_sequence_that_is_erased_is_not_found_any_more, make_root, remove_root),
        cmocka_unit_test_setup_teardown(a_sequence_is_cancelled_while_it_is_loaded, make_root, remove_root),
        cmocka_unit_test_setup_teardown(sequences_fail_while_they_are_loaded, make_root, remove_root),
    };
    return cmocka_run_group_tests(tests, make_model, remove_model);
}
