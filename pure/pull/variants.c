#include "pure/pull/variants.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/sentence.h"
#include "base/units.h"

// ---- texts

static bool same_word(const char *a, const char *b) {
    for (; *a && *b; a++, b++)
        if (tolower((unsigned char)*a) != tolower((unsigned char)*b)) return false;
    return *a == *b;
}

static bool contains(const char *text, const char *word) {
    size_t n = strlen(word);
    for (; *text; text++) {
        size_t i = 0;
        while (i < n && text[i] && tolower((unsigned char)text[i]) == word[i]) i++;
        if (i == n) return true;
    }
    return false;
}

// True for the word of a quantization in capitals: Q4_K_M, IQ2_XXS, TQ1_0, BF16, MXFP4.
static bool is_quant(const char *word) {
    static const char *const whole[] = {"F32", "F16", "BF16", "FP16", "FP32", "MXFP4", "MXFP4_MOE", "NVFP4"};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        if (strcmp(word, whole[i]) == 0) return true;
    const char *at = word + (word[0] == 'I' || word[0] == 'T');
    if (at[0] != 'Q' || at[1] < '1' || at[1] > '8' || at[2] != '_') return false;
    for (at += 3; *at; at++)
        if (!isalnum((unsigned char)*at) && *at != '_') return false;
    return word[strlen(word) - 1] != '_';
}

void kin_quant_word_of(const char *path, char quant[KIN_QUANT_TEXT]) {
    char word[KIN_QUANT_TEXT] = "", before[KIN_QUANT_TEXT] = "";
    size_t n = 0;
    quant[0] = '\0';
    for (const char *at = path;; at++) { // the last word between '-', '.' and '/' that is one
        if (*at && *at != '-' && *at != '.' && *at != '/') {
            if (n < sizeof word - 4) word[n++] = (char)toupper((unsigned char)*at); // room for "UD-"
            continue;
        }
        word[n] = '\0';
        if (is_quant(word)) {
            quant[0] = '\0';
            if (strcmp(before, "UD") == 0) memcpy(quant, "UD-", 4);
            memcpy(quant + strlen(quant), word, n + 1);
        }
        memcpy(before, word, sizeof before);
        n = 0;
        if (!*at) break;
    }
}

int kin_part_of(const char *path, int *n_parts) {
    static const char pattern[] = "-NNNNN-of-NNNNN.gguf";
    size_t n = strlen(path), n_pattern = sizeof pattern - 1;
    *n_parts = 1;
    if (n <= n_pattern) return 0;
    const char *at = path + n - n_pattern;
    for (size_t i = 0; i < n_pattern; i++) {
        bool is_same = pattern[i] == 'N' ? isdigit((unsigned char)at[i]) != 0 : tolower((unsigned char)at[i]) == pattern[i];
        if (!is_same) return 0;
    }
    int part = atoi(at + 1), parts = atoi(at + 10);
    if (part < 1 || part > parts) return 0;
    *n_parts = parts;
    return part;
}

// ---- files

void kin_repo_fini(kin_repo *repo) {
    free(repo->files);
    *repo = (kin_repo){0};
}

static bool is_model(const char *path) {
    size_t n = strlen(path);
    return n > 5 && same_word(path + n - 5, ".gguf") && !contains(path, "mmproj") && !contains(path, "imatrix");
}

int kin_repo_add(kin_repo *repo, const kin_repo_file *file, kin_err *err) {
    if (!is_model(file->path)) return 0;
    if (repo->n == KIN_REPO_FILES_MAX) return kin_err_set(err, "the repository has more than %d model files", KIN_REPO_FILES_MAX);
    if (repo->n == repo->cap) {
        int cap = repo->cap ? 2 * repo->cap : 16;
        kin_repo_file *larger = realloc(repo->files, (size_t)cap * sizeof *larger);
        if (!larger) return kin_err_set(err, "out of memory");
        repo->files = larger;
        repo->cap = cap;
    }
    repo->files[repo->n++] = *file;
    return 0;
}

// ---- variants

static int compare_paths(const void *a, const void *b) {
    return strcmp(((const kin_repo_file *)a)->path, ((const kin_repo_file *)b)->path);
}

