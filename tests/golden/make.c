// make: the golden data of a model, by llama.cpp. Not built with kin; see README.md.
//
//   make [--fused] NAME FOLDER ID...
//
// Reads FOLDER/NAME.gguf and FOLDER/NAME.f32.gguf, a copy whose weights are the same values in F32. Writes FOLDER/NAME.logits,
// the exact logits of the prompt and of 16 further ids, and prints the model's row of golden.tsv. --fused: with the fused
// attention in all runs, since the other one of llama.cpp 0.7.0 leaves this model's indexer out. The exact logits are computed
// without the rounding to F16 before it.
#define _GNU_SOURCE // RTLD_NEXT
#include <dlfcn.h>
#include <ggml.h>
#include <llama.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_FURTHER = 16, MAX_IDS = 256, N_RUNS = 3 };

static struct llama_model *models[2]; // the one of the table, and the exact one
static llama_token ids[MAX_IDS];
static int n_prompt, n_ids, n_vocab;
static int always_fused, is_exact, head_dim;

static void fail(const char *text) {
    fprintf(stderr, "make: %s\n", text);
    exit(1);
}

static void *allocate(size_t n) {
    void *at = calloc(1, n);
    if (!at) fail("out of memory");
    return at;
}

static void print_warnings(enum ggml_log_level level, const char *text, void *user) {
    (void)user;
    if (level >= GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

// Repacked rows of 32 weights, which only such small models have, give wrong products in llama.cpp 0.7.0.
static struct llama_model *load(const char *folder, const char *name, const char *end) {
    struct llama_model_params p = llama_model_default_params();
    char path[4096];
    snprintf(path, sizeof path, "%s/%s%s.gguf", folder, name, end);
    p.use_extra_bufts = false;
    struct llama_model *model = llama_model_load_from_file(path, p);
    if (!model) fail(path);
    return model;
}

// Is called by llama.cpp's library instead of ggml's function. If logits are to be exact, keys and values, which have
// head_dim columns, stay in F32; masks must be in F16.
struct ggml_tensor *ggml_cast(struct ggml_context *ctx, struct ggml_tensor *a, enum ggml_type type) {
    struct ggml_tensor *(*cast)(struct ggml_context *, struct ggml_tensor *, enum ggml_type);
    *(void **)&cast = dlsym(RTLD_NEXT, "ggml_cast");
    return is_exact && type == GGML_TYPE_F16 && a->ne[0] == head_dim ? a : cast(ctx, a, type);
}

// A fused attention has keys and values in F16, unless it is exact; the other one in F32.
static struct llama_context *open_context(struct llama_model *model, int is_fused) {
    struct llama_context_params p = llama_context_default_params();
    p.n_ctx = p.n_batch = p.n_ubatch = 1024;
    p.n_threads = p.n_threads_batch = 1;
    p.type_k = p.type_v = is_fused ? GGML_TYPE_F16 : GGML_TYPE_F32;
    p.flash_attn_type = is_fused || always_fused ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    struct llama_context *context = llama_init_from_model(model, p);
    if (!context) fail("a context cannot be opened");
    return context;
}

// Computes the logits of n ids from the one at `begin` on. // [n, n_vocab]
static void decode(struct llama_context *context, int begin, int n, float *logits) {
    struct llama_batch batch = llama_batch_init(n, 0, 1);
    batch.n_tokens = n;
    for (int i = 0; i < n; i++) {
        batch.token[i] = ids[begin + i];
        batch.pos[i] = begin + i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = 1;
    }
    if (llama_decode(context, batch) != 0) fail("llama_decode has failed");
    for (int i = 0; i < n; i++)
        memcpy(logits + (size_t)i * (size_t)n_vocab, llama_get_logits_ith(context, i), (size_t)n_vocab * sizeof *logits);
    llama_batch_free(batch);
}

static void eval(struct llama_model *model, int is_fused, int n_at_once, float *logits) {
    struct llama_context *context = open_context(model, is_fused);
    for (int at = 0; at < n_ids; at += n_at_once) decode(context, at, n_at_once, logits + (size_t)at * (size_t)n_vocab);
    llama_free(context);
}

static llama_token best_of(const float *logits) {
    int best = 0;
    for (int i = 1; i < n_vocab; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

static void generate(void) {
    struct llama_context *context = open_context(models[0], 1);
    float *logits = allocate((size_t)n_prompt * (size_t)n_vocab * sizeof *logits);
    decode(context, 0, n_prompt, logits);
    ids[n_ids++] = best_of(logits + (size_t)(n_prompt - 1) * (size_t)n_vocab);
    while (n_ids < n_prompt + N_FURTHER) {
        decode(context, n_ids - 1, 1, logits);
        ids[n_ids++] = best_of(logits);
    }
    free(logits);
    llama_free(context);
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Raises the median and the maximum of the rows' relative L2 distances.
static void raise_errors(const float *got, const float *want, double *median, double *max) {
    double errors[MAX_IDS];
    for (int row = 0; row < n_ids; row++) {
        double diff = 0, sum = 0;
        for (int i = 0; i < n_vocab; i++, got++, want++) {
            diff += (double)(*got - *want) * (double)(*got - *want);
            sum += (double)*want * (double)*want;
        }
        errors[row] = sqrt(diff / sum);
    }
    qsort(errors, (size_t)n_ids, sizeof *errors, compare);
    *median = fmax(*median, (errors[(n_ids - 1) / 2] + errors[n_ids / 2]) / 2);
    *max = fmax(*max, errors[n_ids - 1]);
}

// Fails if a row's largest logit is not the exact one, which leads the next one by a tenth of the row's root mean square.
static void check_largest(const float *got, const float *want) {
    for (int row = 0; row < n_ids; row++, got += n_vocab, want += n_vocab) {
        const int best = best_of(want);
        float next = -INFINITY;
        double sum = 0;
        for (int i = 0; i < n_vocab; i++) {
            if (i != best) next = fmaxf(next, want[i]);
            sum += (double)want[i] * (double)want[i];
        }
        if ((double)(want[best] - next) >= 0.1 * sqrt(sum / n_vocab) && best_of(got) != best)
            fail("llama.cpp itself breaks the rules; try another seed");
    }
}

static int read_head_dim(const struct llama_model *model) {
    char family[64], key[128], value[32];
    if (llama_model_meta_val_str(model, "general.architecture", family, sizeof family) < 0) fail("there is no architecture");
    snprintf(key, sizeof key, "%s.attention.key_length", family);
    return llama_model_meta_val_str(model, key, value, sizeof value) < 0 ? 0 : atoi(value);
}

static void save(const char *folder, const char *name, const float *logits) {
    char path[4096];
    const size_t n = (size_t)n_ids * (size_t)n_vocab;
    snprintf(path, sizeof path, "%s/%s.logits", folder, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(logits, sizeof *logits, n, f) != n || fclose(f) != 0) fail(path);
}

static void print_row(const char *name, double median, double max) {
    printf("%s\t%d\t", name, n_vocab);
    for (int i = 0; i < n_ids; i++) printf("%d%s", ids[i], i == n_prompt - 1 || i == n_ids - 1 ? "\t" : " ");
    printf("%.2e\t%.2e\n", median, max);
}

int main(int argc, char **argv) {
    static const struct { int is_fused, is_whole; } runs[N_RUNS] = {{0, 1}, {1, 1}, {1, 0}};
    double median = 0, max = 0;
    always_fused = argc > 1 && strcmp(argv[1], "--fused") == 0;
    argv += always_fused;
    argc -= always_fused;
    n_prompt = n_ids = argc - 3;
    if (n_prompt < 1 || n_prompt > MAX_IDS - N_FURTHER) fail("make [--fused] NAME FOLDER ID...");
    for (int i = 0; i < n_prompt; i++) ids[i] = atoi(argv[3 + i]);
    llama_log_set(print_warnings, NULL);
    ggml_backend_load_all();
    models[0] = load(argv[2], argv[1], "");
    models[1] = load(argv[2], argv[1], ".f32");
    n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(models[0]));
    head_dim = read_head_dim(models[0]);
    generate();
    const size_t bytes = (size_t)n_ids * (size_t)n_vocab * sizeof(float);
    float *exact = allocate(bytes), *got = allocate(bytes);
    is_exact = 1;
    eval(models[1], 0, n_ids, exact);
    is_exact = 0;
    save(argv[2], argv[1], exact);
    for (int i = 0; i < N_RUNS; i++) {
        eval(models[0], runs[i].is_fused, runs[i].is_whole ? n_ids : 1, got);
        raise_errors(got, exact, &median, &max);
        check_largest(got, exact);
    }
    print_row(argv[1], median, max);
    return 0;
}
