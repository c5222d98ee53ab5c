#include "model/vocab_load.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"

// Data read from the file before the vocabulary copies it. Strings point into the file.
typedef struct source {
    const kin_gguf *gguf;
    kin_str *tokens;
    float *scores;
    int32_t *types;
    kin_str *merges;
    int32_t *suppressed;
    char pre[64];
} source;

static void source_fini(source *source) {
    free(source->tokens);
    free(source->scores);
    free(source->types);
    free(source->merges);
    free(source->suppressed);
}

static int out_of_memory(kin_err *err) {
    return kin_err_set(err, "vocabulary: out of memory");
}

static int missing(const char *key, kin_err *err) {
    return kin_err_set(err, "the key '%s' is missing", key);
}

// Reads all strings of an array to *strings (the caller frees it) and *n; at most max. Returns KIN_ABSENT if the key is absent.
static int read_strings(const kin_gguf *gguf, const char *key, uint64_t max, kin_str **strings, size_t *n, kin_err *err) {
    kin_gguf_array array;
    int rc = kin_gguf_get_array(gguf, key, &array, err);
    if (rc != 0) return rc;
    if (array.kind != KIN_GGUF_STRING) return kin_err_set(err, "%s: not an array of strings", key);
    if (array.n > max)
        return kin_err_set(err, "%s: %llu strings, but the limit is %llu", key, (unsigned long long)array.n,
                           (unsigned long long)max);
    *n = (size_t)array.n;
    *strings = malloc((*n + 1) * sizeof **strings);
    if (!*strings) return out_of_memory(err);
    const uint8_t *cursor = array.at;
    for (size_t i = 0; i < *n; i++) {
        kin_str string = kin_gguf_array_next_str(&cursor);
        (*strings)[i] = (kin_str){string.at, string.len};
    }
    return 0;
}

// Gets a numeric array with at least one element per token. Returns KIN_ABSENT if the key is absent.
static int get_numbers(const kin_gguf *gguf, const char *key, int32_t n_tokens, kin_gguf_array *array, kin_err *err) {
    int rc = kin_gguf_get_array(gguf, key, array, err);
    if (rc != 0) return rc;
    if (array->kind == KIN_GGUF_STRING || array->kind == KIN_GGUF_ARRAY)
        return kin_err_set(err, "%s: not an array of numbers", key);
    if (array->n < (uint64_t)n_tokens)
        return kin_err_set(err, "%s: %llu numbers for %d tokens", key, (unsigned long long)array->n, n_tokens);
    return 0;
}

static int read_scores(source *source, kin_vocab_spec *spec, kin_err *err) {
    kin_gguf_array array;
    int rc = get_numbers(source->gguf, "tokenizer.ggml.scores", spec->n_tokens, &array, err);
    if (rc != 0) return rc < 0 ? KIN_FAIL : 0;
    source->scores = malloc((size_t)spec->n_tokens * sizeof *source->scores);
    if (!source->scores) return out_of_memory(err);
    for (int32_t i = 0; i < spec->n_tokens; i++) source->scores[i] = (float)kin_gguf_array_f64(&array, (uint64_t)i);
    spec->scores = source->scores;
    return 0;
}

static int read_types(source *source, kin_vocab_spec *spec, kin_err *err) {
    const char *key = "tokenizer.ggml.token_type";
    kin_gguf_array array;
    int rc = get_numbers(source->gguf, key, spec->n_tokens, &array, err);
    if (rc != 0) return rc < 0 ? KIN_FAIL : 0;
    if (array.kind == KIN_GGUF_F32 || array.kind == KIN_GGUF_F64) return kin_err_set(err, "%s: not an array of integers", key);
    source->types = malloc((size_t)spec->n_tokens * sizeof *source->types);
    if (!source->types) return out_of_memory(err);
    for (int32_t i = 0; i < spec->n_tokens; i++) {
        int64_t type = kin_gguf_array_i64(&array, (uint64_t)i);
        source->types[i] = type >= 0 && type <= KIN_TOKEN_BYTE ? (int32_t)type : KIN_TOKEN_UNDEFINED;
    }
    spec->types = source->types;
    return 0;
}