static int compare_sizes(const void *a, const void *b) {
    const kin_variant *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

// True if files[first ...] are the parts 1 to n_parts of one model.
static bool are_parts(const kin_repo *repo, int first, int n_parts) {
    size_t n_stem = strlen(repo->files[first].path) - strlen("-NNNNN-of-NNNNN.gguf");
    if (first + n_parts > repo->n) return false;
    for (int i = 0; i < n_parts; i++) {
        int n, part = kin_part_of(repo->files[first + i].path, &n);
        if (part != i + 1 || n != n_parts || strncmp(repo->files[first].path, repo->files[first + i].path, n_stem) != 0)
            return false;
    }
    return true;
}

int kin_repo_variants(kin_repo *repo, kin_variant **variants, int *n, kin_err *err) {
    *n = 0;
    *variants = calloc((size_t)repo->n + 1, sizeof **variants);
    if (!*variants) return kin_err_set(err, "out of memory");
    if (repo->n > 1) qsort(repo->files, (size_t)repo->n, sizeof *repo->files, compare_paths);
    for (int i = 0; i < repo->n;) {
        kin_variant v = {.first = i};
        int part = kin_part_of(repo->files[i].path, &v.n_parts);
        if (part > 1 || (part == 1 && !are_parts(repo, i, v.n_parts))) { // incomplete
            i++;
            continue;
        }
        for (int k = 0; k < v.n_parts; k++) v.bytes += repo->files[i + k].size;
        kin_quant_word_of(repo->files[i].path, v.quant);
        (*variants)[(*n)++] = v;
        i += v.n_parts;
    }
    if (*n > 1) qsort(*variants, (size_t)*n, sizeof **variants, compare_sizes);
    if (*n > 0) return 0;
    free(*variants);
    *variants = NULL;
    return kin_err_set(err, repo->n > 0
                                ? "the repository has only some parts of a split model"
                                : "the repository has no GGUF file: look for one of the same model with GGUF in its name");
}

// Appends the quantizations, or the files without one, to a sentence.
static void list_variants(const kin_repo *repo, const kin_variant *variants, int n, kin_err *err) {
    for (int i = 0; i < n; i++) {
        const kin_variant *v = &variants[i];
        char size[32];
        size_t at = strlen(err->text);
        kin_sentence_print(err->text + at, sizeof err->text - at, "%s%s (%s)", i ? ", " : " ",
                           v->quant[0] ? v->quant : kin_path_file(repo->files[v->first].path),
                           kin_size_format(v->bytes, size, sizeof size));
    }
}

static bool has_file(const kin_repo *repo, const kin_variant *v, const char *path) {
    for (int i = 0; i < v->n_parts; i++)
        if (strcmp(repo->files[v->first + i].path, path) == 0) return true;
    return false;
}

static bool is_asked(const kin_repo *repo, const kin_variant *v, const kin_model_ref *ref, bool with_ud) {
    if (ref->is_file) return has_file(repo, v, ref->pick);
    if (with_ud && strncmp(v->quant, "UD-", 3) == 0) return same_word(v->quant + 3, ref->pick);
    return same_word(v->quant, ref->pick);
}

int kin_variant_find(const kin_repo *repo, const kin_variant *variants, int n, const kin_model_ref *ref, int *index,
                     kin_err *err) {
    for (int with_ud = 0; with_ud < 2; with_ud++) { // Q4_K_XL also means UD-Q4_K_XL, if there is nothing else
        int n_found = 0;
        for (int i = 0; i < n; i++) {
            if (!is_asked(repo, &variants[i], ref, with_ud)) continue;
            if (n_found++ == 0) *index = i;
        }
        if (n_found == 1) return 0;
        if (n_found > 1)
            return kin_err_set(err, "%s has %d models with %s: name a file, such as hf:%s/%s", ref->repo, n_found, ref->pick,
                               ref->repo, repo->files[variants[*index].first].path);
    }
    kin_err_set(err, "%s has no %s; it has", ref->repo, ref->pick);
    list_variants(repo, variants, n, err);
    return KIN_FAIL;
}

// ---- the choice

uint64_t kin_variant_needs(uint64_t bytes, uint64_t beside) {
    return bytes + (beside > 0 ? beside : bytes / 16 + ((uint64_t)512 << 20));
}

// Bits of a weight, by the digit of the name; 16 and 32 for floats.
static int bits_of(const kin_variant *v) {
    const char *q = strncmp(v->quant, "UD-", 3) == 0 ? v->quant + 3 : v->quant;
    if (strstr(q, "FP4")) return 4;
    if (strstr(q, "F16") || strstr(q, "FP16")) return 16;
    if (strstr(q, "32")) return 32;
    q += *q == 'I' || *q == 'T';
    return q[0] == 'Q' ? q[1] - '0' : 0;
}

// Small, and hardly worse than the original.
int kin_variant_usual(const kin_variant *variants, int n) {
    static const char *const order[] = {"Q4_K_M", "MXFP4", "MXFP4_MOE", "UD-Q4_K_XL", "Q4_K_S", "Q4_K_L", "IQ4_NL",
                                        "IQ4_XS", "Q4_0",  "Q4_1",      "Q5_K_M",     "Q5_K_S", "Q5_0",   "Q5_1",
                                        "Q6_K",   "Q8_0",  "Q3_K_L",    "Q3_K_M",     "Q3_K_S", "BF16",   "F16"};
    for (size_t k = 0; k < sizeof order / sizeof *order; k++) {
        for (int i = 0; i < n; i++)
            if (strcmp(variants[i].quant, order[k]) == 0) return i;
    }
    return 0;
}

// Memory for a model and for what it needs beside its weights.
typedef struct space {
    uint64_t room, beside;
} space;

static bool fits(const kin_variant *v, const space *s) {
    return kin_variant_needs(v->bytes, s->beside) <= s->room;
}

// Returns the largest variant that fits and has at least min_bits; -1: none.
static int largest_that_fits(const kin_variant *variants, int n, const space *s, int min_bits) {
    for (int i = n - 1; i >= 0; i--)
        if (fits(&variants[i], s) && bits_of(&variants[i]) >= min_bits) return i;
    return -1;
}

static const char *name_of(const kin_variant *v) {
    return v->quant[0] ? v->quant : "this file";
}

static int streamed_percent(const kin_variant *v, const space *s) {
    uint64_t over = kin_variant_needs(v->bytes, s->beside) - s->room;
    return over >= v->bytes ? 100 : (int)(100 * over / v->bytes) + 1;
}

int kin_variant_choose(const kin_variant *variants, int n, uint64_t room, uint64_t beside, char *why, size_t size) {
    const space s = {room, beside};
    int usual = kin_variant_usual(variants, n), best = largest_that_fits(variants, n, &s, 3);
    const kin_variant *u = &variants[usual], *b = best >= 0 ? &variants[best] : NULL;
    char a[32], c[32], r[32];
    kin_size_format(room, r, sizeof r);
    kin_size_format(u->bytes, a, sizeof a);
    kin_size_format(b ? b->bytes : 0, c, sizeof c);
    if (fits(u, &s)) {
        if (b && best != usual)
            kin_sentence_print(why, size, "%s: %s, fits into the %s of memory here; %s (%s) would fit too", name_of(u), a, r,
                               name_of(b), c);
        else
            kin_sentence_print(why, size, "%s: %s, fits into the %s of memory here", name_of(u), a, r);
        return usual;
    }
    if (b) {
        kin_sentence_print(
            why, size,
            "%s: %s, the largest that fits into the %s of memory here; %s (%s) would read %d %% from disk for every token",
            name_of(b), c, r, name_of(u), a, streamed_percent(u, &s));
        return best;
    }
    int any = largest_that_fits(variants, n, &s, 0);
    if (any < 0) any = usual == 0 ? -1 : 0; // the smallest, as the alternative
    kin_sentence_print(why, size, "%s: %s, of which %d %% are read from disk for every token: there are %s of memory", name_of(u),
                       a, streamed_percent(u, &s), r);
    if (any >= 0 && any != usual) {
        size_t at = strlen(why);
        kin_sentence_print(why + at, size - at, "; the %s is %s (%s)",
                           fits(&variants[any], &s) ? "largest that would fit" : "smallest", name_of(&variants[any]),
                           kin_size_format(variants[any].bytes, c, sizeof c));
    }
    return usual;
}
