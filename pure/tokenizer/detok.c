#include "pure/tokenizer/detok.h"

#include <stdlib.h>
#include <string.h>

#include "pure/text/utf8.h"
#include "pure/tokenizer/vocab_impl.h"

#define REPLACEMENT "\xef\xbf\xbd" // U+FFFD
enum { REPLACEMENT_LEN = 3 };

struct kin_detok {
    const kin_vocab *vocab;
    unsigned flags;
    bool strip_space;        // nothing was printed yet, and the first space of the text is the encoder's
    char held[KIN_UTF8_MAX]; // the incomplete character at the end
    size_t n_held;
    char *out; // [(longest piece + KIN_UTF8_MAX) * REPLACEMENT_LEN]
};

int kin_detok_new(kin_detok **out, const kin_vocab *vocab, unsigned flags, kin_err *err) {
    *out = NULL;
    kin_detok *detok = calloc(1, sizeof *detok);
    if (detok) detok->out = malloc((vocab->longest + KIN_UTF8_MAX) * REPLACEMENT_LEN);
    if (!detok || !detok->out) {
        free(detok);
        return kin_err_set(err, "detokenizer: out of memory");
    }
    detok->vocab = vocab;
    detok->flags = flags;
    kin_detok_reset(detok);
    *out = detok;
    return 0;
}

void kin_detok_free(kin_detok *detok) {
    if (!detok) return;
    free(detok->out);
    free(detok);
}

void kin_detok_reset(kin_detok *detok) {
    detok->strip_space = detok->flags & KIN_DETOK_TEXT_START && detok->vocab->add_space_prefix;
    detok->n_held = 0;
}

// Returns the printed text of a token: empty for a hidden one, without the encoder's space.
static kin_str visible_piece(kin_detok *detok, int32_t id) {
    kin_token_type type = kin_vocab_type(detok->vocab, id);
    kin_str piece = kin_vocab_piece(detok->vocab, id);
    bool is_hidden = type == KIN_TOKEN_CONTROL || type == KIN_TOKEN_UNKNOWN;
    if (is_hidden && !(detok->flags & KIN_DETOK_SPECIAL)) piece.len = 0;
    if (detok->strip_space && piece.len > 0) {
        detok->strip_space = false;
        if (piece.at[0] == ' ') piece = (kin_str){piece.at + 1, piece.len - 1};
    }
    return piece;
}

// Returns the length of the maximal subpart (Unicode, section 3.9) at the start of head [n]: the bytes that look like a
// character until the next byte contradicts. It is replaced by one U+FFFD.
static size_t bad_len(const char *head, size_t n) {
    size_t len = 1;
    while (len < n && kin_utf8_len(head, len + 1) == 0) len++;
    return len;
}

static size_t put_bad(const kin_detok *detok, char *out, const char *at, size_t len) {
    bool replace = detok->flags & KIN_DETOK_REPLACE;
    size_t n = replace ? REPLACEMENT_LEN : len;
    memcpy(out, replace ? REPLACEMENT : at, n);
    return n;
}

kin_str kin_detok_push(kin_detok *detok, int32_t id) {
    kin_str piece = visible_piece(detok, id);
    size_t n = 0, at = 0;
    while (at < piece.len) {
        char head[2 * KIN_UTF8_MAX]; // the held bytes and those that follow
        size_t n_held = detok->n_held, n_more = piece.len - at < KIN_UTF8_MAX ? piece.len - at : KIN_UTF8_MAX;
        memcpy(head, detok->held, n_held);
        memcpy(head + n_held, piece.at + at, n_more);
        int len = kin_utf8_len(head, n_held + n_more);
        if (len == 0) { // still incomplete at the end of the piece
            memcpy(detok->held, head, n_held + n_more);
            detok->n_held = n_held + n_more;
            break;
        }
        size_t n_used = len > 0 ? (size_t)len : bad_len(head, n_held + n_more); // at least n_held
        if (len > 0) memcpy(detok->out + n, head, n_used);
        n += len > 0 ? n_used : put_bad(detok, detok->out + n, head, n_used);
        at += n_used - n_held;
        detok->n_held = 0;
    }
    return (kin_str){detok->out, n};
}

kin_str kin_detok_flush(kin_detok *detok) {
    size_t n = detok->n_held > 0 ? put_bad(detok, detok->out, detok->held, detok->n_held) : 0;
    detok->n_held = 0;
    return (kin_str){detok->out, n};
}
