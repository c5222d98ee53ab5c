#include "testkit/family_gen.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "model/arch.h"
#include "model/draft_block.h"
#include "model/streams.h"

enum { MAX_TEXT = 65536, MAX_LINES = 128, MAX_LIST = 256, MAX_PRESENT = 16, MAX_IGNORED = 16 };

typedef struct line {
    char *key, *value;
} line;

struct kin_family {
    char text[MAX_TEXT]; // of which the lines are parts
    line lines[MAX_LINES];
    int n_lines;
    const char *optional;       // names with spaces between them
    char *present[MAX_PRESENT]; // "NAME ROWS"
    int n_present;
    char *ignored[MAX_IGNORED]; // "FIRST[/STEP] NAME COLUMNS [ROWS]"
    int n_ignored;
    const char *path, *arch;
    int n_vocab;
    bool is_tied;
    bool has_draft_norm;                      // draft blocks have a norm of their own before the output
    kin_hparams hp, drafts[KIN_DRAFT_BLOCKS]; // of the layers, and of each draft block as the only one
};

// ---- the text

static char *trim(char *text) {
    text += strspn(text, " \t");
    for (size_t n = strlen(text); n > 0 && strchr(" \t\r", text[n - 1]); n--) text[n - 1] = '\0';
    return text;
}

static int add_line(kin_family *f, char *text, kin_err *err) {
    char *key = trim(text), *value = key + strcspn(key, " \t");
    if (!*key || *key == '#') return 0;
    if (*value) *value++ = '\0';
    value = trim(value);
    if (strcmp(key, "tied") == 0) {
        f->is_tied = true;
    } else if (strcmp(key, "draft_norm") == 0) {
        f->has_draft_norm = true;
    } else if (strcmp(key, "optional") == 0) {
        f->optional = value;
    } else if (strcmp(key, "present") == 0) {
        if (f->n_present == MAX_PRESENT) return kin_err_set(err, "%s: more than %d tensors", f->path, MAX_PRESENT);
        f->present[f->n_present++] = value;
    } else if (strcmp(key, "ignored") == 0) {
        if (f->n_ignored == MAX_IGNORED) return kin_err_set(err, "%s: more than %d ignored tensors", f->path, MAX_IGNORED);
        f->ignored[f->n_ignored++] = value;
    } else if (!*value) {
        return kin_err_set(err, "%s: the line '%s' has no value", f->path, key);
    } else if (strcmp(key, "architecture") == 0) {
        f->arch = value;
    } else {
        if (f->n_lines == MAX_LINES) return kin_err_set(err, "%s: more than %d lines", f->path, MAX_LINES);
        f->lines[f->n_lines++] = (line){key, value};
    }
    return 0;
}

static int read_text(kin_family *f, kin_err *err) {
    FILE *file = fopen(f->path, "r");
    if (!file) return kin_err_set(err, "%s: %s", f->path, strerror(errno));
    const size_t n = fread(f->text, 1, MAX_TEXT - 1, file);
    fclose(file);
    if (n == MAX_TEXT - 1) return kin_err_set(err, "%s: more than %d bytes", f->path, MAX_TEXT - 2);
    f->text[n] = '\0';
    for (char *at = f->text, *next; at; at = next) {
        next = strchr(at, '\n');
        if (next) *next++ = '\0';
        if (add_line(f, at, err) != 0) return KIN_FAIL;
    }
    return f->arch ? 0 : kin_err_set(err, "%s: no line names the architecture", f->path);
}

// ---- metadata

typedef enum kind { INTEGER, NUMBER, TRUTH, TEXT } kind;

static kind kind_of(const char *word, double *number) {
    char *end;
    *number = strtod(word, &end);
    if (end != word && !*end) return strpbrk(word, ".e") ? NUMBER : INTEGER;
    *number = strcmp(word, "true") == 0;
    return *number != 0 || strcmp(word, "false") == 0 ? TRUTH : TEXT;
}

