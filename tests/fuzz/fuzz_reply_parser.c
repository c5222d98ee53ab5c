// Parses any bytes as a model's reply, cut at any places: the events are the same, nothing is lost, and the arguments of a
// complete call are a JSON object.
//
// The input: one byte of format and options, one byte that seeds the cuts, the reply.
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "pure/chat/reply_parser.h"
#include "pure/text/json.h"
#include "pure/text/text_buffer.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static const char parameters[] =
    "{\"properties\":{\"s\":{\"type\":\"string\"},\"i\":{\"type\":\"integer\"},\"b\":{\"type\":\"boolean\"},"
    "\"a\":{\"anyOf\":[{\"type\":\"array\"},{\"$ref\":\"#\"}]}}}";

static const kin_reply_tool tools[] = {
    {.name = {"f", 1}, .parameters = {parameters, sizeof parameters - 1}},
    {.name = {"g", 1}},
};

typedef struct result {
    kin_text_buffer all;       // kinds and strings of all events; adjacent events of one kind are joined
    kin_text_buffer text;      // strings of TEXT and REASONING events
    kin_text_buffer arguments; // of the open call
    int last;
    bool has_calls, open;
} result;

static void check_arguments(result *r) {
    kin_json json;
    kin_err err;
    if (kin_json_parse(&json, r->arguments.at, r->arguments.len, &err) == 0) {
        kin_assert(json.values[0].kind == KIN_JSON_OBJECT);
        kin_json_fini(&json);
        return;
    }
    // The reply parser checks the syntax of RFC 8259; kin_json refuses more only in these points.
    kin_assert(strstr(err.text, "twice") || strstr(err.text, "UTF-") || strstr(err.text, "more than 4096") ||
               strstr(err.text, "too many"));
}

static void add(result *r, const kin_reply_event *events, int n) {
    for (int i = 0; i < n; i++) {
        const kin_reply_event *e = &events[i];
        bool is_text = e->kind == KIN_REPLY_TEXT || e->kind == KIN_REPLY_REASONING;
        kin_assert(e->text.len > 0 || e->kind == KIN_REPLY_TOOL_BEGIN || e->kind == KIN_REPLY_TOOL_END);
        if (r->last != (int)e->kind || e->kind == KIN_REPLY_TOOL_BEGIN || e->kind == KIN_REPLY_TOOL_END)
            kin_text_print(&r->all, "\n%d %d ", (int)e->kind, e->tool);
        kin_text_put(&r->all, e->text.at, e->text.len);
        kin_text_put(&r->all, e->name.at, e->name.len);
        kin_text_put(&r->all, e->id.at, e->id.len);
        if (is_text) kin_text_put(&r->text, e->text.at, e->text.len);
        if (e->kind == KIN_REPLY_TOOL_BEGIN) {
            r->open = r->has_calls = true;
            r->arguments.len = 0;
        }
        kin_assert(r->open || (e->kind != KIN_REPLY_TOOL_ARGUMENTS && e->kind != KIN_REPLY_TOOL_END));
        if (e->kind == KIN_REPLY_TOOL_ARGUMENTS) kin_text_put(&r->arguments, e->text.at, e->text.len);
        if (e->kind == KIN_REPLY_TOOL_END) check_arguments(r);
        if (is_text || e->kind == KIN_REPLY_TOOL_END) r->open = false;
        r->last = (int)e->kind;
    }
}

static void parse(result *r, const kin_reply_options *options, const char *at, size_t len, uint64_t seed) {
    kin_reply_parser *p;
    const kin_reply_event *events;
    int n;
    kin_rng rng;
    kin_rng_seed(&rng, seed);
    *r = (result){.last = -1};
    kin_assert(kin_reply_parser_new(&p, options, NULL) == 0);
    for (size_t begin = 0; begin < len;) {
        size_t step = seed == 0 ? len : seed == 1 ? 1 : 1 + kin_rng_u64(&rng) % 9;
        if (step > len - begin) step = len - begin;
        kin_assert(kin_reply_parser_push(p, at + begin, step, &events, &n) == 0);
        add(r, events, n);
        begin += step;
    }
    kin_assert(kin_reply_parser_flush(p, false, &events, &n) == 0);
    add(r, events, n);
    kin_reply_parser_free(p);
}

static void free_result(result *r) {
    kin_text_fini(&r->all);
    kin_text_fini(&r->text);
    kin_text_fini(&r->arguments);
}

// A reply without calls and reasoning comes out whole if its format has no marks around text; otherwise its text is a subsequence
// of the reply. White space may be dropped.
static void check_text(const result *r, const kin_reply_options *options, const char *at, size_t len) {
    size_t i = 0, k = 0;
    const kin_chat_format *f = options->format;
    bool has_marks = f->text_begin[0] || f->text_end[0] || f->turn_end[0] || f->syntax == KIN_CALL_CHANNELS;
    bool thinks = !options->reasoning_in_text && (options->reasoning || options->begins_in_reasoning);
    bool all = !r->has_calls && !thinks && !has_marks;
    if (all) kin_assert(r->text.len == len && (len == 0 || memcmp(r->text.at, at, len) == 0));
    for (; i < r->text.len; i++, k++) {
        if (kin_is_space(r->text.at[i])) {
            k--;
            continue;
        }
        while (k < len && at[k] != r->text.at[i]) k++;
        kin_assert(k < len);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    if (size < 2 || size > 1 << 16) return 0;
    const char *at = (const char *)bytes + 2;
    const kin_reply_options options = {
        .format = kin_chat_format_known((bytes[0] & 31) % KIN_CHAT_N_KNOWN),
        .tools = tools,
        .n_tools = 2,
        .reasoning = bytes[0] & 32,
        .begins_in_reasoning = bytes[0] & 64,
        .reasoning_in_text = bytes[0] & 128,
    };
    result whole, other;
    parse(&whole, &options, at, size - 2, 0);
    check_text(&whole, &options, at, size - 2);
    for (uint64_t seed = 1; seed <= 2; seed++) {
        parse(&other, &options, at, size - 2, seed == 1 ? 1 : 2 + bytes[1]);
        kin_assert(other.all.len == whole.all.len &&
                   (whole.all.len == 0 || memcmp(other.all.at, whole.all.at, whole.all.len) == 0));
        free_result(&other);
    }
    free_result(&whole);
    return 0;
}
