// kernels: measures the matrix products, for each weight type and number of activation rows, next to the rate at which the same
// threads only read the same memory, or next to ggml's products of the same weights.
//
// They are timed alternately in several rounds, because the machine may be busy. A time is the processor time of the thread that
// needs most, so other programs count only as far as they use the same caches and memory.
#include <dlfcn.h>
#include <getopt.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <ggml-cpu.h>

#include "base/median.h"
#include "base/rng.h"
#include "kernels/kernels.h"
#include "kernels/panel.h"

enum { EXIT_USAGE = 2, COLUMNS = 2048, MATRIX_ROWS = 4096, THREADS_MAX = 16, N_MAX = 128, ROUNDS_MAX = 99 };

static const double LEAST_MB = 0.1, LEAST_PASS_MB = 64; // few weights are multiplied repeatedly

static const char usage[] =
    "usage: kernels [--type NAME] [--backend NAME] [--rows N] [--threads N] [--mb N] [--rounds N] [--json | --ggml]\n"
    "\n"
    "Times matrix products: every type of weights (one: --type), with the best back-end (another: --backend, or all) and 1 to "
    "128\n"
    "activation rows (one number: --rows), N threads (default: 2), matrices of N MB together (default: 256; few, such as 0.7, "
    "stay\n"
    "in the processor's caches), best of N rounds (default: 5). \"read\" is the share of the rate at which the threads only read "
    "the\n"
    "weights.\n"
    "\n"
    "--ggml: compares with ggml's products (vec_dot of the CPU module that suits this processor) instead: a table in Markdown "
    "of\n"
    "ggml's GMAC/s, and of the medians over the rounds of kin's rate relative to ggml's in the same round, for packed weights "
    "and\n"
    "for weights as in the file; with 1, 4 and 64 rows.\n";

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
    bool json, ggml;
} options;

typedef enum work { WORK_READ, WORK_MULTIPLY, WORK_GGML } work;

// Multiplies with, or reads, n_matrices matrices, n_passes times. Each thread handles a range of their rows.
typedef struct job {
    work work;
    const kin_kernels *kernels;
    kin_matrix matrix; // data: the first
    size_t matrix_bytes;
    int matrix_rows, n_matrices, n_passes, n;
    const float *x;     // [n, COLUMNS]
    const kin_act *act; // [n_blocks][n]
    float *y;           // [n, matrix_rows]
    const struct ggml_type_traits_cpu *traits;
    const uint8_t *ggml_act; // [n] rows in the type that ggml's products of this type take
    size_t ggml_act_bytes;   // of a row
} job;