// Puts a list of integers, numbers or truths, which all have the kind of the first one.
static void put_list(kin_gguf_writer *w, const char *key, const char *value) {
    static const kin_gguf_kind kinds[] = {[INTEGER] = KIN_GGUF_I32, [NUMBER] = KIN_GGUF_F32, [TRUTH] = KIN_GGUF_BOOL};
    int32_t integers[MAX_LIST];
    float numbers[MAX_LIST];
    uint8_t truths[MAX_LIST];
    const void *const elements[] = {[INTEGER] = integers, [NUMBER] = numbers, [TRUTH] = truths};
    char copy[2048], *rest = copy;
    uint64_t n = 0;
    kind first = INTEGER;
    snprintf(copy, sizeof copy, "%s", value + 1);
    for (char *word; n < MAX_LIST && (word = strtok_r(rest, " ,]", &rest)); n++) {
        double number;
        const kind k = kind_of(word, &number);
        if (n == 0) first = k;
        kin_assert(k == first && k != TEXT);
        integers[n] = (int32_t)number;
        numbers[n] = (float)number;
        truths[n] = number != 0;
    }
    kin_gguf_writer_put_array(w, key, kinds[first], n, elements[first]);
}

// Puts a list of 64-bit integers: "u64[1, 2]".
static void put_large_list(kin_gguf_writer *w, const char *key, const char *value) {
    uint64_t numbers[MAX_LIST], n = 0;
    char *at = strchr(value, '[') + 1;
    for (char *end; n < MAX_LIST; at = end + strspn(end, " ,")) {
        numbers[n] = strtoull(at, &end, 10);
        if (end == at) break;
        n++;
    }
    kin_gguf_writer_put_array(w, key, KIN_GGUF_U64, n, numbers);
}

static void put_keys(const kin_family *f, kin_gguf_writer *w) {
    for (int i = 0; i < f->n_lines; i++) {
        const char *value = f->lines[i].value;
        char key[128];
        double number;
        snprintf(key, sizeof key, "%s.%s", f->arch, f->lines[i].key);
        if (*value == '[') {
            put_list(w, key, value);
            continue;
        }
        if (strncmp(value, "u64[", 4) == 0) {
            put_large_list(w, key, value);
            continue;
        }
        switch (kind_of(value, &number)) {
        case INTEGER: kin_gguf_writer_put_int(w, key, KIN_GGUF_U32, (int64_t)number); break;
        case NUMBER: kin_gguf_writer_put_float(w, key, KIN_GGUF_F32, number); break;
        case TRUTH: kin_gguf_writer_put_int(w, key, KIN_GGUF_BOOL, (int64_t)number); break;
        case TEXT: kin_gguf_writer_put_str(w, key, value); break;
        }
    }
}

// ---- what kin's family makes of it

// Adds tensors of one column, with that many rows.
static void add_present(const kin_family *f, kin_gguf_writer *w, const float *zeros) {
    const int64_t embd[] = {1, f->n_vocab};
    kin_gguf_writer_add(w, "token_embd.weight", 0, 2, embd, zeros);
    for (int i = 0; i < f->n_present; i++) {
        char name[64] = "";
        int n_rows = 1;
        sscanf(f->present[i], "%63s %d", name, &n_rows);
        const int64_t ne[] = {1, n_rows < 1 || n_rows > f->n_vocab ? 1 : n_rows};
        kin_gguf_writer_add(w, name, 0, 2, ne, zeros);
    }
}

static int describe_drafts(kin_family *f, const kin_gguf *gguf, kin_err *err) {
    const int n = f->hp.n_draft_layer, n_blocks = f->hp.n_layer + n;
    if (n > KIN_DRAFT_BLOCKS) return kin_err_set(err, "%s: more than %d draft blocks", f->path, KIN_DRAFT_BLOCKS);
    for (int i = 0; i < n; i++) {
        f->drafts[i] = f->hp;
        f->drafts[i].layers = NULL;
        if (kin_draft_block_describe(&f->drafts[i], gguf, n_blocks, f->hp.n_layer + i, err) != 0) return KIN_FAIL;
    }
    return 0;
}

// A family reads keys, the size of the vocabulary from the embedding, and which tensors are present.
static int describe(kin_family *f, kin_err *err) {
    kin_gguf_writer *w = kin_gguf_writer_new();
    kin_gguf *gguf = NULL;
    uint8_t *bytes;
    size_t size;
    float *zeros = calloc((size_t)f->n_vocab, sizeof *zeros);
    kin_assert(zeros);
    kin_gguf_writer_put_str(w, "general.architecture", f->arch);
    put_keys(f, w);
    add_present(f, w, zeros);
    kin_gguf_writer_save_bytes(w, &bytes, &size);
    int rc = kin_gguf_open_bytes(&gguf, f->path, bytes, size, err);
    if (rc == 0) {
        f->hp.arch = kin_arch_of(gguf, err);
        rc = f->hp.arch ? kin_arch_read(&f->hp, gguf, err) : KIN_FAIL;
    }
    if (rc == 0) rc = describe_drafts(f, gguf, err);
    kin_gguf_close(gguf);
    kin_gguf_writer_free(w);
    free(bytes);
    free(zeros);
    return rc;
}

