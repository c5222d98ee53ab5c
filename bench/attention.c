// attention: measures attention over a KV cache, for one token at several depths and for prompts, next to two bounds from the
// same run: the rate at which the same threads only read the same cells, and the rate at which they only multiply and add.
//
// All are timed alternately in several rounds, and the best round of each counts, because the machine may be busy. A run uses
// other layers than the run before it: as in a model, where weights are read in between, they are not in the processor's caches.
#include <getopt.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "kernels/kernels.h"
#include "kernels/panel.h"

enum { EXIT_USAGE = 2, THREADS_MAX = 16, COLD_BYTES = 256 << 20, PARTIAL_BYTES = 16 << 20, LAYERS = 16 };

static const char usage[] =
    "usage: attention [--heads N] [--kv-heads N] [--dim N] [--v-dim N] [--type f16|q8_0] [--depth N] [--prompt N] [--backend "
    "NAME]\n"
    "                 [--threads N] [--rounds N] [--json]\n"
    "\n"
    "Times attention: 16 layers for one token at a depth, one layer for a prompt; for a list of lengths, or\n"
    "only those of --depth and --prompt. Default: 32 heads, 8 kv heads, head sizes 64 and 128, f16 and q8_0, 2 threads, best of "
    "7 rounds.\n"
    "\"of bound\" is the time over the longer one of reading and arithmetic: 1 is as fast as this machine can be.\n";

typedef struct options {
    int heads, kv_heads, dim, v_dim, depth, prompt, threads, rounds;
    const char *type, *backend;
    bool json;
} options;

// One run: n_layers layers of the cache, from `layer` on, for rows that attend to their own cell and all before it.
typedef struct job {
    enum { ATTEND, READ, ARITHMETIC } what;
    const kin_kernels *kernels;
    kin_attention a;         // k, v: those of layer 0
    size_t k_bytes, v_bytes; // of a layer
    int n_layers, layer, layers_there;
    double macs; // of all rows in one layer
} job;

typedef struct pool pool;

typedef struct thread {
    pthread_t id;
    pool *pool;
    int index;
    double sum; // of the values read or computed
} thread;

// Threads that wait for runs like an engine's threads: they are started once, so their stacks exist already.
struct pool {
    thread threads[THREADS_MAX]; // the first one is the caller's
    int n;
    const job *job;            // the current run; NULL: threads end
    atomic_int runs, finished; // runs begun; threads that have finished the current one
};

