#include "pure/tokenizer/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "pure/text/utf8.h"
#include "pure/tokenizer/byte_alphabet.h"
#include "pure/tokenizer/spm.h"
#include "pure/tokenizer/vocab_impl.h"

enum { WHOLE_MAX = 512 }; // a pre-token this long, in the byte alphabet, may still be a token

typedef struct job {
    const kin_vocab *vocab;
    kin_merger *merger;
    kin_id_sink *sink;
} job;

static bool may_join(const void *rules, const char *text, const kin_symbol *left, const kin_symbol *right, uint32_t *order,
                     uint32_t *id) {
    (void)text;
    if (left->id == KIN_SYMBOL_NONE || right->id == KIN_SYMBOL_NONE) return false;
    const kin_merge *merge = kin_merge_table_find(rules, left->id, right->id);
    if (!merge) return false;
    *order = merge->rank;
    *id = merge->result;
    return true;
}

// Returns the token for exactly these bytes, or KIN_TOKEN_NONE.
static int32_t find_whole(const kin_vocab *vocab, const char *at, size_t len) {
    char text[WHOLE_MAX];
    size_t n = 0;
    if (len > WHOLE_MAX / KIN_BYTE_ALPHABET_MAX || len > vocab->longest) return KIN_TOKEN_NONE;
    for (size_t i = 0; i < len; i++) n += (size_t)kin_byte_alphabet_put(text + n, (uint8_t)at[i]);
    return kin_vocab_find(vocab, text, n);
}

static void put_symbols(const job *job, const char *at) {
    for (size_t i = 0; i < job->merger->n; i++) {
        const kin_symbol *symbol = &job->merger->symbols[i];
        if (symbol->len == 0) continue;
        if (symbol->id < (uint32_t)job->vocab->n_tokens) {
            kin_id_sink_put(job->sink, (int32_t)symbol->id);
            continue;
        }
        for (uint32_t b = 0; b < symbol->len; b++)
            kin_id_sink_put(job->sink, job->vocab->byte_tokens[(uint8_t)at[symbol->at + b]]);
    }
}

// A kin_pretokenizer_sink.
static int encode_piece(void *user, const char *at, size_t len, kin_err *err) {
    const job *job = user;
    if (job->vocab->ignore_merges) {
        int32_t whole = find_whole(job->vocab, at, len);
        if (whole != KIN_TOKEN_NONE) {
            kin_id_sink_put(job->sink, whole);
            return 0;
        }
    }
    if (kin_merger_begin(job->merger, len, err) < 0) return KIN_FAIL;
    for (size_t i = 0; i < len; i++) kin_merger_add(job->merger, (uint32_t)i, 1, job->vocab->byte_symbols[(uint8_t)at[i]]);
    kin_merger_run(job->merger, may_join, &job->vocab->merges, at);
    put_symbols(job, at);
    return 0;
}

// Returns the length of the run at the start of the text that is valid UTF-8 (is_valid) or is not.
static size_t run_len(const char *text, size_t len, bool is_valid) {
    size_t at = 0;
    while (at < len) {
        int n = kin_utf8_len(text + at, len - at);
        if ((n > 0) != is_valid) break;
        at += n > 0 ? (size_t)n : 1;
    }
    return at;
}

int kin_bpe_encode(const kin_vocab *vocab, const kin_pretokenizer *pre, const char *text, size_t len, kin_merger *merger,
                   kin_id_sink *sink, kin_err *err) {
    job job = {vocab, merger, sink};
    for (size_t at = 0; at < len;) {
        size_t good = run_len(text + at, len - at, true);
        if (good > 0 && kin_pretokenizer_split(pre, text + at, good, encode_piece, &job, err) < 0) return KIN_FAIL;
        at += good;
        size_t bad = run_len(text + at, len - at, false);
        if (bad > 0 && encode_piece(&job, text + at, bad, err) < 0) return KIN_FAIL;
        at += bad;
    }
    return 0;
}

// ---- tokens with spaces as in SentencePiece

// Encodes a run of newlines, or a run without any.
static int encode_run(const job *job, const char *at, size_t len, kin_err *err) {
    const int32_t whole = at[0] == '\n' ? kin_vocab_find(job->vocab, at, len) : KIN_TOKEN_NONE;
    if (whole != KIN_TOKEN_NONE) {
        kin_id_sink_put(job->sink, whole);
        return 0;
    }
    if (kin_merger_begin(job->merger, len, err) < 0) return KIN_FAIL;
    for (size_t i = 0, n; i < len; i += n) {
        n = kin_spm_character_len(at + i, len - i);
        const int64_t symbol = kin_string_table_find(&job->vocab->texts, at + i, n);
        kin_merger_add(job->merger, (uint32_t)i, (uint32_t)n, symbol < 0 ? KIN_SYMBOL_NONE : (uint32_t)symbol);
    }
    kin_merger_run(job->merger, may_join, &job->vocab->merges, at);
    put_symbols(job, at);
    return 0;
}

int kin_spaced_bpe_encode(const kin_vocab *vocab, const char *text, size_t len, kin_merger *merger, kin_id_sink *sink,
                          kin_err *err) {
    const job job = {vocab, merger, sink};
    char *escaped = malloc(KIN_SPM_SPACE_LEN * (len + 1));
    if (!escaped) return kin_err_set(err, "tokenizer: out of memory");
    const size_t n = kin_spm_escape(escaped, false, text, len);
    int rc = 0;
    for (size_t at = 0, end; at < n && rc == 0; at = end) {
        const bool is_newline = escaped[at] == '\n';
        for (end = at + 1; end < n && (escaped[end] == '\n') == is_newline;) end++;
        rc = encode_run(&job, escaped + at, end - at, err);
    }
    free(escaped);
    return rc;
}