static bool is_named(const kin_family *f, const char *name) {
    const size_t n = strlen(name);
    for (const char *at = f->optional; at && (at = strstr(at, name)); at += n) {
        if ((at == f->optional || at[-1] == ' ') && (at[n] == ' ' || !at[n])) return true;
    }
    return false;
}

static kin_weight_set weights_of(const kin_family *f, const kin_hparams *hp, int il) {
    const kin_layer layer = kin_layer_of(hp, il);
    kin_weight_set set = hp->arch->required(hp, &layer), may = {{0}};
    if (hp->arch->optional) may = hp->arch->optional(hp, &layer);
    for (int w = kin_weight_set_next(&may, 0); w < KIN_WEIGHTS_MAX; w = kin_weight_set_next(&may, w + 1)) {
        if (is_named(f, kin_weight_name(w))) kin_weight_set_add(&set, w);
    }
    return set;
}

int kin_family_read(kin_family **out, const char *path, int n_vocab, kin_err *err) {
    kin_family *f = calloc(1, sizeof *f);
    kin_assert(f);
    f->path = path;
    f->n_vocab = n_vocab;
    int rc = n_vocab > 0 ? read_text(f, err) : kin_err_set(err, "a vocabulary needs tokens");
    if (rc == 0) rc = describe(f, err);
    *out = rc == 0 ? f : NULL;
    if (rc != 0) kin_family_free(f);
    return rc;
}

void kin_family_free(kin_family *f) {
    if (f) free(f->hp.layers);
    for (int i = 0; f && i < KIN_DRAFT_BLOCKS; i++) free(f->drafts[i].layers);
    free(f);
}

int64_t kin_family_n_weights(const kin_family *f) {
    int64_t n = (f->is_tied ? 1 : 2) * (int64_t)f->n_vocab * f->hp.n_embd;
    n += (int64_t)f->hp.n_input * f->hp.n_layer * (f->n_vocab + f->hp.n_embd + 1);
    kin_streams_end end;
    for (int i = 0; kin_streams_end_at(&f->hp, i, &end); i++) n += end.ne[0] * end.ne[1];
    for (int il = 0; il < f->hp.n_layer; il++) {
        const kin_weight_set set = weights_of(f, &f->hp, il);
        for (int w = kin_weight_set_next(&set, 0); w < KIN_WEIGHTS_MAX; w = kin_weight_set_next(&set, w + 1)) {
            int64_t ne[3];
            kin_weight_shape(w, &f->hp, il, ne);
            n += ne[0] * ne[1] * ne[2];
        }
    }
    return n;
}

// ---- tensors

static kin_role role_of(int weight) {
    switch (weight) {
    case KIN_W_ATTN_K: return KIN_ROLE_ATTN_K;
    case KIN_W_ATTN_V: return KIN_ROLE_ATTN_V;
    case KIN_W_ATTN_OUT:
    case KIN_W_DELTA_OUT:
    case KIN_W_KDA_OUT:
    case KIN_W_LATENT_OUT: return KIN_ROLE_ATTN_OUTPUT;
    case KIN_W_FFN_UP:
    case KIN_W_FFN_UP_EXPS: return KIN_ROLE_FFN_UP;
    case KIN_W_FFN_DOWN:
    case KIN_W_FFN_DOWN_EXPS: return KIN_ROLE_FFN_DOWN;
    default: return KIN_ROLE_OTHER;
    }
}

// Norms and scales are around 1, biases around 0; the logarithm of a state's decay is negative.
static float mean_of(int weight) {
    const char *name = kin_weight_name(weight);
    if (weight == KIN_W_DELTA_A || weight == KIN_W_STATE_A) return -1;
    if (strstr(name, ".bias")) return 0;
    return strstr(name, "norm") || strstr(name, "scale") ? 1 : 0;
}

static bool is_float_matrix(int weight) {
    switch (weight) {
    case KIN_W_DELTA_CONV:
    case KIN_W_CONV_TAPS:
    case KIN_W_DELTA_ALPHA:
    case KIN_W_DELTA_BETA:
    case KIN_W_DELTA_BETA_ALPHA:
    case KIN_W_INDEX_POOL_GATE:
    case KIN_W_FFN_ROUTER: return true;
    default: return kin_weight_is_vector(weight);
    }
}

