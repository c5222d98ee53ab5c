// Models with layers that store no pages (recurrent ones, windowed ones): their states are on the disks at checkpoints. A
// sequence goes on at the last one after a restart or in another ring, with the same logits as when it runs alone, and little is
// computed twice.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "pipeline/scheduler.h"
#include "testkit/small_models.h"
#include "testkit/thread_ring.h"
#include "tests/memory_dir.h"
#include "tests/place.h"
#include "tests/small_request.h"

enum {
    N_VOCAB = KIN_SMALL_VOCAB,
    N_CTX = 16384,
    N_BATCH = 64,
    GAP = 1024,
    MAX_PROMPT = SMALL_REQUEST_PROMPT,
    MAX_MADE = SMALL_REQUEST_MADE,
};

static kin_small_model kind;
static char model_path[64], root[64];
static request restarted; // what check_restart() expects of this model; n_made is 0 until it has been computed

static int make_model(kin_small_model of) {
    kin_err err;
    kind = of;
    restarted.n_made = 0;
    strcpy(model_path, "/tmp/kin-test-checkpoints-XXXXXX");
    return kin_small_model_make(kind, model_path, &err);
}

static int make_delta(void **state) {
    (void)state;
    return make_model(KIN_SMALL_DELTA);
}

static int make_conv(void **state) {
    (void)state;
    return make_model(KIN_SMALL_CONV);
}

static int make_windowed(void **state) {
    (void)state;
    return make_model(KIN_SMALL_WINDOWED);
}

static int make_shared(void **state) {
    (void)state;
    return make_model(KIN_SMALL_SHARED);
}

static int remove_model(void **state) {
    (void)state;
    return unlink(model_path);
}

static bool is_one_disk; // all members use DIR/0
static bool has_no_disk; // only the head has one
static int n_parallel, n_batch, gap;

