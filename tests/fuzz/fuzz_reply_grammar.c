// Makes a grammar of any tool in any format; the result is a grammar or an error sentence. The reply parser reads the output of a
// random walk through the grammar as calls of that tool.
//
// The input: one byte of format and options, the tool's name up to a newline, the tool's schema.
#include <string.h>

#include "base/rng.h"
#include "pure/chat/reply_grammar.h"
#include "pure/chat/reply_parser.h"
#include "pure/grammar/matcher.h"
#include "pure/text/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

enum { MAX_BYTES = 300 };

typedef struct count {
    int n_calls, n_ended, n_texts;
} count;

static void add(count *c, const kin_reply_event *events, int n, const kin_reply_tool *tool) {
    for (int i = 0; i < n; i++) {
        const kin_reply_event *e = &events[i];
        c->n_texts += e->kind == KIN_REPLY_TEXT;
        c->n_calls += e->kind == KIN_REPLY_TOOL_BEGIN;
        c->n_ended += e->kind == KIN_REPLY_TOOL_END;
        if (e->kind == KIN_REPLY_TOOL_BEGIN)
            kin_assert(e->name.len == tool->name.len && memcmp(e->name.at, tool->name.at, e->name.len) == 0);
    }
}

static count read_reply(const kin_reply_rules *rules, const char *at, size_t len) {
    const kin_reply_options options = {.format = rules->format,
                                       .tools = rules->tools,
                                       .n_tools = rules->n_tools,
                                       .reasoning = rules->thinking == KIN_THINKING_MAY_BEGIN,
                                       .begins_in_reasoning = rules->thinking == KIN_THINKING_BEGUN};
    kin_reply_parser *p;
    const kin_reply_event *events;
    int n;
    count c = {0};
    kin_assert(kin_reply_parser_new(&p, &options, NULL) == 0);
    kin_assert(kin_reply_parser_push(p, at, len, &events, &n) == 0);
    add(&c, events, n, rules->tools);
    kin_assert(kin_reply_parser_flush(p, false, &events, &n) == 0);
    add(&c, events, n, rules->tools);
    kin_reply_parser_free(p);
    return c;
}

// Appends random allowed bytes, often ones that close a structure, until the reply ends or MAX_BYTES are written.
static void walk(kin_matcher *m, const kin_reply_rules *rules, uint64_t seed) {
    kin_place place = {0};
    kin_rng rng;
    char text[MAX_BYTES];
    size_t n = 0;
    kin_rng_seed(&rng, seed);
    kin_assert(kin_matcher_begin(m, &place) == 0);
    while (n < MAX_BYTES && kin_place_may_go_on(&place)) {
        static const char favourites[] = "\"<}]/>,:{";
        bool allowed = false;
        uint64_t r = kin_rng_u64(&rng);
        if (kin_place_may_end(&place) && r % 4 == 0) break;
        if (r % 3 == 0) {
            text[n] = favourites[(r >> 8) % (sizeof favourites - 1)];
            kin_assert(kin_matcher_accept_bytes(m, &place, text + n, 1, &allowed) == 0);
        }
        for (int i = 0; i < 256 && !allowed; i++) {
            text[n] = (char)((r >> 16) % 96 + 32 + (uint64_t)i);
            kin_assert(kin_matcher_accept_bytes(m, &place, text + n, 1, &allowed) == 0);
        }
        kin_assert(allowed || kin_place_may_end(&place)); // no dead end
        n += allowed;
        if (!allowed) break;
    }
    count c = read_reply(rules, text, n);
    if (kin_place_may_end(&place)) {
        kin_assert(c.n_ended == c.n_calls);
        kin_assert(!rules->required || (c.n_calls > 0 && c.n_texts == 0));
    }
    kin_place_fini(&place);
}

static bool is_utf8(kin_str text) {
    for (size_t at = 0; at < text.len;) {
        int len = kin_utf8_len(text.at + at, text.len - at);
        if (len <= 0) return false;
        at += (size_t)len;
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    const uint8_t *line = size > 1 ? memchr(bytes + 1, '\n', size - 1) : NULL;
    if (!line || size > 2048) return 0;
    const kin_reply_tool tool = {.name = {(const char *)bytes + 1, (size_t)(line - bytes - 1)},
                                 .parameters = {(const char *)line + 1, size - (size_t)(line + 1 - bytes)},
                                 .strict = bytes[0] & 128};
    kin_reply_rules rules = {.format = kin_chat_format_known(KIN_CHAT_HERMES + bytes[0] % (KIN_CHAT_N_KNOWN - 1)),
                             .thinking = (bytes[0] >> 3 & 3) % 3,
                             .tools = &tool,
                             .n_tools = 1,
                             .required = bytes[0] & 32,
                             .parallel = bytes[0] & 64};
    kin_grammar *grammar;
    kin_err err = {""};
    if (!is_utf8(tool.name)) return 0;
    if (kin_reply_grammar_new(&grammar, &rules, NULL, &err) == 0) {
        kin_matcher *m;
        kin_assert(kin_matcher_new(&m, grammar, NULL, NULL) == 0);
        for (uint64_t seed = 0; seed < 2; seed++) walk(m, &rules, size + seed);
        kin_matcher_free(m);
        kin_grammar_free(grammar);
    } else {
        kin_assert(strlen(err.text) > 0);
    }
    return 0;
}