typedef struct thread {
    pthread_t id;
    const job *job;
    int index, n;
    uint64_t sum; // of the values read
    double seconds;
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

// Multiplies as ggml does: 16 rows of the matrix with each row of activations.
static void multiply_ggml(const job *j, const uint8_t *data, int begin, int end) {
    const size_t row_bytes = j->matrix_bytes / (size_t)j->matrix_rows;
    for (int r = begin; r < end; r += KIN_PANEL_ROWS) {
        for (int i = 0; i < j->n; i++) {
            for (int k = r; k < r + KIN_PANEL_ROWS; k++) {
                j->traits->vec_dot(COLUMNS, j->y + (size_t)i * (size_t)j->matrix_rows + k, 0, data + (size_t)k * row_bytes, 0,
                                   j->ggml_act + (size_t)i * j->ggml_act_bytes, 0, 1);
            }
        }
    }
}

static double processor_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void *run(void *argument) {
    thread *t = argument;
    const job *j = t->job;
    int panels = j->matrix_rows / KIN_PANEL_ROWS, begin = panels * t->index / t->n, end = panels * (t->index + 1) / t->n;
    size_t panel_bytes = j->matrix_bytes / (size_t)panels;
    const double began = processor_seconds();
    for (int i = 0; i < j->n_matrices * j->n_passes; i++) {
        kin_matrix m = j->matrix;
        const uint8_t *data = (const uint8_t *)m.data + (size_t)(i % j->n_matrices) * j->matrix_bytes;
        m.data = data;
        switch (j->work) {
        case WORK_READ: t->sum += read_all(data + (size_t)begin * panel_bytes, (size_t)(end - begin) * panel_bytes); break;
        case WORK_MULTIPLY: j->kernels->matmul(&m, j->act, j->x, j->n, j->y, j->matrix_rows, begin, end); break;
        case WORK_GGML: multiply_ggml(j, data, begin * KIN_PANEL_ROWS, end * KIN_PANEL_ROWS); break;
        }
    }
    t->seconds = processor_seconds() - began;
    return NULL;
}

static double seconds(const job *j, int n_threads) {
    thread threads[THREADS_MAX] = {0};
    double most = 0;
    for (int i = 0; i < n_threads; i++) {
        threads[i] = (thread){.job = j, .index = i, .n = n_threads};
        if (i && pthread_create(&threads[i].id, NULL, run, &threads[i])) abort();
    }
    run(&threads[0]);
    for (int i = 1; i < n_threads; i++) pthread_join(threads[i].id, NULL);
    static volatile uint64_t sink; // keeps reading from being optimized away
    for (int i = 0; i < n_threads; i++) {
        sink += threads[i].sum;
        if (threads[i].seconds > most) most = threads[i].seconds;
    }
    (void)sink;
    return most;
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

// Prepares a product with n rows.
static void set_rows(job *j, int n, const float *x, kin_act *act) {
    const kin_act_kind kind = kin_kernel_act_kind(j->matrix.type);
    // More than 8 rows are not limited by memory, so fewer matrices suffice.
    if (n > 8) j->n_matrices = j->n_matrices * 8 / n > 0 ? j->n_matrices * 8 / n : 1;
    j->n = n;
    j->x = x;
    j->act = act;
    if (kind != KIN_ACT_F32) j->kernels->quantize(kind, COLUMNS, n, x, act, 0, COLUMNS / KIN_ACT_COLUMNS * n);
}

static void time_rows(const options *o, const type *t, job j, int n, const float *x, kin_act *act) {
    set_rows(&j, n, x, act);
    job reading = j;
    reading.work = WORK_READ;
    double best = 1e9, read = 1e9;
    for (int i = 0; i < o->rounds; i++) {
        double s = seconds(&reading, o->threads);
        if (s < read) read = s;
        s = seconds(&j, o->threads);
        if (s < best) best = s;
    }
    show(o, t, &j, best, read);
}

// ---- against ggml

typedef const struct ggml_type_traits_cpu *(*traits_of)(enum ggml_type);

// Returns the function of the CPU module that ggml chooses for this processor, which a program does not link to.
static traits_of load_ggml(void) {
    ggml_backend_load_all();
    ggml_backend_reg_t reg = ggml_backend_reg_by_name("CPU");
    Dl_info info;
    if (!reg || !dladdr(ggml_backend_reg_get_proc_address(reg, "ggml_backend_set_n_threads"), &info)) return NULL;
    ggml_backend_free(ggml_backend_dev_init(ggml_backend_reg_dev_get(reg, 0), NULL)); // fills ggml's tables
    void *module = dlopen(info.dli_fname, RTLD_NOW);
    fprintf(stderr, "%s\n", info.dli_fname);
    return module ? (traits_of)dlsym(module, "ggml_get_type_traits_cpu") : NULL;
}

// The rows as ggml's products of this type take them; the caller frees it.
static uint8_t *ggml_rows(job *j, traits_of traits) {
    j->traits = traits((enum ggml_type)j->matrix.type);
    j->ggml_act_bytes = ggml_row_size(j->traits->vec_dot_type, COLUMNS);
    uint8_t *act = malloc(j->ggml_act_bytes * (size_t)j->n);
    for (int i = 0; i < j->n; i++) {
        uint8_t *row = act + (size_t)i * j->ggml_act_bytes;
        const ggml_from_float_t from_float = traits(j->traits->vec_dot_type)->from_float;
        from_float ? from_float(j->x + i * COLUMNS, row, COLUMNS) : memcpy(row, j->x + i * COLUMNS, j->ggml_act_bytes);
    }
    j->ggml_act = act;
    return act;
}

// Prints three cells of the table: ggml's rate, and kin's with packed weights and with weights as in the file.
static void compare_rows(const options *o, job j, int n, const float *x, kin_act *act, traits_of traits) {
    double rate[ROUNDS_MAX], ratio[2][ROUNDS_MAX];
    set_rows(&j, n, x, act);
    uint8_t *rows = ggml_rows(&j, traits);
    job ggml = j, as_stored = j;
    ggml.work = WORK_GGML;
    as_stored.matrix.is_packed = false;
    const double products = (double)j.n_matrices * j.n_passes * COLUMNS * j.matrix_rows * n;
    for (int i = 0; i < o->rounds; i++) {
        const double s = seconds(&ggml, o->threads);
        rate[i] = products / s / 1e9;
        ratio[0][i] = s / seconds(&j, o->threads);
        ratio[1][i] = s / seconds(&as_stored, o->threads);
    }
    printf(" %.1f | %.2f | %.2f |", kin_median(rate, o->rounds), kin_median(ratio[0], o->rounds),
           kin_median(ratio[1], o->rounds));
    fflush(stdout);
    free(rows);
}

static void compare_type(const options *o, const type *t, job j, const float *x, kin_act *act) {
    static const int compared_rows[] = {1, 4, 64};
    static traits_of traits;
    if (!traits) {
        traits = load_ggml();
        if (!traits) {
            fputs("ggml has no CPU module here\n", stderr);
            exit(EXIT_FAILURE);
        }
        printf(
            "| %d thread%s | 1 row: ggml, GMAC/s | packed | as in the file | 4 rows | packed | as in the file | 64 rows | packed "
            "| as in the file |\n|---|---|---|---|---|---|---|---|---|---|\n",
            o->threads, o->threads > 1 ? "s" : "");
    }
    printf("| %s |", t->name);
    for (size_t i = 0; i < sizeof compared_rows / sizeof *compared_rows; i++)
        if (!o->rows || o->rows == compared_rows[i]) compare_rows(o, j, compared_rows[i], x, act, traits);
    printf("\n");
}

// Writes arbitrary bytes that are normal numbers in every float type or, if `all`, any bytes: indices of grids take all values.
static void fill(uint8_t *p, size_t bytes, bool all) {
    kin_rng rng;
    kin_rng_seed(&rng, 1);
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t random = kin_rng_u64(&rng);
        if (!all) random = (random & 0x1b1b1b1b1b1b1b1bu) | 0x2020202020202020u;
        memcpy(p + i, &random, 8);
    }
}

static bool parse(int argc, char **argv, options *o) {
    static const struct option names[] = {
        {"type", 1, NULL, 't'},    {"backend", 1, NULL, 'b'}, {"rows", 1, NULL, 'r'},
        {"threads", 1, NULL, 'n'}, {"mb", 1, NULL, 'm'},      {"rounds", 1, NULL, 'k'},
        {"json", 0, NULL, 'j'},    {"ggml", 0, NULL, 'g'},    {NULL, 0, NULL, 0},
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
        case 'g': o->ggml = true; break;
        default: return false;
        }
    }
    return optind == argc && o->threads >= 1 && o->threads <= THREADS_MAX && o->mb >= LEAST_MB && o->rounds >= 1 &&
           o->rounds <= ROUNDS_MAX && o->rows >= 0 && o->rows <= N_MAX;
}