static bool is_taps(int weight) {
    if (weight == KIN_W_KDA_CONV_Q || weight == KIN_W_KDA_CONV_K || weight == KIN_W_KDA_CONV_V) return true;
    return weight == KIN_W_DELTA_CONV || weight == KIN_W_CONV_TAPS || weight == KIN_W_NGRAM_CONV;
}

// Adds a weight of layer `il` as one of block i_block.
static void add_weight(const kin_hparams *hp, kin_generator *g, int il, int i_block, int weight) {
    char name[80];
    int64_t ne[3];
    snprintf(name, sizeof name, "blk.%d.%s", i_block, kin_weight_name(weight));
    kin_weight_shape(weight, hp, il, ne);
    if (kin_weight_is_integers(weight))
        kin_gen_add_experts(g, name, (int)ne[0], ne[1], hp->n_expert);
    else if (kin_weight_is_vector(weight) && !is_taps(weight) && ne[1] > 1)
        kin_gen_add_vectors(g, name, mean_of(weight), ne[0], ne[1]);
    else if (is_taps(weight) && ne[2] > 1)
        kin_gen_add_taps(g, name, ne[0], ne[2]);
    else if (is_float_matrix(weight) && ne[1] > 1)
        kin_gen_add_floats(g, name, ne[0], ne[1], 0);
    else if (kin_weight_is_vector(weight))
        kin_gen_add_vector(g, name, mean_of(weight), ne[0]);
    else
        kin_gen_add_matrix(g, role_of(weight), il, name, ne[0], ne[1], ne[2] > 1 ? ne[2] : 0);
}

// Adds the tensors of a block that kin's family accepts and does not read.
static void add_ignored(const kin_family *f, kin_generator *g, int i_block) {
    for (int i = 0; i < f->n_ignored; i++) {
        char what[64] = "", name[80];
        int first = 0, step = 1, at = 0, n_cols = 1, n_rows = 1;
        if (sscanf(f->ignored[i], "%d/%d%n", &first, &step, &at) < 2) sscanf(f->ignored[i], "%d%n", &first, &at);
        const int n = sscanf(f->ignored[i] + at, "%63s %d %d", what, &n_cols, &n_rows);
        snprintf(name, sizeof name, "blk.%d.%s", i_block, what);
        if (i_block < first || step < 1 || (i_block - first) % step != 0) continue;
        if (n == 3)
            kin_gen_add_matrix(g, KIN_ROLE_OTHER, i_block, name, n_cols, n_rows, 0);
        else
            kin_gen_add_vector(g, name, strstr(what, ".bias") ? 0 : 1, n_cols);
    }
}

// Adds a block with the weights of layer `il`, and with those of `also`.
static void add_block(const kin_family *f, const kin_hparams *hp, kin_generator *g, int il, int i_block,
                      const kin_weight_set *also) {
    kin_weight_set set = weights_of(f, hp, il);
    kin_weight_set_join(&set, also);
    for (int w = kin_weight_set_next(&set, 0); w < KIN_WEIGHTS_MAX; w = kin_weight_set_next(&set, w + 1)) {
        const int first = kin_weight_find(kin_weight_name(w)); // a tensor with two roles is written once
        if (first == w || !kin_weight_set_has(&set, first)) add_weight(hp, g, il, i_block, w);
    }
    add_ignored(f, g, i_block);
}

static void add_rope_factors(const kin_family *f, kin_generator *g) {
    if (f->hp.has_long_factors) {
        kin_gen_add_vector(g, "rope_factors_short.weight", 1, f->hp.n_rope_factors);
        kin_gen_add_vector(g, "rope_factors_long.weight", 4, f->hp.n_rope_factors);
    } else if (is_named(f, "rope_freqs.weight")) {
        kin_gen_add_vector(g, "rope_freqs.weight", 1, f->hp.n_rope_factors);
    }
}

static void add_stream_end(kin_generator *g, const char *name, const kin_streams_end *end) {
    if (end->is_vector)
        kin_gen_add_vector(g, name, strstr(name, "norm") || strstr(name, "scale") ? 1 : 0, end->ne[0]);
    else
        kin_gen_add_matrix(g, KIN_ROLE_OTHER, -1, name, end->ne[0], end->ne[1], 0);
}

static void add_stream_ends(const kin_family *f, kin_generator *g) {
    kin_streams_end end;
    for (int i = 0; kin_streams_end_at(&f->hp, i, &end); i++) add_stream_end(g, end.name, &end);
}

