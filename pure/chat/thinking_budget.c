#include "pure/chat/thinking_budget.h"

#include <stdlib.h>
#include <string.h>

typedef enum state {
    BEFORE,   // only white space, or a part of the mark, so far
    THINKING, // within the reasoning
    ENDING,   // its end is forced
    OVER,     // it has ended, or can no longer begin
} state;

struct kin_thinking_budget {
    char begin_mark[KIN_CHAT_MAX_MARK], end_mark[KIN_CHAT_MAX_MARK];
    state state;
    int n_left;    // tokens left
    int n_matched; // matched bytes of the mark that is searched for
    int n_given;   // tokens of the forced end accepted so far
    int n_end;
    int32_t end[];
};

int kin_thinking_budget_new(kin_thinking_budget **out, const kin_chat_format *format, int n_tokens, bool begun,
                            const int32_t *end, int n_end, kin_err *err) {
    kin_assert(n_tokens >= 0 && n_end > 0 && kin_chat_format_thinks(format));
    kin_thinking_budget *b = *out = malloc(sizeof *b + (size_t)n_end * sizeof *end);
    if (!b) return kin_err_set(err, "out of memory");
    *b = (kin_thinking_budget){.state = !begun ? BEFORE : n_tokens > 0 ? THINKING : ENDING, .n_left = n_tokens, .n_end = n_end};
    memcpy(b->begin_mark, format->think_begin, sizeof b->begin_mark);
    memcpy(b->end_mark, format->think_end, sizeof b->end_mark);
    memcpy(b->end, end, (size_t)n_end * sizeof *end);
    return 0;
}

void kin_thinking_budget_free(kin_thinking_budget *b) {
    free(b);
}

int32_t kin_thinking_budget_next(const kin_thinking_budget *b) {
    return b->state == ENDING ? b->end[b->n_given] : KIN_FAIL;
}

// Matches one more byte; returns true if the mark is complete. The first byte of the mark occurs only once in it.
static bool match(kin_thinking_budget *b, const char *mark, char byte) {
    if (byte != mark[b->n_matched]) b->n_matched = 0;
    b->n_matched += byte == mark[b->n_matched];
    if (mark[b->n_matched]) return false;
    b->n_matched = 0;
    return true;
}

static void match_byte(kin_thinking_budget *b, char byte) {
    if (b->state == THINKING && match(b, b->end_mark, byte)) {
        b->state = OVER;
    } else if (b->state == BEFORE) {
        bool may_be = b->n_matched > 0 ? byte == b->begin_mark[b->n_matched] : kin_is_space(byte) || byte == b->begin_mark[0];
        if (!may_be)
            b->state = OVER;
        else if (match(b, b->begin_mark, byte))
            b->state = THINKING;
    }
}

void kin_thinking_budget_accept(kin_thinking_budget *b, kin_str text) {
    if (b->state == ENDING) {
        if (++b->n_given == b->n_end) b->state = OVER;
        return;
    }
    bool was_thinking = b->state == THINKING;
    for (size_t i = 0; i < text.len; i++) match_byte(b, text.at[i]);
    if (b->state != THINKING) return;
    b->n_left -= was_thinking;
    if (b->n_left > 0) return;
    b->state = ENDING;
    b->n_matched = 0;
}
