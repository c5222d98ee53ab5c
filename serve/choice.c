#include "serve/choice.h"

#include <string.h>

int kin_choice_open(kin_choice *c, const kin_vocab *vocab, const kin_request *request, const kin_reply_options *reply,
                    kin_err *err) {
    *c = (kin_choice){.vocab = vocab, .request = request, .stop_word = -1, .indent = -1};
    unsigned flags = KIN_DETOK_REPLACE | (request->parse_special && !request->is_chat ? KIN_DETOK_SPECIAL : 0);
    if (kin_detok_new(&c->detok, vocab, flags, err) != 0) return KIN_FAIL;
    if (request->n_stops > 0 && kin_stop_words_new(&c->stop, request->stops, (size_t)request->n_stops, err) != 0) return KIN_FAIL;
    if (reply) c->format = reply->format ? reply->format : kin_chat_format_known(KIN_CHAT_PLAIN);
    return reply ? kin_reply_parser_new(&c->parser, reply, err) : 0;
}

void kin_choice_close(kin_choice *c) {
    kin_detok_free(c->detok);
    kin_stop_words_free(c->stop);
    kin_reply_parser_free(c->parser);
    kin_text_fini(&c->joined_text);
    *c = (kin_choice){0};
}

static int out_of_memory(kin_err *err) {
    return kin_err_set(err, "out of memory");
}

static void handle_choice_events(kin_choice *c, const kin_reply_event *events, int n) {
    for (int i = 0; i < n; i++) {
        c->in_reasoning = events[i].kind == KIN_REPLY_REASONING;
        if (events[i].text.len > 0 && memchr(events[i].text.at, '\n', events[i].text.len)) c->has_new_line = true;
        if (events[i].kind == KIN_REPLY_TOOL_BEGIN) c->in_call = true;
        if (events[i].kind != KIN_REPLY_TOOL_END) continue;
        c->in_call = false;
        c->has_calls = true;
    }
    if (n > 0) c->on_events(c->user, c->index, events, n);
}

// Passes on text that is certain to be part of the reply.
static int parse(kin_choice *c, kin_str text, kin_err *err) {
    const kin_reply_event plain = {.kind = KIN_REPLY_TEXT, .text = text}, *events = &plain;
    int n = 1;
    if (text.len == 0) return 0;
    if (c->parser && kin_reply_parser_push(c->parser, text.at, text.len, &events, &n) != 0) return out_of_memory(err);
    handle_choice_events(c, events, n);
    return 0;
}

// ---- stop words outside calls

static void give_joined(kin_choice *c) {
    c->joined.text = (kin_str){c->joined_text.at, c->joined_text.len};
    if (c->joined.text.len > 0) handle_choice_events(c, &c->joined, 1);
    c->joined_text.len = 0;
}

// Joins events of single bytes, so that clients get them together.
static void join_events(kin_choice *c, const kin_reply_event *events, int n) {
    for (int i = 0; i < n; i++) {
        const kin_reply_event *e = &events[i];
        if (e->text.len == 0 || e->kind != c->joined.kind || e->tool != c->joined.tool) give_joined(c);
        if (e->text.len == 0) {
            handle_choice_events(c, e, 1);
            continue;
        }
        c->joined = *e;
        kin_text_put(&c->joined_text, e->text.at, e->text.len);
    }
}

static int parse_joined(kin_choice *c, kin_str text) {
    const kin_reply_event *events;
    int n;
    if (text.len == 0) return 0;
    if (kin_reply_parser_push(c->parser, text.at, text.len, &events, &n) != 0) return KIN_FAIL;
    join_events(c, events, n);
    return 0;
}

// Parses text after the search for stop words. is_marker: none begins in it.
static int parse_searched(kin_choice *c, kin_str text, bool is_marker) {
    kin_str before;
    int rc = is_marker ? kin_stop_words_push_inside(c->stop, text.at, text.len, &before, &c->stop_word)
                       : kin_stop_words_push(c->stop, text.at, text.len, &before, &c->stop_word);
    return rc == 0 ? parse_joined(c, before) : KIN_FAIL;
}

static int release_marker(kin_choice *c, size_t n) {
    c->n_marker -= n;
    int rc = parse_searched(c, (kin_str){c->marker, n}, false);
    memmove(c->marker, c->marker + n, c->n_marker);
    return rc;
}

// Holds bytes back that may be the beginning of a marker: whether stop words are searched for in them depends on what follows.
static int parse_byte(kin_choice *c, char byte) {
    bool is_whole;
    if (kin_reply_parser_is_in_call(c->parser)) return parse_joined(c, (kin_str){&byte, 1});
    c->marker[c->n_marker++] = byte;
    bool is_begun = kin_reply_parser_marks_call(c->parser, (kin_str){c->marker, c->n_marker}, &is_whole);
    if (!is_begun && c->n_marker > 1) {
        if (release_marker(c, c->n_marker - 1) != 0) return KIN_FAIL;
        if (c->stop_word >= 0) return 0;
        is_begun = kin_reply_parser_marks_call(c->parser, (kin_str){c->marker, 1}, &is_whole);
    }
    if (!is_begun) return release_marker(c, c->n_marker);
    if (!is_whole) return 0;
    size_t n = c->n_marker;
    c->n_marker = 0;
    return parse_searched(c, (kin_str){c->marker, n}, true);
}

// Ignores stop words inside a call, which they would cut in the middle. Text held back as the beginning of a stop word is
// released when it turns out to begin a call.
static int push_beside_calls(kin_choice *c, kin_str text, kin_err *err) {
    int rc = 0;
    for (size_t i = 0; i < text.len && rc == 0 && c->stop_word < 0; i++) {
        rc = parse_byte(c, text.at[i]);
        if (rc == 0 && c->stop_word < 0 && kin_reply_parser_is_in_call(c->parser))
            rc = parse_joined(c, kin_stop_words_flush(c->stop));
    }
    if (rc != 0 || c->joined_text.failed) return out_of_memory(err);
    give_joined(c);
    return 0;
}

// Returns the text before the first line with too little indentation.
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
    if (c->stop && c->parser) return push_beside_calls(c, text, err);
    if (c->stop && kin_stop_words_push(c->stop, text.at, text.len, &text, &c->stop_word) != 0) return out_of_memory(err);
    return parse(c, text, err);
}

// A control token prints nothing, unless it marks a call or reasoning.
static kin_str text_of(kin_choice *c, int32_t id) {
    kin_str piece = kin_detok_push(c->detok, id);
    if (piece.len > 0 || !c->parser || kin_vocab_type(c->vocab, id) != KIN_TOKEN_CONTROL) return piece;
    kin_str marker = kin_vocab_text(c->vocab, id);
    return kin_chat_format_has_token(c->format, marker) ? marker : piece;
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
    if (c->n_marker > 0 && !kin_choice_is_cut(c) && release_marker(c, c->n_marker) != 0) return out_of_memory(err);
    give_joined(c);
    if (c->stop && c->stop_word < 0 && parse(c, kin_stop_words_flush(c->stop), err) != 0) return KIN_FAIL;
    if (!c->parser) return 0;
    if (kin_reply_parser_flush(c->parser, is_cut, &events, &n) != 0) return out_of_memory(err);
    handle_choice_events(c, events, n);
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
