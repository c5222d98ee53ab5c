#include "pure/tokenizer/vocab.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "pure/tokenizer/byte_alphabet.h"
#include "pure/tokenizer/pretokenizer.h"
#include "pure/tokenizer/vocab_impl.h"
#include "pure/tokenizer/vocab_roles.h"

static int out_of_memory(kin_err *err) {
    return kin_err_set(err, "vocabulary: out of memory");
}

kin_vocab_spec kin_vocab_spec_defaults(kin_vocab_kind kind, const char *pre) {
    kin_vocab_spec spec = {.kind = kind, .pre = pre};
    spec.bos = spec.eos = spec.eot = spec.eom = spec.unk = spec.pad = KIN_TOKEN_NONE;
    for (int i = 0; i < KIN_FIM_COUNT; i++) spec.fim[i] = KIN_TOKEN_NONE;
    if (kind == KIN_VOCAB_SPM) {
        spec.unk = 0;
        spec.bos = 1;
        spec.eos = 2;
        spec.add_bos = true;
        spec.add_space_prefix = true;
    } else if (kind == KIN_VOCAB_SPACED_BPE) {
        spec.add_bos = true;
    } else {
        kin_pretokenizer_traits traits;
        kin_pretokenizer_find(pre, &traits);
        spec.add_bos = traits.add_bos;
        spec.ignore_merges = traits.ignore_merges;
    }
    return spec;
}

// ---- checks of the description

static int check_id(const kin_vocab_spec *spec, const char *name, int32_t id, kin_err *err) {
    if (id >= KIN_TOKEN_NONE && id < spec->n_tokens) return 0;
    return kin_err_set(err, "vocabulary: %s is %d, but there are %d tokens", name, id, spec->n_tokens);
}

static int check_special_ids(const kin_vocab_spec *spec, kin_err *err) {
    if (check_id(spec, "bos", spec->bos, err) < 0) return KIN_FAIL;
    if (check_id(spec, "eos", spec->eos, err) < 0) return KIN_FAIL;
    if (check_id(spec, "eot", spec->eot, err) < 0) return KIN_FAIL;
    if (check_id(spec, "eom", spec->eom, err) < 0) return KIN_FAIL;
    if (check_id(spec, "unk", spec->unk, err) < 0) return KIN_FAIL;
    if (check_id(spec, "pad", spec->pad, err) < 0) return KIN_FAIL;
    for (int i = 0; i < KIN_FIM_COUNT; i++)
        if (check_id(spec, "a fill-in-the-middle token", spec->fim[i], err) < 0) return KIN_FAIL;
    for (size_t i = 0; i < spec->n_suppressed; i++)
        if (check_id(spec, "a suppressed token", spec->suppressed[i], err) < 0) return KIN_FAIL;
    if (spec->add_bos && spec->bos == KIN_TOKEN_NONE)
        return kin_err_set(err, "vocabulary: add_bos is set, but there is no BOS token");
    if (spec->add_eos && spec->eos == KIN_TOKEN_NONE)
        return kin_err_set(err, "vocabulary: add_eos is set, but there is no EOS token");
    return 0;
}

static int check_token(const kin_vocab_spec *spec, int32_t i, kin_err *err) {
    if (spec->tokens[i].len > KIN_VOCAB_MAX_TOKEN_BYTES)
        return kin_err_set(err, "vocabulary: token %d has %zu bytes, but the limit is %d", i, spec->tokens[i].len,
                           KIN_VOCAB_MAX_TOKEN_BYTES);
    if (spec->scores && isnan(spec->scores[i])) return kin_err_set(err, "vocabulary: the score of token %d is not a number", i);
    return 0;
}

static int check_spec(const kin_vocab_spec *spec, kin_err *err) {
    if (spec->n_tokens < 1 || spec->n_tokens > KIN_VOCAB_MAX_TOKENS)
        return kin_err_set(err, "vocabulary: %d tokens; must be 1 to %d", spec->n_tokens, KIN_VOCAB_MAX_TOKENS);
    if (spec->n_merges > KIN_VOCAB_MAX_MERGES)
        return kin_err_set(err, "vocabulary: %zu merges, but the limit is %d", spec->n_merges, KIN_VOCAB_MAX_MERGES);
    for (int32_t i = 0; i < spec->n_tokens; i++) {
        if (check_token(spec, i, err) < 0) return KIN_FAIL;
    }
    return check_special_ids(spec, err);
}

