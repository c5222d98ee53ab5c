#include "model/hparams.h"

#include <stdio.h>
#include <string.h>

#include "model/keys.h"

// Far above any model, far below any overflow: dims * dims fits 63 bits with room for 4 more factors.
enum { MAX_LAYERS = 4096, MAX_WIDTH = 1 << 20, MAX_HEADS = 4096, MAX_CONTEXT = 1 << 27, MAX_VOCAB = 1 << 24 };

// A reader over one model's keys that stops at the first error.
typedef struct reader {
    const kin_gguf *gguf;
    const char *family; // the prefix of the keys
    kin_err *err;
    int failed;
} reader;

static const char *full_key(const reader *r, const char *key, char *buf, size_t n) {
    snprintf(buf, n, "%s.%s", r->family, key);
    return buf;
}

// A number, or an array of one number for each layer: they must be equal.
static int get_number(const reader *r, const char *name, int n_layer, uint32_t *value) {
    kin_gguf_array array;
    kin_err other;
    if (n_layer == 0 || kin_gguf_get_array(r->gguf, name, &array, &other) != 0)
        return kin_gguf_get_u32(r->gguf, name, value, r->err);
    if (array.kind == KIN_GGUF_STRING || array.kind == KIN_GGUF_F32 || array.kind == KIN_GGUF_F64)
        return kin_err_set(r->err, "'%s' must be integers", name);
    if (array.n != (uint64_t)n_layer)
        return kin_err_set(r->err, "'%s' has %llu numbers for %d layers", name, (unsigned long long)array.n, n_layer);
    int64_t first = kin_gguf_array_i64(&array, 0);
    for (uint64_t i = 1; i < array.n; i++) {
        if (kin_gguf_array_i64(&array, i) != first)
            return kin_err_set(r->err, "'%s' differs between layers, which is not supported for this family", name);
    }
    if (first < 0 || first > UINT32_MAX) return kin_err_set(r->err, "'%s' is %lld", name, (long long)first);
    *value = (uint32_t)first;
    return 0;
}

// An integer in [min, max]; absent: `fallback`, or an error if fallback < 0. n_layer: as many may be given; 0: only one.
static int read_ints(reader *r, const char *key, int n_layer, int fallback, int min, int max) {
    char name[128];
    uint32_t value = 0;
    if (r->failed) return 0;
    int rc = get_number(r, full_key(r, key, name, sizeof name), n_layer, &value);
    if (rc == KIN_ABSENT && fallback >= 0) return fallback;
    if (rc == KIN_ABSENT) kin_err_set(r->err, "the key '%s' is missing", name);
    if (rc == 0 && (value < (uint32_t)min || value > (uint32_t)max)) {
        rc = kin_err_set(r->err, "'%s' is %u, but must be between %d and %d", name, value, min, max);
    }
    r->failed = rc != 0;
    return (int)value;
}

static int read_int(reader *r, const char *key, int fallback, int min, int max) {
    return read_ints(r, key, 0, fallback, min, max);
}

static float read_float(reader *r, const char *key, float fallback, float min, float max) {
    char name[128];
    float value = fallback;
    if (r->failed) return 0;
    int rc = kin_gguf_get_f32(r->gguf, full_key(r, key, name, sizeof name), &value, r->err);
    if (rc >= 0 && !(value >= min && value <= max)) {
        rc = kin_err_set(r->err, "'%s' is %g, but must be between %g and %g", name, (double)value, (double)min, (double)max);
    }
    r->failed = rc < 0;
    return value;
}

static void read_shape(reader *r, kin_hparams *hp) {
    hp->n_layer = read_int(r, "block_count", -1, 1, MAX_LAYERS);
    hp->n_embd = read_int(r, "embedding_length", -1, 1, MAX_WIDTH);
    hp->n_ctx_train = read_int(r, "context_length", -1, 1, MAX_CONTEXT);
    hp->n_head = read_ints(r, "attention.head_count", hp->n_layer, -1, 1, MAX_HEADS);
    hp->n_head_kv = read_ints(r, "attention.head_count_kv", hp->n_layer, hp->n_head, 1, MAX_HEADS);
    if (r->failed) return;

    int derived = hp->n_embd / hp->n_head;
    hp->head_dim = read_int(r, "attention.key_length", derived > 0 ? derived : -1, 1, 4096);
    int value_length = read_int(r, "attention.value_length", hp->head_dim, 1, 4096);
    hp->n_expert = read_int(r, "expert_count", 0, 0, KIN_MAX_EXPERTS);
    hp->n_expert_used = read_ints(r, "expert_used_count", hp->n_layer, hp->n_expert ? -1 : 0, 0, KIN_MAX_EXPERTS);
    hp->n_ff = read_ints(r, "feed_forward_length", hp->n_layer, -1, 0, MAX_WIDTH);
    hp->n_ff_exp = read_int(r, "expert_feed_forward_length", hp->n_ff, 0, MAX_WIDTH);
    if (r->failed) return;

    if (hp->n_head % hp->n_head_kv != 0) {
        r->failed = kin_err_set(r->err, "%d query heads cannot share %d key/value heads evenly", hp->n_head, hp->n_head_kv);
    } else if (value_length != hp->head_dim) {
        r->failed =
            kin_err_set(r->err, "key heads of %d and value heads of %d dimensions are not supported", hp->head_dim, value_length);
    } else if (hp->n_expert && (hp->n_expert_used < 1 || hp->n_expert_used > hp->n_expert)) {
        r->failed = kin_err_set(r->err, "%d of %d experts per token is impossible", hp->n_expert_used, hp->n_expert);
    } else if ((hp->n_expert ? hp->n_ff_exp : hp->n_ff) < 1) {
        r->failed = kin_err_set(r->err, "'%s.feed_forward_length' must not be 0", r->family);
    }
}

