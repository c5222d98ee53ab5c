// kernels: measures the matrix products, for each weight type and number of activation rows, next to the rate at which the same
// threads only read the same memory.
//
// Both are timed alternately in several rounds, and the best round of each counts, because the machine may be busy.
#include <getopt.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "kernels/kernels.h"
#include "kernels/panel.h"

enum { EXIT_USAGE = 2, COLUMNS = 2048, MATRIX_ROWS = 4096, THREADS_MAX = 16, N_MAX = 128 };

static const double LEAST_MB = 0.1, LEAST_PASS_MB = 64; // few weights are multiplied repeatedly

static const char usage[] =
    "usage: kernels [--type NAME] [--backend NAME] [--rows N] [--threads N] [--mb N] [--rounds N] [--json]\n"
    "\n"
    "Times matrix products: every type of weights (one: --type), with the best back-end (another: --backend, or all) and 1 to "
    "128\n"
    "activation rows (one number: --rows), N threads (default: 2), matrices of N MB together (default: 256; few, such as 0.7, "
    "stay\n"
    "in the processor's caches), best of N rounds (default: 5). \"read\" is the share of the rate at which the threads only read "
    "the\n"
    "weights.\n";

typedef struct type {
    const char *name;
    int number;
} type;

static const type types[] = {
    {"Q4_K", KIN_TYPE_Q4_K},       {"Q5_K", KIN_TYPE_Q5_K},       {"Q6_K", KIN_TYPE_Q6_K},   {"Q3_K", KIN_TYPE_Q3_K},
    {"Q2_K", KIN_TYPE_Q2_K},       {"IQ4_XS", KIN_TYPE_IQ4_XS},   {"Q8_0", KIN_TYPE_Q8_0},   {"Q4_0", KIN_TYPE_Q4_0},
    {"MXFP4", KIN_TYPE_MXFP4},     {"F16", KIN_TYPE_F16},         {"BF16", KIN_TYPE_BF16},   {"F32", KIN_TYPE_F32},
    {"Q4_1", KIN_TYPE_Q4_1},       {"Q5_0", KIN_TYPE_Q5_0},       {"Q5_1", KIN_TYPE_Q5_1},   {"IQ4_NL", KIN_TYPE_IQ4_NL},
    {"IQ3_S", KIN_TYPE_IQ3_S},     {"IQ3_XXS", KIN_TYPE_IQ3_XXS}, {"IQ2_S", KIN_TYPE_IQ2_S}, {"IQ2_XS", KIN_TYPE_IQ2_XS},
    {"IQ2_XXS", KIN_TYPE_IQ2_XXS}, {"IQ1_S", KIN_TYPE_IQ1_S},     {"IQ1_M", KIN_TYPE_IQ1_M}, {"TQ1_0", KIN_TYPE_TQ1_0},
    {"TQ2_0", KIN_TYPE_TQ2_0},     {"NVFP4", KIN_TYPE_NVFP4},     {"Q2_0", KIN_TYPE_Q2_0},   {"Q1_0", KIN_TYPE_Q1_0},
};
static const int row_counts[] = {1, 2, 3, 4, 8, 16, 32, 64, 128};

typedef struct options {
    const char *type, *backend;
    int rows, threads, rounds;
    double mb;
    bool json;
} options;

// Multiplies with, or reads, n_matrices matrices, n_passes times. Each thread handles a range of their rows.
typedef struct job {
    const kin_kernels *kernels; // NULL: only read
    kin_matrix matrix;          // data: the first
    size_t matrix_bytes;
    int matrix_rows, n_matrices, n_passes, n;
    const float *x;     // [n, COLUMNS]
    const kin_act *act; // [n_blocks][n]
    float *y;           // [n, matrix_rows]
} job;

typedef struct thread {
    pthread_t id;
    const job *job;
    int index, n;
    uint64_t sum; // of the values read
} thread;

typedef uint64_t vector __attribute__((vector_size(64)));

static uint64_t read_all(const uint8_t *data, size_t bytes) {
    const vector *p = (const vector *)data;
    vector sum = {0};
    for (size_t i = 0; i < bytes / sizeof *p; i++) {
        __builtin_prefetch(p + i + 64, 0, 2); // 4 KiB: the next page, where the processor's own prefetcher would start again
        sum ^= p[i];
    }
    return sum[0] ^ sum[1] ^ sum[2] ^ sum[3] ^ sum[4] ^ sum[5] ^ sum[6] ^ sum[7];
}