// ---- tokens as spelled in the file

static int add_text(kin_vocab *vocab, int32_t i, kin_str text, kin_err *err) {
    char empty[32];
    if (text.len == 0) {
        text.len = (size_t)snprintf(empty, sizeof empty, "[EMPTY_%d]", i);
        text.at = empty;
    }
    int64_t id = kin_string_table_add(&vocab->texts, text.at, text.len);
    if (id < 0) return out_of_memory(err);
    if (id != i)
        return kin_err_set(err, "vocabulary: tokens %d and %d are equal: '%.*s'", (int)id, i, text.len > 64 ? 64 : (int)text.len,
                           text.at);
    if (text.len > vocab->longest) vocab->longest = text.len;
    return 0;
}

static int copy_texts(kin_vocab *vocab, const kin_vocab_spec *spec, kin_err *err) {
    size_t n_bytes = 0;
    for (int32_t i = 0; i < spec->n_tokens; i++) n_bytes += spec->tokens[i].len;
    if (kin_string_table_init(&vocab->texts, (uint32_t)spec->n_tokens, n_bytes) < 0) return out_of_memory(err);
    for (int32_t i = 0; i < spec->n_tokens; i++) {
        if (add_text(vocab, i, spec->tokens[i], err) < 0) return KIN_FAIL;
    }
    return 0;
}

static int copy_attributes(kin_vocab *vocab, const kin_vocab_spec *spec, kin_err *err) {
    size_t n = (size_t)spec->n_tokens;
    vocab->types = malloc(n);
    vocab->is_eog = calloc(n, sizeof *vocab->is_eog);
    vocab->scores = calloc(n, sizeof *vocab->scores);
    if (!vocab->types || !vocab->is_eog || !vocab->scores) return out_of_memory(err);
    if (spec->scores) memcpy(vocab->scores, spec->scores, n * sizeof *vocab->scores);
    for (size_t i = 0; i < n; i++) {
        int32_t type = spec->types ? spec->types[i] : KIN_TOKEN_NORMAL;
        bool known = type > KIN_TOKEN_UNDEFINED && type <= KIN_TOKEN_BYTE;
        vocab->types[i] = known ? (uint8_t)type : KIN_TOKEN_UNDEFINED;
    }
    return 0;
}

// ---- the bytes of tokens

// Parses "<0x1F>" to 0x1F; returns -1 for any other form.
static int byte_of_name(kin_str text) {
    if (text.len != 6 || memcmp(text.at, "<0x", 3) != 0 || text.at[5] != '>') return -1;
    uint8_t byte;
    return kin_hex_get(&byte, text.at + 3, 1) == 0 ? byte : -1;
}

// Copies text with every U+2581 as a space; returns the length.
static size_t put_spm_piece(char *out, kin_str text) {
    size_t n = 0;
    for (size_t at = 0; at < text.len;) {
        bool is_space = text.len - at >= KIN_SPM_SPACE_LEN && memcmp(text.at + at, KIN_SPM_SPACE, KIN_SPM_SPACE_LEN) == 0;
        out[n++] = is_space ? ' ' : text.at[at];
        at += is_space ? KIN_SPM_SPACE_LEN : 1;
    }
    return n;
}

// A normal BPE token with a character outside the alphabet represents its own text.
static size_t put_bpe_piece(char *out, kin_str text) {
    int64_t n = kin_byte_alphabet_decode(out, text.at, text.len);
    if (n >= 0) return (size_t)n;
    memcpy(out, text.at, text.len);
    return text.len;
}