static int make_root(void **state) {
    (void)state;
    is_one_disk = has_no_disk = false;
    n_parallel = 1;
    n_batch = N_BATCH;
    gap = GAP;
    snprintf(root, sizeof root, "%s/kin-test-checkpoints-XXXXXX", memory_dir());
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state) {
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

// ---- sequences

static void begin_request(request *t, int n_made) {
    t->n_made = t->n_ended = t->n_cached = 0;
    t->logits = 0;
    t->n_most = n_made;
}

static void make_request(request *t, int seed, int n_prompt, int n_made) {
    t->n_prompt = 0;
    begin_request(t, n_made);
    request_add_tokens(t, seed, n_prompt);
}

// ---- a ring whose members keep pages in DIR/0, DIR/1, ...; the head keeps the tokens in DIR/head

typedef struct context {
    kin_thread_ring *ring;
    kin_scheduler *s;
    kin_prefix_pages *pages; // NULL: nothing is on disks
} context;

static void open_context(context *w, int n_members, int n_rounds, bool has_pages) {
    static char dirs[KIN_THREAD_RING_MEMBERS][80];
    const int n_layer = kin_small_model_n_layer(kind);
    kin_thread_ring_options o = {
        .n_members = n_members, .n_batch = n_batch, .n_ctx = N_CTX, .n_steps = n_members > 1 ? 8 : 1, .n_sequences = n_parallel};
    char head[80];
    kin_err err;
    *w = (context){0};
    for (int i = 0; i < n_members; i++) {
        o.shares[i] = (kin_layer_share){n_layer / n_members / n_rounds, 0, 0};
        snprintf(dirs[i], sizeof dirs[i], "%s/%d", root, is_one_disk ? 0 : i);
        if (has_pages && !has_no_disk) o.kv_dirs[i] = dirs[i];
    }
    snprintf(head, sizeof head, "%s/head", root);
    const kin_prefix_pages_options po = {.disk = {.dir = head}, .context = "model", .n_context = 5};
    if (has_pages && kin_prefix_pages_open(&w->pages, &po, &err) != 0) fail_msg("%s", err.text);
    if (kin_thread_ring_open(&w->ring, model_path, &o, &err) != 0) fail_msg("%s", err.text);
    assert_int_equal(kin_thread_ring_n_rounds(w->ring), n_rounds);
    const kin_hparams *hp = &kin_thread_ring_model(w->ring)->hp;
    const kin_scheduler_options so = {.n_ctx = N_CTX,
                                      .n_vocab = N_VOCAB,
                                      .n_embd = kin_small_model_n_embd(kind),
                                      .n_states = kin_kv_n_states(hp, N_CTX),
                                      .window = kin_kv_window_of(hp, N_CTX, n_batch, n_parallel),
                                      .n_parallel = n_parallel,
                                      .keeps = true,
                                      .pages = w->pages,
                                      .checkpoint_gap = gap};
    if (kin_scheduler_open(&w->s, &so, &err) != 0 || kin_scheduler_set_head(w->s, kin_thread_ring_head(w->ring), &err) != 0)
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

#define submit(w, t) request_submit((w)->s, t)
#define run(w) request_run_all((w)->s)

static void run_in(int n_members, int n_rounds, bool has_pages, request *t) {
    context w;
    open_context(&w, n_members, n_rounds, has_pages);
    begin_request(t, t->n_most);
    submit(&w, t);
    run(&w);
    close_context(&w);
    assert_int_equal(t->n_ended, 1);
    assert_int_equal(t->how, KIN_GENERATION_DONE);
}
#define run_in(...) FROM_TEST(run_in(__VA_ARGS__))

static void expect_same(const request *a, const request *b) {
    assert_int_equal(a->n_made, b->n_made);
    assert_memory_equal(a->made, b->made, (size_t)a->n_made * sizeof *a->made);
    assert_true(a->logits == b->logits);
}
#define expect_same(...) FROM_TEST(expect_same(__VA_ARGS__))

// ---- files on the disks

// Calls `found` for each page of a member's disk.
static void for_each_page(const char *member, void (*found)(void *user, const char *path, const char *name), void *user) {
    char path[200];
    snprintf(path, sizeof path, "%s/%s/kv", root, member);
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        char inner[600];
        snprintf(inner, sizeof inner, "%s/%s", path, e->d_name);
        DIR *in = e->d_name[0] == '.' ? NULL : opendir(inner);
        for (struct dirent *f; in && (f = readdir(in));) {
            char file[1000];
            snprintf(file, sizeof file, "%s/%s", inner, f->d_name);
            if (!strchr(f->d_name, '.')) found(user, file, f->d_name);
        }
        if (in) closedir(in);
    }
    if (d) closedir(d);
}

static void add_bytes(void *user, const char *path, const char *name) {
    struct stat st;
    (void)name;
    if (stat(path, &st) == 0) *(uint64_t *)user += (uint64_t)st.st_size;
}

static uint64_t bytes_on_disk(const char *member) {
    uint64_t bytes = 0;
    for_each_page(member, add_bytes, &bytes);
    return bytes;
}

enum { PAGE_BYTES = 2 * KIN_SMALL_DIM * 2 * KIN_KV_CELLS + KIN_KV_PAGE_FRAME }; // keys and values in F16

// Returns the layers of the model that store pages.
static int n_page_layers(void) {
    const int n_layer = kin_small_model_n_layer(kind);
    if (kind == KIN_SMALL_SHARED) return n_layer / 2 / 3;
    return kind == KIN_SMALL_WINDOWED ? n_layer / 4 : n_layer / 3;
}

// Returns the parts of all layers at a checkpoint.
static int n_parts(void) {
    const int n_own = kin_small_model_n_layer(kind) / (kind == KIN_SMALL_SHARED ? 2 : 1); // the others read keys of these
    const int n_states = n_own - n_page_layers();
    const int n_channels = KIN_SMALL_DIM * (2 * KIN_SMALL_KEY_HEADS + KIN_SMALL_VALUE_HEADS);
    const int n_delta = 3 * n_channels + KIN_SMALL_VALUE_HEADS * KIN_SMALL_DIM * KIN_SMALL_DIM; // floats
    const int page = PAGE_BYTES - KIN_KV_PAGE_FRAME;
    if (kind == KIN_SMALL_WINDOWED || kind == KIN_SMALL_SHARED)
        return n_states * 2; // 95 cells before the next one reach into two blocks
    return n_states * (kind == KIN_SMALL_CONV ? 1 : (4 * n_delta + page - 1) / page);
}

static uint64_t formula(int n_blocks, int n_checkpoints) {
    return (uint64_t)(n_blocks * n_page_layers() + n_checkpoints * n_parts()) * PAGE_BYTES;
}

// ---- an agent's conversation

enum { N_SYSTEM = 4000, N_TURN = 300, N_TURNS = 14, N_REPLY = 60 };

typedef struct replay {
    int n_new;   // prompt tokens that are in no prompt before
    int n_all;   // of all prompts
    int n_twice; // that were computed although they had been before
    uint64_t n_on_disk;
} replay;

// Returns how many tokens of the text were computed before: of the prompt and the reply before it.
static int n_known(const request *t, const int32_t *known, int n) {
    int i = 0;
    while (i < n && i < t->n_prompt - 1 && known[i] == t->prompt[i]) i++;
    return i;
}

// Turns are the prompt before, with its reply (drops: other tokens instead of it), and new tokens. The head ends after half of
// them.
static replay play(int n_members, bool drops) {
    static request t, alone;
    static int32_t known[MAX_PROMPT + MAX_MADE];
    replay r = {0};
    context w;
    int n = 0;
    make_request(&t, 5, N_SYSTEM, N_REPLY);
    open_context(&w, n_members, 1, true);
    for (int turn = 0; turn < N_TURNS; turn++) {
        if (turn == N_TURNS / 2) {
            close_context(&w);
            open_context(&w, n_members, 1, true);
        }
        begin_request(&t, N_REPLY);
        submit(&w, &t);
        run(&w);
        const int n_before = n_known(&t, known, n);
        r.n_all += t.n_prompt;
        r.n_new += t.n_prompt - (turn > 0 ? n_before : 0);
        r.n_twice += n_before > t.n_cached ? n_before - t.n_cached : 0;
        if (turn == N_TURNS / 2 || turn == N_TURNS - 1) {
            alone = t;
            run_in(1, 1, false, &alone);
            expect_same(&t, &alone);
        }
        n = t.n_prompt + t.n_made;
        memcpy(known, t.prompt, (size_t)t.n_prompt * sizeof *known);
        memcpy(known + t.n_prompt, t.made, (size_t)t.n_made * sizeof *known);
        for (int i = 0; i < t.n_made && !drops; i++) t.prompt[t.n_prompt++] = t.made[i];
        request_add_tokens(&t, 100 + turn, drops ? N_TURN : N_TURN - t.n_made);
    }
    close_context(&w);
    for (int i = 0; i < n_members; i++) {
        char member[16];
        snprintf(member, sizeof member, "%d", i);
        r.n_on_disk += bytes_on_disk(member);
    }
    return r;
}
#define play(...) FROM_TEST(play(__VA_ARGS__))

static void a_replay_computes_almost_nothing_twice(void **state) {
    (void)state;
    const replay r = play(1, false);
    const int n_blocks = (N_SYSTEM + (N_TURNS - 1) * N_TURN + N_REPLY) / KIN_KV_CELLS, n_gaps = n_blocks * KIN_KV_CELLS / gap;
    print_message("             %d of %d prompt tokens computed twice; %.1f MB on the disk\n", r.n_twice, r.n_new,
                  (double)r.n_on_disk / 1e6);
    assert_true(r.n_twice * 100 <= 3 * r.n_new);
    // The newest two, one at each gap, where the prompt parted from the one before the restart, and one between two gaps
    assert_in_range(r.n_on_disk, formula(n_blocks, n_gaps), formula(n_blocks + 1, 2 * n_gaps + 4));
}

// If the next prompt lacks the reply, the tokens after the last full block before the prompt's end are computed again.
static void a_replay_without_replies_computes_little_twice(void **state) {
    (void)state;
    const replay r = play(3, true);
    print_message("             %d of %d prompt tokens computed twice, of %d in all prompts\n", r.n_twice, r.n_new, r.n_all);
    assert_true(r.n_twice <= N_TURNS * (KIN_KV_CELLS + 8));
    assert_true(r.n_twice * 100 <= 3 * r.n_all);
}

// Short turns have checkpoints, too, though each is continued where it ended.
static void short_turns_are_found_after_a_restart(void **state) {
    static request t;
    context w;
    (void)state;
    make_request(&t, 17, 640, 10);
    open_context(&w, 1, 1, true);
    for (int turn = 0; turn < 8; turn++) {
        begin_request(&t, 10);
        submit(&w, &t);
        run(&w);
        if (turn > 0) assert_int_equal(t.n_cached, t.n_prompt - 20);
        for (int i = 0; i < t.n_made; i++) t.prompt[t.n_prompt++] = t.made[i];
        request_add_tokens(&t, turn, 20);
    }
    close_context(&w);
    run_in(1, 1, true, &t);
    assert_in_range(t.n_cached, t.n_prompt - 128 - KIN_KV_CELLS - 30, t.n_prompt);
}

// ---- restarts, other rings

static int end_of(const request *t) {
    return (t->n_prompt - 8) / KIN_KV_CELLS * KIN_KV_CELLS;
}

static void check_restart(int n_prompt, int n_members, int n_rounds, int n_members_then, int n_rounds_then) {
    static request first, second;
    remove_root(NULL);
    make_request(&first, 3, n_prompt, 40);
    second = first;
    request_add_tokens(&second, 4, 200);
    if (restarted.n_made == 0 || restarted.n_prompt != second.n_prompt) { // the same for every ring and batch
        restarted = second;
        run_in(1, 1, false, &restarted);
    }
    run_in(n_members, n_rounds, true, &first);
    run_in(n_members_then, n_rounds_then, true, &second);
    assert_int_equal(second.n_cached, end_of(&first));
    expect_same(&second, &restarted);
}
#define check_restart(...) FROM_TEST(check_restart(__VA_ARGS__))

static void a_sequence_is_found_after_a_restart(void **state) {
    (void)state;
    check_restart(1100, 1, 1, 1, 1);
    check_restart(1100, 3, 1, 3, 1);
    check_restart(1100, 3, 2, 3, 2);
    check_restart(1100, 2, 3, 2, 3);
}

// After a step of few tokens these are in a state's log.
static void steps_of_few_tokens_reach_checkpoints(void **state) {
    (void)state;
    gap = 256;
    for (n_batch = 5; n_batch <= 9; n_batch += 2) check_restart(500, 1, 1, 1, 1);
}

static void another_ring_finds_what_a_ring_has_stored(void **state) {
    (void)state;
    is_one_disk = true;
    check_restart(1100, 3, 1, 2, 1);
    check_restart(1100, 2, 1, 3, 1);
    check_restart(1100, 3, 2, 2, 1);
}

enum { N_TEXTS = 6 };

// Runs all texts at once, and expects those of `alone`. Returns how many began at the end of their prompt.
static int run_all(int n_members, int n_rounds, request *texts, const request *alone) {
    int n_found = 0;
    context w;
    open_context(&w, n_members, n_rounds, true);
    for (int i = 0; i < N_TEXTS; i++) {
        begin_request(&texts[i], texts[i].n_most);
        submit(&w, &texts[i]);
    }
    run(&w);
    close_context(&w);
    for (int i = 0; i < N_TEXTS; i++) {
        expect_same(&texts[i], &alone[i]);
        n_found += texts[i].n_cached == end_of(&texts[i]);
    }
    return n_found;
}
#define run_all(...) FROM_TEST(run_all(__VA_ARGS__))

// Texts are loaded while others run, with a common beginning or without.
static void texts_are_loaded_beside_each_other(void **state) {
    static request texts[N_TEXTS], alone[N_TEXTS];
    (void)state;
    for (int i = 0; i < N_TEXTS; i++) {
        make_request(&texts[i], i % 2 ? 1 : 20 + i, 300, 50);
        request_add_tokens(&texts[i], 30 + i, 150 + 50 * i);
        alone[i] = texts[i];
        run_in(1, 1, false, &alone[i]);
    }
    n_parallel = 4;
    for (int i = 0; i < 3; i++) {
        const int n_members = i == 0 ? 1 : 3, n_rounds = i == 2 ? 2 : 1;
        remove_root(NULL);
        assert_int_equal(run_all(n_members, n_rounds, texts, alone), 0);
        assert_int_equal(run_all(n_members, n_rounds, texts, alone), N_TEXTS);
    }
}

// A long reply has checkpoints, too.
static void a_reply_is_found_up_to_the_last_gap(void **state) {
    static request first, second, alone;
    (void)state;
    gap = 128;
    for (int n_members = 1; n_members <= 3; n_members += 2) {
        remove_root(NULL);
        make_request(&first, 7, 300, 600);
        run_in(n_members, 1, true, &first);
        second = first;
        for (int i = 0; i < first.n_made; i++) second.prompt[second.n_prompt++] = first.made[i];
        second.n_most = 20;
        alone = second;
        run_in(1, 1, false, &alone);
        run_in(n_members, 1, true, &second);
        assert_int_equal(second.n_cached, (second.n_prompt - 1) / gap * gap);
        expect_same(&second, &alone);
    }
}

// The ring is lost in mid-text; the next one has other members, and the disks of the first.
static void a_lost_ring_s_text_goes_on_at_the_last_checkpoint(void **state) {
    static request t, alone;
    (void)state;
    is_one_disk = true;
    gap = 256;
    make_request(&t, 9, 1000, 500);
    alone = t;
    run_in(1, 1, false, &alone);
    context w, then;
    kin_err err;
    bool busy = true;
    open_context(&w, 3, 1, true);
    begin_request(&t, t.n_most);
    submit(&w, &t);
    while (t.n_made < 300) assert_int_equal(kin_scheduler_step(w.s, &busy, &err), 0);
    assert_int_equal(kin_scheduler_settle(w.s, &err), 0);
    open_context(&then, 2, 1, true);
    kin_thread_ring_close(w.ring); // what it has kept is written
    kin_prefix_pages_forget(w.pages, t.prompt, 0);
    assert_int_equal(kin_scheduler_set_head(w.s, kin_thread_ring_head(then.ring), &err), 0);
    run(&w);
    assert_int_equal(kin_scheduler_settle(w.s, &err), 0);
    const kin_scheduler_stats stats = kin_scheduler_get_stats(w.s);
    kin_scheduler_close(w.s);
    kin_prefix_pages_close(w.pages);
    close_context(&then);
    print_message("             %d tokens computed again, %d loaded\n", (int)stats.n_replayed_tokens, (int)stats.n_loaded_tokens);
    expect_same(&t, &alone);
    assert_int_equal(stats.n_loaded_tokens, 1280);
    assert_in_range(stats.n_replayed_tokens, 1, KIN_KV_CELLS);
}

// A member of a ring is lost with its disk, at any token; the next ring has any members and rounds.
static void a_text_goes_on_whoever_is_lost(void **state) {
    static const int rings[][2] = {{1, 1}, {2, 1}, {3, 1}, {2, 3}, {3, 2}}; // members, rounds
    enum { N_RINGS = sizeof rings / sizeof *rings, N_SEEDS = 5 };
    static request t, alone;
    kin_err err;
    (void)state;
    gap = 128;
    make_request(&t, 9, 500, 200);
    alone = t;
    run_in(1, 1, false, &alone);
    for (uint64_t seed = 1; seed <= N_SEEDS; seed++) {
        kin_rng rng;
        context w, then;
        char command[128];
        bool busy = true;
        kin_rng_seed(&rng, seed);
        const int *first = rings[1 + kin_rng_u64(&rng) % (N_RINGS - 1)], *second = rings[kin_rng_u64(&rng) % N_RINGS];
        const int n_before = (int)(kin_rng_u64(&rng) % 190), lost = (int)(kin_rng_u64(&rng) % (uint64_t)first[0]);
        remove_root(NULL);
        open_context(&w, first[0], first[1], true);
        begin_request(&t, t.n_most);
        submit(&w, &t);
        while (t.n_made < n_before) assert_int_equal(kin_scheduler_step(w.s, &busy, &err), 0);
        assert_int_equal(kin_scheduler_settle(w.s, &err), 0);
        kin_thread_ring_close(w.ring);
        snprintf(command, sizeof command, "rm -rf %s/%d", root, lost);
        assert_int_equal(system(command), 0);
        open_context(&then, second[0], second[1], true);
        assert_int_equal(kin_scheduler_set_head(w.s, kin_thread_ring_head(then.ring), &err), 0);
        run(&w);
        assert_int_equal(kin_scheduler_settle(w.s, &err), 0);
        kin_scheduler_close(w.s);
        kin_prefix_pages_close(w.pages);
        close_context(&then);
        expect_same(&t, &alone);
    }
}

// ---- what is missing or damaged

typedef struct harm {
    char name[40]; // of the page
    bool damages;  // instead of removing it
    int n;
} harm;

static void harm_page(void *user, const char *path, const char *name) {
    harm *h = user;
    if (strcmp(name, h->name) != 0) return;
    h->n++;
    if (!h->damages) {
        assert_int_equal(unlink(path), 0);
        return;
    }
    const int fd = open(path, O_RDWR);
    uint8_t byte;
    assert_int_equal(pread(fd, &byte, 1, 100), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, 100), 1);
    close(fd);
}

