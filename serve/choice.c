#include "serve/choice.h"

#include <string.h>

int kin_choice_open(kin_choice *c, const kin_vocab *vocab, const kin_request *request, const kin_reply_options *reply,
                    kin_err *err) {
    *c = (kin_choice){.vocab = vocab, .request = request, .stop_word = -1, .indent = -1};
    unsigned flags = KIN_DETOK_REPLACE | (request->parse_special && !request->is_chat ? KIN_DETOK_SPECIAL : 0);
    if (kin_detok_new(&c->detok, vocab, flags, err) != 0) return KIN_FAIL;
    if (request->n_stops > 0 && kin_stop_words_new(&c->stop, request->stops, (size_t)request->n_stops, err) != 0) return KIN_FAIL;
    return reply ? kin_reply_parser_new(&c->parser, reply, err) : 0;
}

void kin_choice_close(kin_choice *c) {
    kin_detok_free(c->detok);
    kin_stop_words_free(c->stop);
    kin_reply_parser_free(c->parser);
    *c = (kin_choice){0};
}

static int out_of_memory(kin_err *err) {
    return kin_err_set(err, "out of memory");
}

static void take_events(kin_choice *c, const kin_reply_event *events, int n) {
    for (int i = 0; i < n; i++) {
        c->in_reasoning = events[i].kind == KIN_REPLY_REASONING;
        c->has_calls = c->has_calls || events[i].kind == KIN_REPLY_TOOL_BEGIN;
    }
    if (n > 0) c->take(c->user, c->index, events, n);
}

// Text that is certain to be part of the reply.
static int parse(kin_choice *c, kin_str text, kin_err *err) {
    const kin_reply_event plain = {.kind = KIN_REPLY_TEXT, .text = text}, *events = &plain;
    int n = 1;
    if (text.len == 0) return 0;
    if (c->parser && kin_reply_parser_push(c->parser, text.at, text.len, &events, &n) != 0) return out_of_memory(err);
    take_events(c, events, n);
    return 0;
}

// Of a text, what comes before the first line whose white space is too short.
static kin_str cut_at_outdent(kin_choice *c, kin_str text) {
    for (size_t i = 0; i < text.len; i++) {
        bool is_white = text.at[i] == ' ' || text.at[i] == '\t';
        if (text.at[i] == '\n') {
            c->indent = 0;
        } else if (c->indent >= 0 && is_white) {
            c->indent++;
        } else if (c->indent >= 0) {
            c->is_outdented = c->indent < c->request->n_indent;
            c->indent = -1;
            if (c->is_outdented) return (kin_str){text.at, i};
        }
    }
    return text;
}

static int push_text(kin_choice *c, kin_str text, kin_err *err) {
    if (c->request->n_indent > 0) text = cut_at_outdent(c, text);
    if (c->stop && kin_stop_words_push(c->stop, text.at, text.len, &text, &c->stop_word) != 0) return out_of_memory(err);
    return parse(c, text, err);
}

// A control token prints nothing, but where it is a marker of calls or reasoning.
static kin_str text_of(kin_choice *c, int32_t id) {
    kin_str piece = kin_detok_push(c->detok, id);
    if (piece.len > 0 || !c->parser || kin_vocab_type(c->vocab, id) != KIN_TOKEN_CONTROL) return piece;
    kin_str marker = kin_vocab_text(c->vocab, id);
    return kin_reply_is_marker(marker) ? marker : piece;
}

int kin_choice_push(kin_choice *c, int32_t id, kin_str bytes, kin_err *err) {
    if (id < 0) return push_text(c, bytes, err);
    c->n_generated++;
    int rc = push_text(c, text_of(c, id), err);
    c->n_reasoning += c->in_reasoning;
    return rc;
}

int kin_choice_flush(kin_choice *c, bool is_cut, kin_err *err) {
    const kin_reply_event *events;
    int n;
    if (!kin_choice_is_cut(c)) {
        kin_str rest = kin_detok_flush(c->detok);
        if (push_text(c, rest, err) != 0) return KIN_FAIL;
    }
    if (c->stop && c->stop_word < 0 && parse(c, kin_stop_words_flush(c->stop), err) != 0) return KIN_FAIL;
    if (!c->parser) return 0;
    if (kin_reply_parser_flush(c->parser, is_cut, &events, &n) != 0) return out_of_memory(err);
    take_events(c, events, n);
    return 0;
}

kin_timings kin_choice_timings(const kin_choice *c) {
    kin_time first = c->first ? c->first : c->last;
    return (kin_timings){.n_prompt = c->n_prompt,
                         .n_cached = c->n_cached,
                         .n_generated = c->n_generated,
                         .drafts = c->drafts,
                         .prompt_ms = first > c->submitted ? kin_clock_ms(c->submitted, first) : 0,
                         .generated_ms = c->last > first ? kin_clock_ms(first, c->last) : 0};
}