// Writes the piece of token id to out [length of its text]; returns its length, or -1 for a byte token without a valid byte.
static int64_t put_piece(const kin_vocab *vocab, int32_t id, char *out) {
    kin_str text = kin_vocab_text(vocab, id);
    int byte;
    switch ((kin_token_type)vocab->types[id]) {
    case KIN_TOKEN_NORMAL: return (int64_t)(vocab->kind == KIN_VOCAB_BPE ? put_bpe_piece(out, text) : put_spm_piece(out, text));
    case KIN_TOKEN_UNKNOWN:
    case KIN_TOKEN_CONTROL:
    case KIN_TOKEN_USER_DEFINED: memcpy(out, text.at, text.len); return (int64_t)text.len;
    case KIN_TOKEN_BYTE:
        byte = byte_of_name(text);
        out[0] = (char)byte;
        return byte < 0 ? -1 : 1;
    case KIN_TOKEN_UNDEFINED:
    case KIN_TOKEN_UNUSED: break;
    }
    return 0;
}

static int build_pieces(kin_vocab *vocab, kin_err *err) {
    size_t n = (size_t)vocab->n_tokens;
    vocab->pieces = malloc(vocab->texts.n_bytes + 1);
    vocab->piece_begin = malloc((n + 1) * sizeof *vocab->piece_begin);
    if (!vocab->pieces || !vocab->piece_begin) return out_of_memory(err);
    vocab->piece_begin[0] = 0;
    for (int32_t id = 0; id < vocab->n_tokens; id++) {
        uint32_t begin = vocab->piece_begin[id];
        int64_t len = put_piece(vocab, id, vocab->pieces + begin);
        if (len < 0) {
            kin_str text = kin_vocab_text(vocab, id);
            return kin_err_set(err, "vocabulary: token %d is a byte, but its name '%.*s' is not like <0x1F>", id,
                               text.len > 64 ? 64 : (int)text.len, text.at);
        }
        vocab->piece_begin[id + 1] = begin + (uint32_t)len;
    }
    return 0;
}

// ---- single bytes and merges

static int32_t spm_byte_token(const kin_vocab *vocab, uint8_t byte) {
    char name[8];
    snprintf(name, sizeof name, "<0x%02X>", byte);
    int32_t id = kin_vocab_find(vocab, name, 6);
    if (id == KIN_TOKEN_NONE) id = kin_vocab_find(vocab, (const char *)&byte, 1);
    return id;
}

static int build_bytes(kin_vocab *vocab, kin_err *err) {
    for (int b = 0; b < 256; b++) {
        char letter[KIN_BYTE_ALPHABET_MAX];
        size_t len = (size_t)kin_byte_alphabet_put(letter, (uint8_t)b);
        const bool has_letters = vocab->kind == KIN_VOCAB_BPE;
        int32_t id = has_letters ? kin_vocab_find(vocab, letter, len) : spm_byte_token(vocab, (uint8_t)b);
        vocab->byte_tokens[b] = id == KIN_TOKEN_NONE ? vocab->unk : id;
        if (!has_letters) continue;
        int64_t symbol = kin_string_table_add(&vocab->texts, letter, len);
        if (symbol < 0) return out_of_memory(err);
        vocab->byte_symbols[b] = (uint32_t)symbol;
    }
    return 0;
}

// Parses "LEFT RIGHT"; the separator is the first space after the first byte.
static int add_merge(kin_vocab *vocab, kin_str text, uint32_t rank, char *joined, kin_err *err) {
    const char *space = text.len > 2 ? memchr(text.at + 1, ' ', text.len - 1) : NULL;
    size_t left_len = space ? (size_t)(space - text.at) : 0;
    if (!space || left_len + 1 == text.len || text.len > KIN_VOCAB_MAX_TOKEN_BYTES)
        return kin_err_set(err, "vocabulary: merge %u must be two short strings separated by a space", rank);

    size_t right_len = text.len - left_len - 1;
    memcpy(joined, text.at, left_len);
    memcpy(joined + left_len, space + 1, right_len);
    int64_t left = kin_string_table_add(&vocab->texts, text.at, left_len);
    int64_t right = kin_string_table_add(&vocab->texts, space + 1, right_len);
    int64_t result = kin_string_table_add(&vocab->texts, joined, left_len + right_len);
    if (left < 0 || right < 0 || result < 0) return out_of_memory(err);
    kin_merge merge = {.left = (uint32_t)left, .right = (uint32_t)right, .rank = rank, .result = (uint32_t)result};
    kin_merge_table_add(&vocab->merges, merge);
    return 0;
}