static void *run(void *argument) {
    thread *t = argument;
    const job *j = t->job;
    int panels = j->matrix_rows / KIN_PANEL_ROWS, begin = panels * t->index / t->n, end = panels * (t->index + 1) / t->n;
    size_t panel_bytes = j->matrix_bytes / (size_t)panels;
    for (int i = 0; i < j->n_matrices * j->n_passes; i++) {
        kin_matrix m = j->matrix;
        const uint8_t *data = (const uint8_t *)m.data + (size_t)(i % j->n_matrices) * j->matrix_bytes;
        m.data = data;
        if (j->kernels)
            j->kernels->matmul(&m, j->act, j->x, j->n, j->y, j->matrix_rows, begin, end);
        else
            t->sum += read_all(data + (size_t)begin * panel_bytes, (size_t)(end - begin) * panel_bytes);
    }
    return NULL;
}

static double seconds(const job *j, int n_threads) {
    thread threads[THREADS_MAX] = {0};
    kin_time began = kin_clock_now();
    for (int i = 0; i < n_threads; i++) {
        threads[i] = (thread){.job = j, .index = i, .n = n_threads};
        if (i && pthread_create(&threads[i].id, NULL, run, &threads[i])) abort();
    }
    run(&threads[0]);
    for (int i = 1; i < n_threads; i++) pthread_join(threads[i].id, NULL);
    double s = kin_clock_ms(began, kin_clock_now()) / 1e3;
    static volatile uint64_t sink; // keeps reading from being optimized away
    for (int i = 0; i < n_threads; i++) sink += threads[i].sum;
    (void)sink;
    return s;
}

static void show(const options *o, const type *t, const job *j, double best, double read) {
    double n_matrices = (double)j->n_matrices * j->n_passes, weights = n_matrices * COLUMNS * j->matrix_rows,
           bytes = n_matrices * (double)j->matrix_bytes;
    double ms = best * 1e3, gb_s = bytes / best / 1e9, gmac_s = weights * j->n / best / 1e9;
    if (o->json) {
        printf("{\"type\":\"%s\",\"backend\":\"%s\",\"threads\":%d,\"rows\":%d,\"weights\":%.0f,\"ms\":%.3f,\"gb_s\":%.2f,"
               "\"gmac_s\":%.1f,\"read_gb_s\":%.2f}\n",
               t->name, j->kernels->name, o->threads, j->n, weights, ms, gb_s, gmac_s, bytes / read / 1e9);
    } else {
        printf("%-6s %-8s %4d %9.2f ms %8.1f GMAC/s %7.1f GB/s %6.2f of read\n", t->name, j->kernels->name, j->n, ms, gmac_s,
               gb_s, read / best);
    }
    fflush(stdout);
}

static void time_rows(const options *o, const type *t, job j, int n, float *x, kin_act *act) {
    // More than 8 rows are not limited by memory, so fewer matrices suffice.
    if (n > 8) j.n_matrices = j.n_matrices * 8 / n > 0 ? j.n_matrices * 8 / n : 1;
    j.n = n;
    if (kin_kernel_act_kind(t->number) != KIN_ACT_F32) {
        j.kernels->quantize(kin_kernel_act_kind(t->number), COLUMNS, n, x, act, 0, COLUMNS / KIN_ACT_COLUMNS * n);
    }
    job reading = j;
    reading.kernels = NULL;
    double best = 1e9, read = 1e9;
    for (int i = 0; i < o->rounds; i++) {
        double s = seconds(&reading, o->threads);
        if (s < read) read = s;
        s = seconds(&j, o->threads);
        if (s < best) best = s;
    }
    show(o, t, &j, best, read);
}

// Returns arbitrary bytes that are normal numbers in every float type.
static uint8_t *some_weights(size_t bytes) {
    uint8_t *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    kin_rng rng;
    kin_rng_seed(&rng, 1);
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t random = (kin_rng_u64(&rng) & 0x1b1b1b1b1b1b1b1bu) | 0x2020202020202020u;
        memcpy(p + i, &random, 8);
    }
    return p;
}