// Removes or damages the last part of a layer at the checkpoint behind the first n tokens; returns how many files it was.
static int harm_part(const request *t, int n, int il, const char *member, bool damages) {
    char dir[80];
    kin_prefix_pages *pages;
    kin_page_key key;
    kin_err err;
    harm h = {.damages = damages};
    snprintf(dir, sizeof dir, "%s/head", root);
    const kin_prefix_pages_options po = {.disk = {.dir = dir}, .context = "model", .n_context = 5};
    if (kin_prefix_pages_open(&pages, &po, &err) != 0) fail_msg("%s", err.text);
    assert_true(kin_prefix_pages_name(pages, t->prompt, n / KIN_KV_CELLS - 1, 1, &key));
    kin_prefix_pages_close(pages);
    key = kin_page_key_of_part(&key, il, kind == KIN_SMALL_CONV ? 0 : 1);
    for (int i = 0; i < 16; i++) snprintf(h.name + 2 * (size_t)i, 3, "%02x", key.bytes[i]);
    for_each_page(member, harm_page, &h);
    return h.n;
}
#define harm_part(...) FROM_TEST(harm_part(__VA_ARGS__))

static void without_all_states_an_earlier_checkpoint_is_used(void **state) {
    static request t, alone;
    (void)state;
    gap = 512;
    make_request(&t, 11, 700, 20); // checkpoints at 512 and 640
    alone = t;
    run_in(1, 1, false, &alone);
    for (int n_members = 1; n_members <= 3; n_members += 2) {
        for (int damages = 0; damages < 2; damages++) {
            remove_root(NULL);
            run_in(n_members, 1, true, &t);
            assert_int_equal(harm_part(&t, end_of(&t), 0, "0", damages), 1);
            run_in(n_members, 1, true, &t);
            assert_int_equal(t.n_cached, gap);
            expect_same(&t, &alone);
            run_in(n_members, 1, true, &t); // stored again
            assert_int_equal(t.n_cached, end_of(&t));
            expect_same(&t, &alone);
            assert_int_equal(harm_part(&t, end_of(&t), 1, "0", damages), 1);
            assert_int_equal(harm_part(&t, gap, 1, "0", damages), 1);
            run_in(n_members, 1, true, &t);
            assert_int_equal(t.n_cached, 0);
            expect_same(&t, &alone);
        }
    }
}