static uint64_t read_all(const void *data, size_t bytes) {
    const uint64_t *p = data;
    uint64_t sum[8] = {0};
    for (size_t i = 0; i + 8 <= bytes / 8; i += 8) {
        __builtin_prefetch(p + i + 512, 0, 2); // 4 KiB: the next page, where the processor's own prefetcher would start again
        for (int j = 0; j < 8; j++) sum[j] += p[i + (size_t)j];
    }
    return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

// n times 16 products, each rounded before it is added. Uses the back-end's widest vectors, all in registers.
#define MULTIPLY_ADD(name, attributes, floats, accumulators)                                                                     \
    attributes static double name(int64_t n) {                                                                                   \
        typedef float vector __attribute__((vector_size(4 * (floats))));                                                         \
        vector sum[accumulators] = {{0}}, x = {1}, y = {2};                                                                      \
        for (int64_t i = 0; i < n; i += (floats) * (accumulators) / 16) {                                                        \
            _Pragma("GCC unroll 16") for (int j = 0; j < (accumulators); j++) {                                                  \
                vector product = x * y;                                                                                          \
                __asm__ volatile("" : "+" REGISTER(product), "+" REGISTER(x));                                                   \
                sum[j] += product;                                                                                               \
            }                                                                                                                    \
        }                                                                                                                        \
        double all = 0;                                                                                                          \
        for (int j = 0; j < (accumulators); j++) all += (double)sum[j][0];                                                       \
        return all;                                                                                                              \
    }
#if defined(__x86_64__)
#define REGISTER(variable) "v"(variable)
MULTIPLY_ADD(multiply_add_512, __attribute__((target("avx512f"))), 16, 16)
MULTIPLY_ADD(multiply_add_256, __attribute__((target("avx2"))), 8, 8)
#elif defined(__aarch64__)
#define REGISTER(variable) "w"(variable)
#else
#define REGISTER(variable) "m"(variable)
#endif
MULTIPLY_ADD(multiply_add_128, , 4, 8)

static double multiply_add(const kin_kernels *k, int64_t n) {
#if defined(__x86_64__)
    if (strncmp(k->name, "avx512", 6) == 0) return multiply_add_512(n);
    if (strncmp(k->name, "avx", 3) == 0) return multiply_add_256(n);
#else
    (void)k;
#endif
    return multiply_add_128(n);
}

static void run_layer(thread *t, int layer) {
    const job *j = t->pool->job;
    const int n_threads = t->pool->n;
    kin_attention a = j->a;
    a.k = (const char *)a.k + (size_t)layer * j->k_bytes;
    a.v = (const char *)a.v + (size_t)layer * j->v_bytes;
    if (j->what == ATTEND) {
        int64_t n = kin_attention_plan(&a, n_threads);
        j->kernels->attend(&a, n * t->index / n_threads, n * (t->index + 1) / n_threads);
    } else if (j->what == READ) {
        for (int is_k = 0; is_k < 2; is_k++) {
            size_t cells = (size_t)a.n_cells[a.n_rows - 1], bytes = kin_kv_block_bytes(&a.kv, is_k) * cells / KIN_KV_CELLS;
            size_t begin = bytes * (size_t)t->index / (size_t)n_threads / 64 * 64;
            size_t end = bytes * (size_t)(t->index + 1) / (size_t)n_threads / 64 * 64;
            t->sum += (double)read_all((const char *)(is_k ? a.k : a.v) + begin, end - begin);
        }
    } else {
        t->sum += multiply_add(j->kernels, (int64_t)(j->macs / 16 / n_threads));
    }
}

static void run(thread *t) {
    const job *j = t->pool->job;
    for (int i = 0; i < j->n_layers; i++) run_layer(t, (j->layer + i) % j->layers_there);
}

static void *wait_for_runs(void *argument) {
    thread *t = argument;
    pool *p = t->pool;
    for (int seen = 0;; seen++) {
        while (atomic_load(&p->runs) == seen) sched_yield();
        if (!p->job) return NULL;
        run(t);
        atomic_fetch_add(&p->finished, 1);
    }
}

static void pool_start(pool *p, int n) {
    *p = (pool){.n = n};
    for (int i = 0; i < n; i++) {
        p->threads[i] = (thread){.pool = p, .index = i};
        if (i && pthread_create(&p->threads[i].id, NULL, wait_for_runs, &p->threads[i])) abort();
    }
}

static void pool_begin(pool *p, const job *j) {
    p->job = j;
    atomic_store(&p->finished, 0);
    atomic_fetch_add(&p->runs, 1);
}

static void pool_end(pool *p) {
    pool_begin(p, NULL);
    for (int i = 1; i < p->n; i++) pthread_join(p->threads[i].id, NULL);
}

static double milliseconds(pool *p, job *j, int what) {
    j->what = what;
    kin_time began = kin_clock_now();
    pool_begin(p, j);
    run(&p->threads[0]);
    while (atomic_load(&p->finished) < p->n - 1) sched_yield();
    double ms = kin_clock_ms(began, kin_clock_now());
    j->layer = (j->layer + j->n_layers) % j->layers_there;
    return ms;
}

static void time_job(const options *o, job *j) {
    static const char *const types[] = {[KIN_TYPE_F16] = "f16", [KIN_TYPE_Q8_0] = "q8_0"};
    double best[3] = {1e9, 1e9, 1e9};
    pool p;
    pool_start(&p, o->threads);
    for (int i = 0; i < o->rounds; i++) {
        for (int what = ATTEND; what <= ARITHMETIC; what++) {
            double ms = milliseconds(&p, j, what);
            if (ms < best[what]) best[what] = ms;
        }
    }
    pool_end(&p);
    const kin_attention *a = &j->a;
    double bound = best[READ] > best[ARITHMETIC] ? best[READ] : best[ARITHMETIC],
           gmac_s = j->macs * j->n_layers / best[ATTEND] / 1e6;
    if (o->json) {
        printf("{\"backend\":\"%s\",\"threads\":%d,\"type\":\"%s\",\"heads\":%d,\"kv_heads\":%d,\"k_dim\":%d,\"v_dim\":%d,"
               "\"rows\":%lld,"
               "\"depth\":%d,\"layers\":%d,\"ms\":%.3f,\"read_ms\":%.3f,\"arithmetic_ms\":%.3f}\n",
               j->kernels->name, o->threads, types[a->kv.type], a->n_head, a->kv.n_head_kv, a->kv.k_dim, a->kv.v_dim,
               (long long)a->n_rows, a->n_cells[a->n_rows - 1], j->n_layers, best[ATTEND], best[READ], best[ARITHMETIC]);
    } else {
        printf("%-8s %-5s %4d %5d %6lld %6d %7d %9.2f %8.2f %11.2f %9.2f %8.1f\n", j->kernels->name, types[a->kv.type],
               a->kv.k_dim, a->kv.v_dim, (long long)a->n_rows, a->n_cells[a->n_rows - 1], j->n_layers, best[ATTEND], best[READ],
               best[ARITHMETIC], best[ATTEND] / bound, gmac_s);
    }
    fflush(stdout);
}

static void *allocate(size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!p) abort();
    return p;
}