static bool parse(int argc, char **argv, options *o) {
    static const struct option names[] = {
        {"type", 1, NULL, 't'}, {"backend", 1, NULL, 'b'}, {"rows", 1, NULL, 'r'}, {"threads", 1, NULL, 'n'},
        {"mb", 1, NULL, 'm'},   {"rounds", 1, NULL, 'k'},  {"json", 0, NULL, 'j'}, {NULL, 0, NULL, 0},
    };
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        switch (c) {
        case 't': o->type = optarg; break;
        case 'b': o->backend = optarg; break;
        case 'r': o->rows = atoi(optarg); break;
        case 'n': o->threads = atoi(optarg); break;
        case 'm': o->mb = atof(optarg); break;
        case 'k': o->rounds = atoi(optarg); break;
        case 'j': o->json = true; break;
        default: return false;
        }
    }
    return optind == argc && o->threads >= 1 && o->threads <= THREADS_MAX && o->mb >= LEAST_MB && o->rounds >= 1 &&
           o->rows >= 0 && o->rows <= N_MAX;
}

static void time_type(const options *o, const type *t, const kin_kernels *k, const uint8_t *weights, float *x, kin_act *act,
                      float *y) {
    size_t panel_bytes = kin_panel_bytes(t->number, COLUMNS), n_panels = (size_t)(o->mb * 1e6) / panel_bytes;
    if (n_panels > MATRIX_ROWS / KIN_PANEL_ROWS) n_panels = MATRIX_ROWS / KIN_PANEL_ROWS;
    if (n_panels < 1) n_panels = 1;
    int rows = (int)n_panels * KIN_PANEL_ROWS, n_matrices = (int)(o->mb * 1e6 / (double)(n_panels * panel_bytes));
    job j = {
        .kernels = k,
        .matrix = {.type = t->number, .columns = COLUMNS, .rows = rows, .is_packed = true, .data = weights},
        .matrix_bytes = n_panels * panel_bytes,
        .matrix_rows = rows,
        .n_matrices = n_matrices > 0 ? n_matrices : 1,
        .n_passes = o->mb < LEAST_PASS_MB ? (int)ceil(LEAST_PASS_MB / o->mb) : 1,
        .x = x,
        .act = act,
        .y = y,
    };
    if (o->rows) return time_rows(o, t, j, o->rows, x, act);
    for (size_t i = 0; i < sizeof row_counts / sizeof *row_counts; i++) time_rows(o, t, j, row_counts[i], x, act);
}

static bool chosen(const options *o, int i) {
    const kin_kernels *k = kin_kernels_at(i);
    if (!kin_kernels_can_run(k)) return false;
    if (o->backend) return strcmp(o->backend, "all") == 0 || strcmp(o->backend, k->name) == 0;
    return k == kin_kernels_choose(&(kin_err){0});
}

int main(int argc, char **argv) {
    options o = {.threads = 2, .mb = 256, .rounds = 5};
    if (!parse(argc, argv, &o)) {
        fputs(usage, stderr);
        return EXIT_USAGE;
    }
    uint8_t *weights = some_weights((size_t)(o.mb * 1e6) + (size_t)MATRIX_ROWS * COLUMNS * 4);
    float *x = malloc(sizeof(float) * N_MAX * COLUMNS), *y = malloc(sizeof(float) * N_MAX * MATRIX_ROWS);
    kin_act *act = aligned_alloc(64, (kin_act_bytes(COLUMNS, N_MAX) + 63) / 64 * 64);
    for (int i = 0; i < N_MAX * COLUMNS; i++) x[i] = (float)(i % 255 - 127) / 100;
    int n_timed = 0;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        for (int i = 0; kin_kernels_at(i); i++) {
            if ((o.type && strcmp(o.type, types[t].name) != 0) || !chosen(&o, i)) continue;
            time_type(&o, &types[t], kin_kernels_at(i), weights, x, act, y);
            n_timed++;
        }
    }
    free(weights);
    free(x);
    free(y);
    free(act);
    if (n_timed) return 0;
    fputs("nothing was timed: no such type, or no such back-end on this CPU\n", stderr);
    return EXIT_USAGE;
}