static void rename_disk(const char *from, const char *to) {
    char paths[2][80];
    snprintf(paths[0], sizeof paths[0], "%s/%s", root, from);
    snprintf(paths[1], sizeof paths[1], "%s/%s", root, to);
    assert_int_equal(rename(paths[0], paths[1]), 0);
}
#define rename_disk(...) FROM_TEST(rename_disk(__VA_ARGS__))

// Returns the kind of checkpoint behind the first n tokens.
static int kind_at(const request *t, int n) {
    uint8_t kinds[MAX_PROMPT / KIN_KV_CELLS];
    char dir[80];
    kin_prefix_pages *pages;
    kin_err err;
    snprintf(dir, sizeof dir, "%s/head", root);
    const kin_prefix_pages_options po = {.disk = {.dir = dir}, .context = "model", .n_context = 5};
    if (kin_prefix_pages_open(&pages, &po, &err) != 0) fail_msg("%s", err.text);
    kin_prefix_pages_checkpoints(pages, t->prompt, n / KIN_KV_CELLS, kinds);
    kin_prefix_pages_close(pages);
    return kinds[n / KIN_KV_CELLS - 1];
}
#define kind_at(...) FROM_TEST(kind_at(__VA_ARGS__))

// Their states are never stored, so they wait for it for many steps.
static void marks_at_gaps_evict_no_other_conversation(void **state) {
    static request texts[3], longer;
    context w;
    (void)state;
    has_no_disk = true;
    gap = 128;
    open_context(&w, 1, 1, true);
    for (int i = 0; i < 3; i++) {
        make_request(&texts[i], 40 + i, 300, 5);
        submit(&w, &texts[i]);
        run(&w);
    }
    make_request(&longer, 50, 3000, 5);
    submit(&w, &longer);
    run(&w);
    for (int i = 1; i < 3; i++) {
        begin_request(&texts[i], 5);
        submit(&w, &texts[i]);
        run(&w);
        assert_true(texts[i].n_cached >= end_of(&texts[i]));
    }
    close_context(&w);
}