static int build_merges(kin_vocab *vocab, const kin_vocab_spec *spec, kin_err *err) {
    char *joined = malloc(KIN_VOCAB_MAX_TOKEN_BYTES);
    int rc = joined && kin_merge_table_init(&vocab->merges, spec->n_merges) == 0 ? 0 : out_of_memory(err);
    for (size_t i = 0; i < spec->n_merges && rc == 0; i++) rc = add_merge(vocab, spec->merges[i], (uint32_t)i, joined, err);
    free(joined);
    return rc;
}

// Phi-3: the white space after a special token belongs to it, except for these three.
static int build_owns_space(kin_vocab *vocab, kin_err *err) {
    vocab->owns_space = calloc((size_t)vocab->n_tokens, sizeof *vocab->owns_space);
    if (!vocab->owns_space) return out_of_memory(err);
    for (int32_t id = 0; id < vocab->n_tokens; id++) {
        kin_token_type type = kin_vocab_type(vocab, id);
        vocab->owns_space[id] = type == KIN_TOKEN_CONTROL || type == KIN_TOKEN_USER_DEFINED || type == KIN_TOKEN_UNKNOWN;
    }
    static const char *const except[] = {"<unk>", "<s>", "<|endoftext|>"};
    for (size_t i = 0; i < sizeof except / sizeof *except; i++) {
        int32_t id = kin_vocab_find(vocab, except[i], strlen(except[i]));
        if (id != KIN_TOKEN_NONE) vocab->owns_space[id] = false;
    }
    return 0;
}

// ---- public functions

static void copy_plain_fields(kin_vocab *vocab, const kin_vocab_spec *spec) {
    vocab->kind = spec->kind;
    vocab->n_tokens = spec->n_tokens;
    vocab->bos = spec->bos;
    vocab->eos = spec->eos;
    vocab->eot = spec->eot;
    vocab->eom = spec->eom;
    vocab->unk = spec->unk;
    vocab->pad = spec->pad;
    memcpy(vocab->fim, spec->fim, sizeof vocab->fim);
    vocab->add_bos = spec->add_bos;
    vocab->add_eos = spec->add_eos;
    vocab->add_space_prefix = spec->add_space_prefix;
    vocab->ignore_merges = spec->ignore_merges;
}

static int copy_suppressed(kin_vocab *vocab, const kin_vocab_spec *spec, kin_err *err) {
    vocab->suppressed = malloc((spec->n_suppressed + 1) * sizeof *vocab->suppressed);
    if (!vocab->suppressed) return out_of_memory(err);
    if (spec->n_suppressed) memcpy(vocab->suppressed, spec->suppressed, spec->n_suppressed * sizeof *vocab->suppressed);
    vocab->n_suppressed = spec->n_suppressed;
    return 0;
}

static void apply_roles(kin_vocab *vocab) {
    kin_vocab_roles roles = {.n_tokens = vocab->n_tokens,
                             .texts = &vocab->texts,
                             .fim = vocab->fim,
                             .eos = vocab->eos,
                             .types = vocab->types,
                             .is_eog = vocab->is_eog,
                             .eot = vocab->eot,
                             .eom = vocab->eom};
    kin_vocab_roles_apply(&roles);
    vocab->eot = roles.eot;
    vocab->eom = roles.eom;
}

