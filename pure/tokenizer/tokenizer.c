#include "pure/tokenizer/tokenizer.h"

#include <stdlib.h>

#include "pure/tokenizer/bpe.h"
#include "pure/tokenizer/id_sink.h"
#include "pure/tokenizer/merger.h"
#include "pure/tokenizer/pretokenizer.h"
#include "pure/tokenizer/specials.h"
#include "pure/tokenizer/spm.h"
#include "pure/tokenizer/vocab_impl.h"

// Rates for 1 MiB of English on one Zen 4 core, MB/s: llama-bpe 40, gpt-2 22, deepseek-llm (six expressions) 16, llama-spm 8.
// The slowest texts found, 1 MiB of one letter or of spaces, take 0.2 to 0.4 s: a single run, so a single large heap.

struct kin_tokenizer {
    const kin_vocab *vocab;
    kin_specials *specials;
    kin_pretokenizer *pre; // BPE, else NULL
    bool by_words;         // SPM
};

int kin_tokenizer_new(kin_tokenizer **out, const kin_vocab *vocab, kin_err *err) {
    *out = NULL;
    kin_tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
    if (!tokenizer) return kin_err_set(err, "tokenizer: out of memory");
    tokenizer->vocab = vocab;
    if (kin_specials_new(&tokenizer->specials, vocab, err) < 0) goto fail;
    if (vocab->kind == KIN_VOCAB_BPE && kin_pretokenizer_new(&tokenizer->pre, vocab->pre, err) < 0) goto fail;
    tokenizer->by_words = vocab->kind == KIN_VOCAB_SPM && kin_spm_words_are_independent(vocab);
    *out = tokenizer;
    return 0;

fail:
    kin_tokenizer_free(tokenizer);
    return KIN_FAIL;
}

void kin_tokenizer_free(kin_tokenizer *tokenizer) {
    if (!tokenizer) return;
    kin_pretokenizer_free(tokenizer->pre);
    kin_specials_free(tokenizer->specials);
    free(tokenizer);
}

// Encodes text between special tokens. SPM puts a space before it, because it follows the beginning or a special token.
static int encode_plain(const kin_tokenizer *tokenizer, const char *text, size_t len, kin_merger *merger, kin_id_sink *sink,
                        kin_err *err) {
    const kin_vocab *vocab = tokenizer->vocab;
    if (len == 0) return 0;
    if (vocab->kind == KIN_VOCAB_BPE) return kin_bpe_encode(vocab, tokenizer->pre, text, len, merger, sink, err);
    if (vocab->kind == KIN_VOCAB_SPACED_BPE) return kin_spaced_bpe_encode(vocab, text, len, merger, sink, err);
    return kin_spm_encode(vocab, tokenizer->by_words, vocab->add_space_prefix, text, len, merger, sink, err);
}

int64_t kin_tokenizer_encode_prompt(const kin_tokenizer *tokenizer, const char *text, size_t len, const kin_text_range *trusted,
                                    size_t n_trusted, bool add_special, int32_t *ids, size_t cap, kin_err *err) {
    if (len > KIN_ENCODE_MAX_BYTES)
        return kin_err_set(err, "tokenizer: the text has %zu bytes, but the limit is %u", len, KIN_ENCODE_MAX_BYTES);
    const kin_vocab *vocab = tokenizer->vocab;
    kin_special_hit *hits;
    size_t n_hits;
    if (kin_specials_search(tokenizer->specials, text, len, trusted, n_trusted, &hits, &n_hits, err) < 0) return KIN_FAIL;

    kin_id_sink sink = {.ids = ids, .cap = cap};
    kin_merger merger = {0};
    int rc = 0;
    size_t at = 0;
    if (add_special && vocab->add_bos) kin_id_sink_put(&sink, vocab->bos);
    for (size_t i = 0; i < n_hits && rc == 0; i++) {
        rc = encode_plain(tokenizer, text + at, hits[i].begin - at, &merger, &sink, err);
        kin_id_sink_put(&sink, hits[i].id);
        at = hits[i].end;
    }
    if (rc == 0) rc = encode_plain(tokenizer, text + at, len - at, &merger, &sink, err);
    if (add_special && vocab->add_eos) kin_id_sink_put(&sink, vocab->eos);

    kin_merger_fini(&merger);
    free(hits);
    return rc < 0 ? KIN_FAIL : (int64_t)sink.n;
}

int64_t kin_tokenizer_encode(const kin_tokenizer *tokenizer, const char *text, size_t len, unsigned flags, int32_t *ids,
                             size_t cap, kin_err *err) {
    const kin_text_range all = {0, len};
    size_t n_trusted = flags & KIN_ENCODE_PARSE_SPECIAL ? 1 : 0;
    return kin_tokenizer_encode_prompt(tokenizer, text, len, &all, n_trusted, flags & KIN_ENCODE_ADD_SPECIAL, ids, cap, err);
}