// The kind and the pre-tokenizer determine the defaults of everything else.
static int read_kind(source *source, kin_vocab_spec *spec, kin_err *err) {
    kin_str model, pre;
    int rc = kin_gguf_get_str(source->gguf, "tokenizer.ggml.model", &model, err);
    if (rc != 0) return rc < 0 ? KIN_FAIL : missing("tokenizer.ggml.model", err);
    const bool is_spm = kin_str_eq(model, "llama"), is_spaced = kin_str_eq(model, "gemma4");
    if (!is_spm && !is_spaced && !kin_str_eq(model, "gpt2"))
        return kin_err_set(err, "tokenizer.ggml.model is '%.*s'; known are gemma4, gpt2 and llama",
                           model.len > 64 ? 64 : (int)model.len, model.at);

    strcpy(source->pre, "default");
    rc = kin_gguf_get_str(source->gguf, "tokenizer.ggml.pre", &pre, err);
    if (rc < 0) return KIN_FAIL;
    if (rc == 0 && pre.len > 0) {
        if (pre.len >= sizeof source->pre)
            return kin_err_set(err, "tokenizer.ggml.pre: a name of %zu bytes is too long", pre.len);
        memcpy(source->pre, pre.at, pre.len);
        source->pre[pre.len] = '\0';
    } else if (!is_spm && !is_spaced) {
        kin_log(KIN_LOG_WARN,
                "the file does not name its pre-tokenizer; using 'default', which may lower the quality of the output");
    }
    *spec = kin_vocab_spec_defaults(is_spm ? KIN_VOCAB_SPM : is_spaced ? KIN_VOCAB_SPACED_BPE : KIN_VOCAB_BPE, source->pre);
    return 0;
}

// An id in the file that is out of range is ignored, and so is a default that is beyond the vocabulary.
static int read_id(const source *source, const kin_vocab_spec *spec, const char *key, int32_t *id, kin_err *err) {
    uint32_t value;
    if (*id >= spec->n_tokens) *id = KIN_TOKEN_NONE;
    int rc = kin_gguf_get_u32(source->gguf, key, &value, err);
    if (rc < 0) return KIN_FAIL;
    if (rc == 0 && value < (uint32_t)spec->n_tokens)
        *id = (int32_t)value;
    else if (rc == 0)
        kin_log(KIN_LOG_WARN, "%s: ignoring %u, because there are only %d tokens", key, value, spec->n_tokens);
    return 0;
}

static int read_ids(const source *source, kin_vocab_spec *spec, kin_err *err) {
    if (read_id(source, spec, "tokenizer.ggml.bos_token_id", &spec->bos, err) < 0) return KIN_FAIL;
    if (read_id(source, spec, "tokenizer.ggml.eos_token_id", &spec->eos, err) < 0) return KIN_FAIL;
    if (read_id(source, spec, "tokenizer.ggml.eot_token_id", &spec->eot, err) < 0) return KIN_FAIL;
    if (read_id(source, spec, "tokenizer.ggml.eom_token_id", &spec->eom, err) < 0) return KIN_FAIL;
    if (read_id(source, spec, "tokenizer.ggml.unknown_token_id", &spec->unk, err) < 0) return KIN_FAIL;
    return read_id(source, spec, "tokenizer.ggml.padding_token_id", &spec->pad, err);
}

// Some of these keys have an older name.
static int read_fim_ids(const source *source, kin_vocab_spec *spec, kin_err *err) {
    static const struct {
        const char *key;
        kin_fim_role role;
    } ids[] = {
        {"tokenizer.ggml.prefix_token_id", KIN_FIM_PREFIX},  {"tokenizer.ggml.suffix_token_id", KIN_FIM_SUFFIX},
        {"tokenizer.ggml.middle_token_id", KIN_FIM_MIDDLE},  {"tokenizer.ggml.fim_pre_token_id", KIN_FIM_PREFIX},
        {"tokenizer.ggml.fim_suf_token_id", KIN_FIM_SUFFIX}, {"tokenizer.ggml.fim_mid_token_id", KIN_FIM_MIDDLE},
        {"tokenizer.ggml.fim_rep_token_id", KIN_FIM_REPO},   {"tokenizer.ggml.fim_sep_token_id", KIN_FIM_SEPARATOR},
        {"tokenizer.ggml.fim_pad_token_id", KIN_FIM_PAD},
    };
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        if (read_id(source, spec, ids[i].key, &spec->fim[ids[i].role], err) < 0) return KIN_FAIL;
    return 0;
}