static void time_type(const options *o, const type *t, const kin_kernels *k, const uint8_t *weights, const float *x, kin_act *act,
                      float *y) {
    size_t panel_bytes = kin_panel_bytes(t->number, COLUMNS), n_panels = (size_t)(o->mb * 1e6) / panel_bytes;
    if (n_panels > MATRIX_ROWS / KIN_PANEL_ROWS) n_panels = MATRIX_ROWS / KIN_PANEL_ROWS;
    if (n_panels < 1) n_panels = 1;
    int rows = (int)n_panels * KIN_PANEL_ROWS, n_matrices = (int)(o->mb * 1e6 / (double)(n_panels * panel_bytes));
    job j = {
        .work = WORK_MULTIPLY,
        .kernels = k,
        .matrix = {.type = t->number, .columns = COLUMNS, .rows = rows, .is_packed = true, .data = weights},
        .matrix_bytes = n_panels * panel_bytes,
        .matrix_rows = rows,
        .n_matrices = n_matrices > 0 ? n_matrices : 1,
        .n_passes = o->mb < LEAST_PASS_MB ? (int)ceil(LEAST_PASS_MB / o->mb) : 1,
        .y = y,
    };
    if (o->ggml) return compare_type(o, t, j, x, act);
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
    const size_t bytes = (size_t)(o.mb * 1e6) + (size_t)MATRIX_ROWS * COLUMNS * 4;
    uint8_t *weights = aligned_alloc(64, (bytes + 63) / 64 * 64);
    fill(weights, bytes, false);
    float *x = malloc(sizeof(float) * N_MAX * COLUMNS), *y = malloc(sizeof(float) * N_MAX * MATRIX_ROWS);
    kin_act *act = aligned_alloc(64, (kin_act_bytes(COLUMNS, N_MAX) + 63) / 64 * 64);
    for (int i = 0; i < N_MAX * COLUMNS; i++) x[i] = (float)(i % 255 - 127) / 100;
    int n_timed = 0;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        for (int i = 0; kin_kernels_at(i); i++) {
            if ((o.type && strcmp(o.type, types[t].name) != 0) || !chosen(&o, i)) continue;
            if (o.ggml) fill(weights, bytes, kin_kernel_act_kind(types[t].number) == KIN_ACT_256);
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