static void checkpoints_of_a_disk_that_was_away_are_used_again(void **state) {
    static request first, second;
    (void)state;
    make_request(&first, 21, 1500, 20);
    second = first;
    request_add_tokens(&second, 22, 300);
    run_in(1, 1, true, &first);
    rename_disk("0", "away");
    run_in(1, 1, true, &second);
    assert_int_equal(second.n_cached, 0);
    rename_disk("0", "other");
    rename_disk("away", "0");
    run_in(1, 1, true, &first);
    assert_int_equal(first.n_cached, end_of(&first));
}

static void a_lasting_checkpoint_stays_one_where_a_prompt_ends(void **state) {
    static request first, second, third;
    (void)state;
    make_request(&first, 23, 700, 5);
    third = second = first;
    request_add_tokens(&first, 24, 300);
    request_add_tokens(&second, 25, 300);
    run_in(1, 1, true, &first);
    run_in(1, 1, true, &second);
    const int n = end_of(&third);
    assert_int_equal(kind_at(&third, n), KIN_STATES_LASTING); // they part there
    assert_int_equal(harm_part(&third, n, 0, "0", false), 1);
    run_in(1, 1, true, &third);
    assert_int_equal(kind_at(&third, n), KIN_STATES_LASTING);
}

// ---- wrong steps

