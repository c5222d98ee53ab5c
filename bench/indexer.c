// indexer: measures attention over latents for one token at several depths: over all cells, as without an indexer, and over those
// that an indexer chooses, with its scores and the choice. All with random numbers, by a team of threads as in the engine.
//
// The variants are timed in turns in several rounds, and the median of each counts. What is measured is the time of the process
// on processors, so other programs matter little; threads that wait add to it, so figures are for one thread.
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "kernels/kernels.h"
#include "kernels/panel.h"
#include "sys/team/team.h"

enum { EXIT_USAGE = 2, N_ROT = 64, N_LATENT = 512, KEY_DIM = 128, BLOCKS_A_CHUNK = 8, ROUNDS_MAX = 100 };

static const char usage[] =
    "usage: indexer [--heads N] [--index-heads N] [--top-k N] [--threads N] [--rounds N] [--depth N]\n"
    "\n"
    "Default: 128 heads, 64 of the indexer, the best 2048 (DeepSeek V3.2), 1 thread, 5 rounds, depths 2048 to 131072.\n";

typedef struct options {
    int heads, index_heads, top_k, threads, rounds, depth;
} options;

// A layer and a token. Steps: scores and choice if there is an indexer, attention, merging of its spans.
typedef struct layer {
    const kin_kernels *kernels;
    kin_attention by_block, by_cell; // of all cells, as without an indexer; and of those that are chosen
    const kin_attention *a;          // which of them is timed
    kin_index_query query;
    const uint16_t *keys; // f16 [blocks][KEY_DIM][64]
    float *scores;
    int32_t *chosen;
    int depth, top_k, n_threads;
} layer;

static int n_chunks(const layer *l) {
    return (l->depth + BLOCKS_A_CHUNK * KIN_KV_CELLS - 1) / (BLOCKS_A_CHUNK * KIN_KV_CELLS);
}

static kin_team_step plan(void *user, int step) {
    const layer *l = user;
    kin_attention a = *l->a;
    const int64_t n_tasks = kin_attention_plan(&a, l->n_threads);
    if (step < 2 && !a.chosen) return (kin_team_step){0};
    const int n[] = {n_chunks(l), 1, (int)n_tasks, a.n_spans > 1};
    return (kin_team_step){.n_chunks = n[step]};
}

static void choose(const layer *l) {
    static kin_greatest greatest;
    kin_greatest_begin(&greatest, l->top_k);
    for (int at = 0; at < l->depth; at += KIN_KV_CELLS) kin_greatest_add(&greatest, at, KIN_KV_CELLS, l->scores + at);
    kin_greatest_end(&greatest, l->chosen);
}

static void compute(void *user, const kin_team_chunk *c) {
    const layer *l = user;
    kin_attention a = *l->a;
    if (c->step == 1) return choose(l);
    kin_attention_plan(&a, l->n_threads);
    if (c->step == 2) return l->kernels->attend(&a, c->i, c->i + 1);
    if (c->step == 3) return l->kernels->attend_merge(&a, 0, 1);
    for (int b = c->i * BLOCKS_A_CHUNK; b < (c->i + 1) * BLOCKS_A_CHUNK && b * KIN_KV_CELLS < l->depth; b++)
        l->kernels->index_scores(&l->query, l->keys + (size_t)b * KEY_DIM * KIN_KV_CELLS, l->scores + b * KIN_KV_CELLS);
}

static void *allocate(size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!p) {
        fputs("indexer: out of memory\n", stderr);
        exit(1);
    }
    return p;
}

static float *random_floats(kin_rng *rng, size_t n) {
    float *x = allocate(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = (float)((int)(kin_rng_u64(rng) % 4001) - 2000) / 2000.0f;
    return x;
}

static uint16_t *random_halves(const kin_kernels *k, kin_rng *rng, size_t n) {
    enum { PIECE = 1 << 12 };
    uint16_t *to = allocate(n * sizeof *to);
    for (size_t at = 0; at < n; at += PIECE) {
        float *x = random_floats(rng, PIECE);
        uint16_t h[PIECE];
        k->to_f16(PIECE, x, h);
        memcpy(to + at, h, (n - at < PIECE ? n - at : PIECE) * sizeof *h);
        free(x);
    }
    return to;
}

static double process_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static double time_once(kin_team *team, layer *l, const kin_attention *a, int n_steps) {
    l->a = a;
    const kin_team_job job = {.n_steps = n_steps, .plan = plan, .compute = compute, .user = l};
    const double begin = process_ms();
    kin_team_run(team, &job);
    return process_ms() - begin;
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, compare);
    return x[n / 2];
}