static int read_suppressed(source *source, kin_vocab_spec *spec, kin_err *err) {
    const char *key = "tokenizer.ggml.suppress_tokens";
    kin_gguf_array array;
    int rc = kin_gguf_get_array(source->gguf, key, &array, err);
    if (rc != 0) return rc < 0 ? KIN_FAIL : 0;
    if (array.kind != KIN_GGUF_I32 && array.kind != KIN_GGUF_U32) return kin_err_set(err, "%s: not an array of integers", key);
    if (array.n > (uint64_t)spec->n_tokens)
        return kin_err_set(err, "%s: %llu entries for %d tokens", key, (unsigned long long)array.n, spec->n_tokens);
    source->suppressed = malloc((size_t)(array.n + 1) * sizeof *source->suppressed);
    if (!source->suppressed) return out_of_memory(err);
    for (uint64_t i = 0; i < array.n; i++) {
        int64_t id = kin_gguf_array_i64(&array, i);
        if (id >= 0 && id < spec->n_tokens) source->suppressed[spec->n_suppressed++] = (int32_t)id;
    }
    spec->suppressed = source->suppressed;
    return 0;
}

// llama.cpp recognizes these models only by name: their special tokens consume the white space after them.
static int read_strip(const source *source, kin_vocab_spec *spec, kin_err *err) {
    kin_str name;
    int rc = kin_gguf_get_str(source->gguf, "general.name", &name, err);
    if (rc != 0) return rc < 0 ? KIN_FAIL : 0;
    for (size_t i = 0; i + 4 <= name.len; i++) {
        size_t rest = name.len - i;
        if (strncasecmp(name.at + i, "phi3", 4) == 0) spec->strip_after_special = true;
        if (rest >= 5 && strncasecmp(name.at + i, "phi-3", 5) == 0) spec->strip_after_special = true;
    }
    return 0;
}

static int read_flags(const source *source, kin_vocab_spec *spec, kin_err *err) {
    if (kin_gguf_get_bool(source->gguf, "tokenizer.ggml.add_bos_token", &spec->add_bos, err) < 0) return KIN_FAIL;
    if (kin_gguf_get_bool(source->gguf, "tokenizer.ggml.add_eos_token", &spec->add_eos, err) < 0) return KIN_FAIL;
    if (kin_gguf_get_bool(source->gguf, "tokenizer.ggml.add_space_prefix", &spec->add_space_prefix, err) < 0) return KIN_FAIL;
    if (spec->add_bos && spec->bos == KIN_TOKEN_NONE) {
        kin_log(KIN_LOG_WARN, "the model asks for a BOS token, but the file has none; prompts begin without one");
        spec->add_bos = false;
    }
    if (spec->add_eos && spec->eos == KIN_TOKEN_NONE) {
        kin_log(KIN_LOG_WARN, "the model asks for an EOS token, but the file has none; texts end without one");
        spec->add_eos = false;
    }
    return read_strip(source, spec, err);
}

static int read_source(source *source, kin_vocab_spec *spec, kin_err *err) {
    size_t n_tokens = 0;
    if (read_kind(source, spec, err) < 0) return KIN_FAIL;
    int rc = read_strings(source->gguf, "tokenizer.ggml.tokens", KIN_VOCAB_MAX_TOKENS, &source->tokens, &n_tokens, err);
    if (rc != 0) return rc < 0 ? KIN_FAIL : missing("tokenizer.ggml.tokens", err);
    spec->tokens = source->tokens;
    spec->n_tokens = (int32_t)n_tokens;

    if (spec->kind != KIN_VOCAB_SPM) {
        rc = read_strings(source->gguf, "tokenizer.ggml.merges", KIN_VOCAB_MAX_MERGES, &source->merges, &spec->n_merges, err);
        if (rc != 0) return rc < 0 ? KIN_FAIL : missing("tokenizer.ggml.merges", err);
        spec->merges = source->merges;
    }
    if (read_scores(source, spec, err) < 0) return KIN_FAIL;
    if (read_types(source, spec, err) < 0) return KIN_FAIL;
    if (read_ids(source, spec, err) < 0 || read_fim_ids(source, spec, err) < 0) return KIN_FAIL;
    if (read_suppressed(source, spec, err) < 0) return KIN_FAIL;
    return read_flags(source, spec, err);
}

int kin_vocab_load(kin_vocab **out, const kin_gguf *gguf, kin_err *err) {
    *out = NULL;
    source source = {.gguf = gguf};
    kin_vocab_spec spec;
    int rc = read_source(&source, &spec, err);
    if (rc == 0) rc = kin_vocab_new(out, &spec, err);
    source_fini(&source);
    return rc;
}