// Overwrites the weights of the last norm in the model's file, which is mapped. With NaN no logit is a number.
static void set_output_norm(const float *weights, float *before) {
    const size_t bytes = (size_t)kin_small_model_n_embd(kind) * sizeof *weights;
    kin_gguf *gguf;
    kin_err err;
    if (kin_gguf_open(&gguf, model_path, &err) != 0) fail_msg("%s", err.text);
    const char *name = kind == KIN_SMALL_CONV ? "token_embd_norm.weight" : "output_norm.weight";
    const off_t at = (off_t)kin_gguf_find_tensor(gguf, name)->offset;
    const int fd = open(model_path, O_RDWR);
    if (before) assert_int_equal(pread(fd, before, bytes, at), bytes);
    assert_int_equal(pwrite(fd, weights, bytes, at), bytes);
    close(fd);
    kin_gguf_close(gguf);
}
#define set_output_norm(...) FROM_TEST(set_output_norm(__VA_ARGS__))

// A sequence with a step without numbers is computed again from its beginning, and its states leave the disks.
static void states_of_a_wrong_step_leave_the_disks(void **state) {
    static request t, alone;
    float nan[64], good[64];
    kin_err err;
    bool busy = true;
    context w;
    (void)state;
    for (int i = 0; i < 64; i++) nan[i] = NAN;
    make_request(&t, 19, 700, 40);
    alone = t;
    run_in(1, 1, false, &alone);
    open_context(&w, 1, 1, true);
    begin_request(&t, t.n_most);
    submit(&w, &t);
    while (t.n_made < 20) assert_int_equal(kin_scheduler_step(w.s, &busy, &err), 0);
    kin_gguf_set_filled(kin_thread_ring_model(w.ring)->gguf); // otherwise the change of the file would end the sequence
    set_output_norm(nan, good);
    while (kin_scheduler_get_stats(w.s).n_wrong == 0) assert_int_equal(kin_scheduler_step(w.s, &busy, &err), 0);
    set_output_norm(good, NULL);
    while (kin_scheduler_get_stats(w.s).n_running == 0) assert_int_equal(kin_scheduler_step(w.s, &busy, &err), 0);
    assert_int_equal(bytes_on_disk("0"), 0);
    run(&w);
    close_context(&w);
    expect_same(&t, &alone);
    assert_true(bytes_on_disk("0") >= formula(t.n_prompt / KIN_KV_CELLS, 0));
}

