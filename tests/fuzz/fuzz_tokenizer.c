// Encodes any bytes as text. Every encoder must accept them, and its tokens must decode to the same bytes.
//
// The first byte chooses the vocabulary and the flags, the rest is the text. BPE keeps all bytes. The others encode a space and
// U+2581 alike, so its text comes back with spaces. Special tokens are printed, so parsing them loses nothing.
#include <stdlib.h>
#include <string.h>

#include "pure/text/utf8.h"
#include "pure/tokenizer/detok.h"
#include "pure/tokenizer/tokenizer.h"
#include "testkit/small_vocab.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

#define SPACED "" // not a pre-tokenizer: BPE of characters
static const char *const pres[] = {NULL,           "gpt-2",          "llama-bpe",   "qwen2",   "qwen35",
                                   "tekken",       "gpt-4o",         "smollm",      "falcon",  "default",
                                   "deepseek-llm", "deepseek-coder", "deepseek-v3", "kimi-k2", SPACED};
enum { N_PRES = sizeof pres / sizeof *pres };

static kin_vocab *vocabs[N_PRES];
static kin_tokenizer *tokenizers[N_PRES];

static const kin_tokenizer *tokenizer_of(int i) {
    if (tokenizers[i]) return tokenizers[i];
    kin_vocab_spec spec = !pres[i] ? small_spm_spec() : *pres[i] ? small_bpe_spec(pres[i]) : small_spaced_spec();
    vocabs[i] = small_vocab(spec); // kept until the end of the process
    kin_assert(kin_tokenizer_new(&tokenizers[i], vocabs[i], NULL) == 0);
    return tokenizers[i];
}

// Replaces each U+2581 by a space, as SPM decodes it, in place. Returns the new length.
static size_t unescape(char *text, size_t len) {
    size_t n = 0;
    for (size_t at = 0; at < len;) {
        bool is_space = len - at >= 3 && memcmp(text + at, "\xe2\x96\x81", 3) == 0;
        text[n++] = is_space ? ' ' : text[at];
        at += is_space ? 3 : 1;
    }
    return n;
}

static size_t decode(const kin_vocab *vocab, unsigned flags, const int32_t *ids, size_t n_ids, char *out) {
    kin_detok *detok;
    size_t n = 0;
    kin_assert(kin_detok_new(&detok, vocab, flags, NULL) == 0);
    for (size_t i = 0; i <= n_ids; i++) {
        kin_str piece = i < n_ids ? kin_detok_push(detok, ids[i]) : kin_detok_flush(detok);
        memcpy(out + n, piece.at, piece.len);
        n += piece.len;
    }
    kin_detok_free(detok);
    return n;
}

static void check_utf8(const char *text, size_t len) {
    for (size_t at = 0; at < len;) {
        int n = kin_utf8_len(text + at, len - at);
        kin_assert(n > 0);
        at += (size_t)n;
    }
}

// True if decoding restores the text. SPM's encoder inserts spaces after special tokens, so it does not restore texts with these.
static bool comes_back(const kin_vocab *vocab, const int32_t *ids, size_t n_ids) {
    if (kin_vocab_get_kind(vocab) == KIN_VOCAB_BPE) return true;
    for (size_t i = 0; i < n_ids; i++) {
        kin_token_type type = kin_vocab_type(vocab, ids[i]);
        if (type == KIN_TOKEN_CONTROL || type == KIN_TOKEN_USER_DEFINED || type == KIN_TOKEN_UNKNOWN) return false;
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    if (size < 1) return 0;
    int i = bytes[0] % 16 % N_PRES;
    unsigned flags = bytes[0] & 16 ? KIN_ENCODE_PARSE_SPECIAL : 0;
    const kin_tokenizer *tokenizer = tokenizer_of(i);
    size_t len = size - 1, cap = 2 * len + 4; // at most one space per special token is added
    char *text = malloc(len + 1), *decoded = malloc(16 * cap);
    int32_t *ids = malloc(cap * sizeof *ids);
    kin_assert(text && decoded && ids);
    memcpy(text, bytes + 1, len);

    int64_t n = kin_tokenizer_encode(tokenizer, text, len, flags, ids, cap, NULL);
    kin_assert(n >= 0 && (size_t)n <= cap);
    for (int64_t k = 0; k < n; k++) kin_assert(ids[k] >= 0 && ids[k] < kin_vocab_n_tokens(vocabs[i]));
    size_t n_decoded = decode(vocabs[i], KIN_DETOK_TEXT_START | KIN_DETOK_SPECIAL, ids, (size_t)n, decoded);
    if (comes_back(vocabs[i], ids, (size_t)n)) {
        if (kin_vocab_get_kind(vocabs[i]) != KIN_VOCAB_BPE) len = unescape(text, len);
        kin_assert(n_decoded == len && memcmp(decoded, text, len) == 0);
    }
    n_decoded = decode(vocabs[i], KIN_DETOK_REPLACE | KIN_DETOK_SPECIAL, ids, (size_t)n, decoded);
    check_utf8(decoded, n_decoded);
    free(ids);
    free(decoded);
    free(text);
    return 0;
}