// Adds those of draft block i_block's own.
static void add_own_stream_ends(const kin_family *f, kin_generator *g, int i_block) {
    kin_streams_end end;
    char name[80];
    for (int i = 0; kin_streams_draft_end_at(&f->hp, i, &end); i++) {
        snprintf(name, sizeof name, "blk.%d.%s", i_block, end.name);
        add_stream_end(g, name, &end);
    }
}

// Returns how many rows the table of n-gram embeddings must have.
static int64_t n_ngram_rows(const kin_ngram *n) {
    uint64_t rows = 0;
    for (int i = 0; i < kin_ngram_n_rows(n); i++) rows = n->first[i] + n->n_rows[i] > rows ? n->first[i] + n->n_rows[i] : rows;
    return (int64_t)rows;
}

// Adds what the layers' inputs are made of.
static void add_inputs(const kin_family *f, kin_generator *g) {
    const int64_t n_input = f->hp.n_input, n_all = n_input * f->hp.n_layer;
    if (n_input == 0) return;
    kin_gen_add_matrix(g, KIN_ROLE_OTHER, -1, "per_layer_token_embd.weight", n_all, f->n_vocab, 0);
    kin_gen_add_matrix(g, KIN_ROLE_OTHER, -1, "per_layer_model_proj.weight", f->hp.n_embd, n_all, 0);
    kin_gen_add_vector(g, "per_layer_proj_norm.weight", 1, n_input);
}

static void add_tensors(const kin_family *f, kin_generator *g, kin_model_part part) {
    const int n_layer = part == KIN_MODEL_DRAFTS ? 0 : f->hp.n_layer;
    const int n_drafts = part == KIN_MODEL_WITHOUT_DRAFTS ? 0 : f->hp.n_draft_layer;
    const char *norm = f->hp.arch->output_norm ? f->hp.arch->output_norm : "output_norm";
    const kin_weight_set none = {{0}}, drafts = kin_draft_block_weights(&f->hp);
    char name[64];
    snprintf(name, sizeof name, "%s.weight", norm);
    kin_gen_add_matrix(g, KIN_ROLE_EMBD, -1, "token_embd.weight", f->hp.n_embd, f->n_vocab, 0);
    if (!f->is_tied) kin_gen_add_matrix(g, KIN_ROLE_OUTPUT, -1, "output.weight", f->hp.n_embd, f->n_vocab, 0);
    if (!f->hp.arch->has_no_output_norm) kin_gen_add_vector(g, name, 1, f->hp.n_embd);
    if (f->hp.ngram.size > 0)
        kin_gen_add_matrix(g, KIN_ROLE_OTHER, -1, "per_layer_token_embd.weight", f->hp.ngram.dim, n_ngram_rows(&f->hp.ngram), 0);
    if (f->hp.arch->biases_output_norm) kin_gen_add_vector(g, "output_norm.bias", 0, f->hp.n_embd);
    add_stream_ends(f, g);
    add_inputs(f, g);
    add_rope_factors(f, g);
    for (int il = 0; il < n_layer; il++) add_block(f, &f->hp, g, il, il, &none);
    for (int i = 0; i < n_drafts; i++) {
        char own[80];
        snprintf(own, sizeof own, "blk.%d.nextn.shared_head_norm.weight", f->hp.n_layer + i);
        add_block(f, &f->drafts[i], g, 0, f->hp.n_layer + i, &drafts);
        if (f->has_draft_norm) kin_gen_add_vector(g, own, 1, f->hp.n_embd);
        add_own_stream_ends(f, g, f->hp.n_layer + i);
    }
}

int kin_family_n_drafts(const kin_family *f) {
    return f->hp.n_draft_layer;
}

kin_generator *kin_family_make(const kin_family *f, const char *mix, uint64_t seed, kin_model_part part) {
    const kin_gen_facts facts = {.mix = mix,
                                 .n_layer = f->hp.n_layer,
                                 .n_vocab = f->n_vocab,
                                 .tied = f->is_tied,
                                 .pooled = kin_family_n_weights(f) > KIN_GEN_POOLED_MIN,
                                 .seed = seed};
    kin_generator *g = kin_gen_new(&facts);
    kin_gguf_writer *w = kin_gen_writer(g);
    kin_gguf_writer_put_str(w, "general.architecture", f->arch);
    kin_gguf_writer_put_str(w, "general.name", "random");
    put_keys(f, w);
    kin_gen_put_types(g);
    kin_gen_put_vocab(g);
    add_tensors(f, g, part);
    return g;
}
