#include "pure/tokenizer/spm.h"

#include <stdlib.h>
#include <string.h>

#include "pure/text/utf8.h"
#include "pure/tokenizer/vocab_impl.h"

static bool is_space(const char *at, size_t n) {
    return n >= KIN_SPM_SPACE_LEN && memcmp(at, KIN_SPM_SPACE, KIN_SPM_SPACE_LEN) == 0;
}

static bool has_inner_space(kin_str text) {
    size_t at = 0;
    while (is_space(text.at + at, text.len - at)) at += KIN_SPM_SPACE_LEN;
    return memmem(text.at + at, text.len - at, KIN_SPM_SPACE, KIN_SPM_SPACE_LEN) != NULL;
}

bool kin_spm_words_are_independent(const kin_vocab *vocab) {
    for (int32_t id = 0; id < vocab->n_tokens; id++) {
        if (has_inner_space(kin_vocab_text(vocab, id))) return false;
    }
    return true;
}

// Maps scores to integers in reverse order: the best score becomes the smallest integer.
static uint32_t order_of_score(float score) {
    union {
        float f;
        uint32_t u;
    } bits = {.f = score + 0.0f}; // makes -0 and 0 equal
    uint32_t ascending = bits.u >> 31 ? ~bits.u : bits.u | 0x80000000u;
    return ~ascending;
}

static bool may_join(const void *rules, const char *text, const kin_symbol *left, const kin_symbol *right, uint32_t *order,
                     uint32_t *id) {
    const kin_vocab *vocab = rules;
    size_t len = (size_t)left->len + right->len;
    if (len > vocab->longest) return false;
    int32_t token = kin_vocab_find(vocab, text + left->at, len);
    if (token == KIN_TOKEN_NONE) return false;
    *order = order_of_score(vocab->scores[token]);
    *id = (uint32_t)token;
    return true;
}

size_t kin_spm_escape(char *out, bool space_first, const char *text, size_t len) {
    size_t n = 0;
    if (space_first) {
        memcpy(out, KIN_SPM_SPACE, KIN_SPM_SPACE_LEN);
        n = KIN_SPM_SPACE_LEN;
    }
    for (size_t i = 0; i < len; i++) {
        if (text[i] == ' ') {
            memcpy(out + n, KIN_SPM_SPACE, KIN_SPM_SPACE_LEN);
            n += KIN_SPM_SPACE_LEN;
        } else {
            out[n++] = text[i];
        }
    }
    return n;
}

size_t kin_spm_character_len(const char *at, size_t n) {
    int len = kin_utf8_len(at, n);
    return len > 0 ? (size_t)len : 1; // an invalid byte is a character
}

// Returns the length of the first word: spaces, then everything up to the next space.
static size_t word_len(const char *at, size_t n) {
    size_t len = 0;
    while (is_space(at + len, n - len)) len += KIN_SPM_SPACE_LEN;
    while (len < n && !is_space(at + len, n - len)) len += kin_spm_character_len(at + len, n - len);
    return len;
}

static void put_symbols(const kin_vocab *vocab, const char *text, const kin_merger *merger, kin_id_sink *sink) {
    for (size_t i = 0; i < merger->n; i++) {
        const kin_symbol *symbol = &merger->symbols[i];
        if (symbol->len == 0) continue;
        int32_t id = symbol->id != KIN_SYMBOL_NONE ? (int32_t)symbol->id : kin_vocab_find(vocab, text + symbol->at, symbol->len);
        if (id != KIN_TOKEN_NONE) {
            kin_id_sink_put(sink, id);
            continue;
        }
        for (uint32_t b = 0; b < symbol->len; b++) kin_id_sink_put(sink, vocab->byte_tokens[(uint8_t)text[symbol->at + b]]);
    }
}

static size_t count_characters(const char *at, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; count++) i += kin_spm_character_len(at + i, n - i);
    return count;
}

static int encode_run(const kin_vocab *vocab, const char *text, size_t len, kin_merger *merger, kin_id_sink *sink, kin_err *err) {
    if (kin_merger_begin(merger, count_characters(text, len), err) < 0) return KIN_FAIL;
    for (size_t at = 0; at < len;) {
        size_t n = kin_spm_character_len(text + at, len - at);
        kin_merger_add(merger, (uint32_t)at, (uint32_t)n, KIN_SYMBOL_NONE);
        at += n;
    }
    kin_merger_run(merger, may_join, vocab, text);
    put_symbols(vocab, text, merger, sink);
    return 0;
}

int kin_spm_encode(const kin_vocab *vocab, bool by_words, bool space_first, const char *text, size_t len, kin_merger *merger,
                   kin_id_sink *sink, kin_err *err) {
    char *escaped = malloc(KIN_SPM_SPACE_LEN * (len + 1));
    if (!escaped) return kin_err_set(err, "tokenizer: out of memory");
    size_t n = kin_spm_escape(escaped, space_first, text, len);
    int rc = 0;
    for (size_t at = 0; at < n && rc == 0;) {
        size_t run = by_words ? word_len(escaped + at, n - at) : n - at;
        rc = encode_run(vocab, escaped + at, run, merger, sink, err);
        at += run;
    }
    free(escaped);
    return rc;
}