// 1: positions are not scaled. llama.cpp takes 0 for 1, and the name that the key had before types of scaling came.
static float read_rope_factor(reader *r) {
    float old = read_float(r, "rope.scale_linear", 1.0f, 0.0f, 1e6f);
    float factor = read_float(r, "rope.scaling.factor", old, 0.0f, 1e6f);
    if (factor > 0 && factor < 1e-3f) r->failed = kin_err_set(r->err, "positions cannot be scaled by %g", (double)factor);
    return factor > 0 ? factor : 1.0f;
}

static void read_rope(reader *r, kin_hparams *hp) {
    int pairs = hp->head_dim & ~1; // rotation works on pairs
    hp->n_rot = read_int(r, "rope.dimension_count", pairs > 0 ? pairs : -1, 2, hp->head_dim > 2 ? hp->head_dim : 2);
    hp->rope_base = read_float(r, "rope.freq_base", 10000.0f, 1.0f, 1e12f);
    float factor = read_rope_factor(r);
    hp->rope_n_ctx_orig = read_int(r, "rope.scaling.original_context_length", hp->n_ctx_train, 1, MAX_CONTEXT);
    hp->rope_attn_factor = read_float(r, "rope.scaling.attn_factor", 1.0f, 1e-3f, 1e3f);
    hp->rope_beta_fast = read_float(r, "rope.scaling.yarn_beta_fast", 32.0f, 0.0f, 1e6f);
    hp->rope_beta_slow = read_float(r, "rope.scaling.yarn_beta_slow", 1.0f, 0.0f, 1e6f);
    if (r->failed) return;
    if (hp->n_rot % 2 || hp->n_rot > hp->head_dim) {
        r->failed = kin_err_set(r->err, "%d of %d dimensions of a head cannot rotate", hp->n_rot, hp->head_dim);
        return;
    }

    char name[128];
    kin_str scaling = {"linear", 6}; // a factor without a type
    if (kin_gguf_get_str(r->gguf, full_key(r, "rope.scaling.type", name, sizeof name), &scaling, r->err) < 0) {
        r->failed = 1;
        return;
    }
    bool yarn = kin_str_eq(scaling, "yarn");
    bool scaled = yarn || kin_str_eq(scaling, "linear");
    if (!scaled && !kin_str_eq(scaling, "none")) {
        int len = scaling.len > 32 ? 32 : (int)scaling.len;
        r->failed =
            kin_err_set(r->err, "the rope scaling '%.*s' is not supported (supported: none, linear, yarn)", len, scaling.at);
    }
    hp->rope_freq_scale = scaled ? 1.0f / factor : 1.0f;
    hp->rope_ext_factor = yarn ? 1.0f : 0.0f;
}

// The vocabulary's size: the embedding's rows. (A "vocab_size" key may count padding differently; the tensor rules.)
static void read_vocab_size(reader *r, kin_hparams *hp) {
    if (r->failed) return;
    const kin_gguf_tensor *embd = kin_gguf_find_tensor(r->gguf, "token_embd.weight");
    if (!embd) {
        r->failed = kin_err_set(r->err, "the tensor 'token_embd.weight' is missing");
    } else if (embd->ne[1] > MAX_VOCAB) {
        r->failed = kin_err_set(r->err, "a vocabulary of %lld tokens is not possible", (long long)embd->ne[1]);
    } else {
        hp->n_vocab = (int)embd->ne[1];
    }
}

int kin_hparams_read(kin_hparams *hp, const kin_gguf *gguf, const char *family, kin_err *err) {
    reader r = {.gguf = gguf, .family = family, .err = err};
    *hp = (kin_hparams){0};
    read_shape(&r, hp);
    if (!r.failed) read_rope(&r, hp);
    hp->rms_eps = read_float(&r, "attention.layer_norm_rms_epsilon", 1e-5f, 0.0f, 1.0f);
    read_vocab_size(&r, hp);
    if (!r.failed) r.failed = kin_keys_check(gguf, family, err) != 0;
    return r.failed ? KIN_FAIL : 0;
}