// ---- bytes

static void the_disk_has_pages_and_the_states_of_checkpoints(void **state) {
    static request t;
    (void)state;
    for (int n = 1; n <= 2; n++) {
        remove_root(NULL);
        make_request(&t, 13, n == 1 ? 700 : 2000, 1);
        run_in(1, 1, true, &t);
        const int n_blocks = t.n_prompt / KIN_KV_CELLS;
        assert_int_equal(bytes_on_disk("0"), formula(n_blocks, n)); // near the end, and at the gap before
    }
}

int main(void) {
#define ON_DISK(test) cmocka_unit_test_setup_teardown(test, make_root, remove_root)
    const struct CMUnitTest tests[] = {
        ON_DISK(the_disk_has_pages_and_the_states_of_checkpoints),
        ON_DISK(a_sequence_is_found_after_a_restart),
        ON_DISK(steps_of_few_tokens_reach_checkpoints),
        ON_DISK(another_ring_finds_what_a_ring_has_stored),
        ON_DISK(texts_are_loaded_beside_each_other),
        ON_DISK(a_reply_is_found_up_to_the_last_gap),
        ON_DISK(a_lost_ring_s_text_goes_on_at_the_last_checkpoint),
        ON_DISK(a_text_goes_on_whoever_is_lost),
        ON_DISK(without_all_states_an_earlier_checkpoint_is_used),
        ON_DISK(checkpoints_of_a_disk_that_was_away_are_used_again),
        ON_DISK(a_lasting_checkpoint_stays_one_where_a_prompt_ends),
        ON_DISK(states_of_a_wrong_step_leave_the_disks),
    };
    const struct CMUnitTest replays[] = {
        ON_DISK(a_replay_computes_almost_nothing_twice),
        ON_DISK(a_replay_without_replies_computes_little_twice),
        ON_DISK(short_turns_are_found_after_a_restart),
        ON_DISK(marks_at_gaps_evict_no_other_conversation),
    };
    int n_failed = cmocka_run_group_tests(tests, make_conv, remove_model);
    n_failed += cmocka_run_group_tests(tests, make_windowed, remove_model);
    n_failed += cmocka_run_group_tests(tests, make_shared, remove_model);
    n_failed += cmocka_run_group_tests(tests, make_delta, remove_model);
    return n_failed + cmocka_run_group_tests(replays, make_delta, remove_model);
}