static void time_depth(const options *o, kin_team *team, layer *l, int depth) {
    double all[ROUNDS_MAX], index[ROUNDS_MAX], chosen[ROUNDS_MAX];
    const int32_t n_cells = depth;
    int32_t *table = allocate((size_t)depth / KIN_KV_CELLS * sizeof *table);
    for (int b = 0; b < depth / KIN_KV_CELLS; b++) table[b] = b;
    const int32_t *const tables[] = {table};
    l->depth = depth;
    l->by_block.n_cells = l->by_cell.n_cells = &n_cells;
    l->by_block.blocks = l->by_cell.blocks = tables;
    for (int round = -1; round < o->rounds; round++) { // the first one is not counted
        const int i = round < 0 ? 0 : round;
        all[i] = time_once(team, l, &l->by_block, 4);
        chosen[i] = time_once(team, l, &l->by_cell, 4);
        index[i] = depth > l->top_k ? time_once(team, l, &l->by_cell, 2) : 0;
    }
    const double a = median(all, o->rounds), c = median(chosen, o->rounds);
    printf("%7d  %9.2f  %9.2f  %9.2f  %8.2f\n", depth, a, c, median(index, o->rounds), a / c);
    free(table);
}

static bool parse(int argc, char **argv, options *o) {
    static const struct option names[] = {{"heads", 1, 0, 'h'},
                                          {"index-heads", 1, 0, 'i'},
                                          {"top-k", 1, 0, 'k'},
                                          {"threads", 1, 0, 't'},
                                          {"rounds", 1, 0, 'r'},
                                          {"depth", 1, 0, 'd'},
                                          {0}};
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        const int n = c == '?' ? 0 : atoi(optarg);
        if (n < 1) return false;
        *(c == 'h'   ? &o->heads
          : c == 'i' ? &o->index_heads
          : c == 'k' ? &o->top_k
          : c == 't' ? &o->threads
          : c == 'r' ? &o->rounds
                     : &o->depth) = n;
    }
    return optind == argc && o->top_k <= KIN_CHOSEN_MAX && o->rounds <= ROUNDS_MAX && o->depth % KIN_KV_CELLS == 0;
}

int main(int argc, char **argv) {
    options o = {.heads = 128, .index_heads = 64, .top_k = 2048, .threads = 1, .rounds = 5};
    kin_team *team;
    kin_err err;
    kin_rng rng;
    if (!parse(argc, argv, &o)) {
        fputs(usage, stderr);
        return EXIT_USAGE;
    }
    const kin_kernels *k = kin_kernels_choose(&err);
    if (!k || kin_team_open(&team, o.threads, &err) != 0 || kin_team_reserve(team, 4, &err) != 0) {
        fprintf(stderr, "indexer: %s\n", err.text);
        return 1;
    }
    const int most = o.depth ? o.depth : 131072, dim = N_LATENT + N_ROT;
    kin_rng_seed(&rng, 1);
    const kin_kv_layout by_block = {KIN_TYPE_F16, 1, dim, N_LATENT, true, false},
                        by_cell = {KIN_TYPE_F16, 1, dim, N_LATENT, true, true};
    layer l = {.kernels = k, .top_k = o.top_k, .n_threads = o.threads};
    l.by_block = (kin_attention){
        .kv = by_block, .n_head = o.heads, .scale = 0.07f, .n_rows = 1, .ldq = o.heads * dim, .ldo = o.heads * N_LATENT};
    l.by_block.k = l.by_block.v = random_halves(k, &rng, (size_t)most * (size_t)dim);
    l.by_block.q = random_floats(&rng, (size_t)(o.heads * dim));
    l.by_block.out = allocate((size_t)(o.heads * N_LATENT) * sizeof(float));
    l.by_block.partial_bytes = kin_attention_partial_bytes(&by_block, o.heads, 1, most);
    l.by_block.partial = allocate(l.by_block.partial_bytes);
    l.by_cell = l.by_block;
    l.by_cell.kv = by_cell;
    l.by_cell.chosen = l.chosen = allocate((size_t)o.top_k * sizeof *l.chosen);
    l.by_cell.n_chosen = o.top_k;
    l.query = (kin_index_query){o.index_heads,
                                KEY_DIM,
                                random_floats(&rng, (size_t)(o.index_heads * KEY_DIM)),
                                random_floats(&rng, (size_t)o.index_heads),
                                0,
                                KIN_KV_CELLS};
    l.keys = random_halves(k, &rng, (size_t)most * KEY_DIM);
    l.scores = allocate((size_t)most * sizeof *l.scores);
    printf("backend %s, %d threads, ms per layer and token\n", k->name, o.threads);
    puts("  depth  all cells     chosen  of which     ratio\n                              indexer");
    for (int depth = o.depth ? o.depth : 2048; depth <= most; depth *= 2) time_depth(&o, team, &l, depth);
    kin_team_close(team); // the rest is freed by the system
    return 0;
}