// Returns bytes that are normal numbers in both types.
static void *some_cells(size_t bytes) {
    uint8_t *p = allocate(bytes);
    for (size_t i = 0; i < bytes; i++) p[i] = (uint8_t)(i % 2 ? 0x2c + i / 64 % 2 * 0x80 : i * 37);
    return p;
}

static void time_rows(const options *o, const kin_kernels *k, kin_kv_layout kv, int n, int depth) {
    int n_blocks = (depth + KIN_KV_CELLS - 1) / KIN_KV_CELLS, width = o->heads * kv.k_dim, out_width = o->heads * kv.v_dim;
    const size_t k_bytes = (size_t)n_blocks * kin_kv_block_bytes(&kv, true);
    const size_t v_bytes = (size_t)n_blocks * kin_kv_block_bytes(&kv, false);
    int n_layers = n > 1 ? 1 : LAYERS,
        layers_there = COLD_BYTES / (k_bytes + v_bytes) > 2 * LAYERS ? (int)(COLD_BYTES / (k_bytes + v_bytes)) : 2 * LAYERS;
    if (n > 1) layers_there = 1;
    float *q = allocate((size_t)(n * width) * sizeof *q), *out = allocate((size_t)(n * out_width) * sizeof *out);
    int32_t *n_cells = allocate((size_t)n * sizeof *n_cells), *table = allocate((size_t)n_blocks * sizeof *table);
    const int32_t **blocks = allocate((size_t)n * sizeof *blocks);
    for (int i = 0; i < n * width; i++) q[i] = (float)(i * 7 % 255 - 127) / 300;
    for (int i = 0; i < n_blocks; i++) table[i] = i;
    job j = {.kernels = k, .k_bytes = k_bytes, .v_bytes = v_bytes, .n_layers = n_layers, .layers_there = layers_there};
    for (int i = 0; i < n; i++) {
        n_cells[i] = depth - n + i + 1;
        blocks[i] = table;
        j.macs += (double)n_cells[i] * (width + out_width);
    }
    void *key = some_cells((size_t)layers_there * k_bytes), *value = some_cells((size_t)layers_there * v_bytes);
    void *partial = allocate(PARTIAL_BYTES);
    j.a = (kin_attention){.kv = kv,
                          .k = key,
                          .v = value,
                          .n_head = o->heads,
                          .scale = 0.1f,
                          .n_rows = n,
                          .q = q,
                          .ldq = width,
                          .n_cells = n_cells,
                          .blocks = blocks,
                          .out = out,
                          .ldo = out_width,
                          .partial = partial,
                          .partial_bytes = PARTIAL_BYTES};
    time_job(o, &j);
    void *all[] = {q, out, n_cells, table, blocks, key, value, partial};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static bool parse(int argc, char **argv, options *o) {
    static const struct option names[] = {
        {"heads", 1, NULL, 'h'},   {"kv-heads", 1, NULL, 'v'}, {"dim", 1, NULL, 'd'},    {"v-dim", 1, NULL, 'w'},
        {"type", 1, NULL, 't'},    {"depth", 1, NULL, 'c'},    {"prompt", 1, NULL, 'p'}, {"backend", 1, NULL, 'b'},
        {"threads", 1, NULL, 'n'}, {"rounds", 1, NULL, 'k'},   {"json", 0, NULL, 'j'},   {NULL, 0, NULL, 0},
    };
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        switch (c) {
        case 'h': o->heads = atoi(optarg); break;
        case 'v': o->kv_heads = atoi(optarg); break;
        case 'd': o->dim = atoi(optarg); break;
        case 'w': o->v_dim = atoi(optarg); break;
        case 't': o->type = optarg; break;
        case 'c': o->depth = atoi(optarg); break;
        case 'p': o->prompt = atoi(optarg); break;
        case 'b': o->backend = optarg; break;
        case 'n': o->threads = atoi(optarg); break;
        case 'k': o->rounds = atoi(optarg); break;
        case 'j': o->json = true; break;
        default: return false;
        }
    }
    return optind == argc && o->threads >= 1 && o->threads <= THREADS_MAX && o->rounds >= 1 && o->kv_heads >= 1 &&
           o->heads >= 1 && o->heads % o->kv_heads == 0 && o->depth >= 0 && o->prompt >= 0;
}

