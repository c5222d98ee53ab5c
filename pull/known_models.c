#include "pull/known_models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "sys/whole_file.h"

enum { MAX_FILE = 256 << 10 };

// Families that kin computes (docs/MODELS.md), in repositories of their makers or of ggml's and llama.cpp's. Sizes are those of
// Q4_K_M.
static const kin_known_model built_in[] = {
    {"qwen3-0.6b", "hf:Qwen/Qwen3-0.6B-GGUF", "Qwen 3, 0.6 billion weights, 0.6 GB (Q8_0): to try kin out"},
    {"qwen3-1.7b", "hf:Qwen/Qwen3-1.7B-GGUF", "Qwen 3, 1.7 billion weights, 1.8 GB (Q8_0): small machines, drafts"},
    {"qwen3-4b", "hf:Qwen/Qwen3-4B-GGUF", "Qwen 3, 4 billion weights, 2.5 GB: machines with 4 GB"},
    {"qwen3-8b", "hf:Qwen/Qwen3-8B-GGUF", "Qwen 3, 8 billion weights, 5 GB: machines with 8 GB"},
    {"qwen3-14b", "hf:Qwen/Qwen3-14B-GGUF", "Qwen 3, 14 billion weights, 9 GB: machines with 16 GB"},
    {"qwen3-32b", "hf:Qwen/Qwen3-32B-GGUF", "Qwen 3, 32 billion weights, 20 GB: two machines with 16 GB"},
    {"qwen3-30b-a3b", "hf:Qwen/Qwen3-30B-A3B-GGUF", "Qwen 3, 30 billion weights, 3 of them per token, 19 GB: fast on CPUs"},
    {"gpt-oss-20b", "hf:ggml-org/gpt-oss-20b-GGUF",
     "gpt-oss, 21 billion weights, 3.6 of them per token, 12 GB (MXFP4): machines with 16 GB"},
    {"gpt-oss-120b", "hf:ggml-org/gpt-oss-120b-GGUF",
     "gpt-oss, 117 billion weights, 5 of them per token, 63 GB (MXFP4): several machines"},
    {"gemma3-1b", "hf:ggml-org/gemma-3-1b-it-GGUF", "Gemma 3, 1 billion weights, 0.8 GB: small machines"},
    {"gemma3-4b", "hf:ggml-org/gemma-3-4b-it-GGUF", "Gemma 3, 4 billion weights, 2.5 GB: machines with 4 GB"},
    {"gemma3-12b", "hf:ggml-org/gemma-3-12b-it-GGUF", "Gemma 3, 12 billion weights, 7.3 GB: machines with 16 GB"},
    {"gemma3-27b", "hf:ggml-org/gemma-3-27b-it-GGUF", "Gemma 3, 27 billion weights, 17 GB: two machines with 16 GB"},
};

enum { N_BUILT_IN = sizeof built_in / sizeof *built_in };

// Takes the next word of a line and moves on. NULL: there is none, or it does not fit.
static const char *pop_word(char **at, char *to, size_t size) {
    *at += strspn(*at, " \t");
    size_t n = strcspn(*at, " \t\r");
    if (n == 0 || n >= size) return NULL;
    memcpy(to, *at, n);
    to[n] = '\0';
    *at += n;
    return to;
}

static int read_line(kin_known_model *m, char *line, const char *file, int number, kin_err *err) {
    *m = (kin_known_model){0};
    if (!pop_word(&line, m->name, sizeof m->name) || !pop_word(&line, m->source, sizeof m->source))
        return kin_err_set(err, "%s, line %d: is not NAME SOURCE, as in: mine hf:OWNER/REPO:Q4_K_M", file, number);
    if (strpbrk(m->name, ":/"))
        return kin_err_set(err, "%s, line %d: the name '%s' contains a ':' or '/'", file, number, m->name);
    line += strspn(line, " \t");
    snprintf(m->about, sizeof m->about, "%.*s", (int)strcspn(line, "\r"), line);
    return 0;
}

// Reads the user's file to `models`, which has room for all.
static int read_file(const char *file, kin_known_model *models, int *n, kin_err *err) {
    uint8_t *bytes;
    size_t n_bytes;
    int rc = kin_whole_file_read(file, MAX_FILE, &bytes, &n_bytes, err), number = 0;
    if (rc != 0) return rc == KIN_ABSENT ? 0 : KIN_FAIL;
    for (char *line = (char *)bytes, *next; rc == 0 && line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = '\0';
        number++;
        line[strcspn(line, "#")] = '\0';
        if (line[strspn(line, " \t\r")] == '\0') continue;
        if (*n == KIN_KNOWN_MODELS_MAX - N_BUILT_IN)
            rc = kin_err_set(err, "%s: more than %d names", file, KIN_KNOWN_MODELS_MAX - N_BUILT_IN);
        else
            rc = read_line(&models[(*n)++], line, file, number, err);
    }
    free(bytes);
    return rc;
}

int kin_known_models_list(const char *file, kin_known_model **models, int *n, kin_err *err) {
    kin_known_model *all = calloc(KIN_KNOWN_MODELS_MAX, sizeof *all);
    *models = NULL;
    *n = 0;
    if (!all) return kin_err_set(err, "out of memory");
    if (file && read_file(file, all, n, err) != 0) {
        free(all);
        return KIN_FAIL;
    }
    memcpy(all + *n, built_in, sizeof built_in);
    *n += N_BUILT_IN;
    *models = all;
    return 0;
}

int kin_known_models_find(const char *file, const char *name, kin_known_model *model, kin_err *err) {
    kin_known_model *all;
    int n;
    if (kin_known_models_list(file, &all, &n, err) != 0) return KIN_FAIL;
    for (int i = 0; i < n; i++) {
        if (strcasecmp(all[i].name, name) != 0) continue;
        *model = all[i];
        free(all);
        return 0;
    }
    free(all);
    return KIN_ABSENT;
}