static int build(kin_vocab *vocab, const kin_vocab_spec *spec, kin_err *err) {
    copy_plain_fields(vocab, spec);
    if (spec->kind == KIN_VOCAB_BPE && !(vocab->pre = strdup(spec->pre ? spec->pre : "default"))) return out_of_memory(err);
    if (copy_texts(vocab, spec, err) < 0) return KIN_FAIL;
    if (copy_attributes(vocab, spec, err) < 0 || copy_suppressed(vocab, spec, err) < 0) return KIN_FAIL;
    apply_roles(vocab);
    if (build_pieces(vocab, err) < 0) return KIN_FAIL;
    if (build_bytes(vocab, err) < 0) return KIN_FAIL;
    if (spec->kind != KIN_VOCAB_SPM && build_merges(vocab, spec, err) < 0) return KIN_FAIL;
    return spec->strip_after_special ? build_owns_space(vocab, err) : 0;
}

int kin_vocab_new(kin_vocab **out, const kin_vocab_spec *spec, kin_err *err) {
    *out = NULL;
    if (check_spec(spec, err) < 0) return KIN_FAIL;
    kin_vocab *vocab = calloc(1, sizeof *vocab);
    if (!vocab) return out_of_memory(err);
    if (build(vocab, spec, err) < 0) {
        kin_vocab_free(vocab);
        return KIN_FAIL;
    }
    *out = vocab;
    return 0;
}

void kin_vocab_free(kin_vocab *vocab) {
    if (!vocab) return;
    free(vocab->owns_space);
    free(vocab->suppressed);
    kin_merge_table_fini(&vocab->merges);
    free(vocab->piece_begin);
    free(vocab->pieces);
    free(vocab->scores);
    free(vocab->is_eog);
    free(vocab->types);
    kin_string_table_fini(&vocab->texts);
    free(vocab->pre);
    free(vocab);
}

int32_t kin_vocab_n_tokens(const kin_vocab *vocab) {
    return vocab->n_tokens;
}

kin_vocab_kind kin_vocab_get_kind(const kin_vocab *vocab) {
    return vocab->kind;
}

int32_t kin_vocab_bos(const kin_vocab *vocab) {
    return vocab->bos;
}

int32_t kin_vocab_eos(const kin_vocab *vocab) {
    return vocab->eos;
}

int32_t kin_vocab_eot(const kin_vocab *vocab) {
    return vocab->eot;
}

int32_t kin_vocab_unk(const kin_vocab *vocab) {
    return vocab->unk;
}

int32_t kin_vocab_pad(const kin_vocab *vocab) {
    return vocab->pad;
}

int32_t kin_vocab_fim(const kin_vocab *vocab, kin_fim_role role) {
    return vocab->fim[role];
}

const int32_t *kin_vocab_suppressed(const kin_vocab *vocab, size_t *n) {
    *n = vocab->n_suppressed;
    return vocab->suppressed;
}

bool kin_vocab_add_bos(const kin_vocab *vocab) {
    return vocab->add_bos;
}

bool kin_vocab_add_eos(const kin_vocab *vocab) {
    return vocab->add_eos;
}

bool kin_vocab_is_eog(const kin_vocab *vocab, int32_t id) {
    return id >= 0 && id < vocab->n_tokens && vocab->is_eog[id];
}

kin_token_type kin_vocab_type(const kin_vocab *vocab, int32_t id) {
    kin_assert(id >= 0 && id < vocab->n_tokens);
    return (kin_token_type)vocab->types[id];
}

kin_str kin_vocab_text(const kin_vocab *vocab, int32_t id) {
    kin_assert(id >= 0 && id < vocab->n_tokens);
    return (kin_str){.at = kin_string_table_at(&vocab->texts, (uint32_t)id),
                     .len = kin_string_table_len(&vocab->texts, (uint32_t)id)};
}

kin_str kin_vocab_piece(const kin_vocab *vocab, int32_t id) {
    kin_assert(id >= 0 && id < vocab->n_tokens);
    uint32_t begin = vocab->piece_begin[id];
    return (kin_str){.at = vocab->pieces + begin, .len = vocab->piece_begin[id + 1] - begin};
}

int32_t kin_vocab_find(const kin_vocab *vocab, const char *text, size_t len) {
    int64_t id = kin_string_table_find(&vocab->texts, text, len);
    return id < vocab->n_tokens ? (int32_t)id : KIN_TOKEN_NONE;
}