static void time_layout(const options *o, const kin_kernels *k, kin_kv_layout kv) {
    static const int depths[] = {512, 2048, 4096, 16384}, prompts[] = {128, 512, 2048, 4096};
    if (o->depth) time_rows(o, k, kv, 1, o->depth);
    if (o->prompt) time_rows(o, k, kv, o->prompt, o->prompt);
    if (o->depth || o->prompt) return;
    for (size_t i = 0; i < sizeof depths / sizeof *depths; i++) time_rows(o, k, kv, 1, depths[i]);
    for (size_t i = 0; i < sizeof prompts / sizeof *prompts; i++) time_rows(o, k, kv, prompts[i], prompts[i]);
}

static bool chosen(const options *o, const kin_kernels *k) {
    if (!kin_kernels_can_run(k)) return false;
    if (o->backend) return strcmp(o->backend, "all") == 0 || strcmp(o->backend, k->name) == 0;
    return k == kin_kernels_choose(NULL);
}

int main(int argc, char **argv) {
    static const kin_kv_layout layouts[] = {{KIN_TYPE_F16, 0, 64, 64, false, false},
                                            {KIN_TYPE_F16, 0, 128, 128, false, false},
                                            {KIN_TYPE_Q8_0, 0, 64, 64, false, false},
                                            {KIN_TYPE_Q8_0, 0, 128, 128, false, false}};
    options o = {.heads = 32, .kv_heads = 8, .threads = 2, .rounds = 7};
    int n_timed = 0;
    if (!parse(argc, argv, &o)) {
        fputs(usage, stderr);
        return EXIT_USAGE;
    }
    if (!o.json) puts("backend  type   dim v dim   rows  depth  layers        ms  read ms  arithmetic  of bound   GMAC/s");
    for (int i = 0; kin_kernels_at(i); i++) {
        for (size_t l = 0; l < sizeof layouts / sizeof *layouts && chosen(&o, kin_kernels_at(i)); l++) {
            kin_kv_layout kv = layouts[l];
            if (o.type && (strcmp(o.type, "f16") == 0) != (kv.type == KIN_TYPE_F16)) continue;
            if (o.dim && kv.k_dim != 64) continue;
            kv.n_head_kv = o.kv_heads;
            if (o.dim) kv.k_dim = kv.v_dim = o.dim;
            if (o.v_dim) kv.v_dim = o.v_dim;
            if (!kin_kv_has(&kv)) continue;
            time_layout(&o, kin_kernels_at(i), kv);
            n_timed++;
        }
    }
    if (n_timed) return 0;
    fputs("nothing was timed: no such type, head size or back-end on this CPU\n", stderr);
    return EXIT_USAGE;
}
