#include "pure/chat/tool_format.h"

#include <string.h>

#include "base/hash.h"
#include "pure/chat/derive.h"
#include "pure/chat/trial.h"
#include "pure/text/json.h"

static bool has(kin_str text, const char *word) {
    size_t n = strlen(word);
    for (size_t i = 0; i + n <= text.len; i++) {
        if (memcmp(text.at + i, word, n) == 0) return true;
    }
    return false;
}

// ---- known marks

// The formats that a text with these marks has; the first row wins.
static const struct {
    const char *marks[2];
    kin_chat_known format;
} signs[] = {
    {{"<|channel|>", "<|message|>"}, KIN_CHAT_HARMONY},
    {{"<atem:function_calls>", ""}, KIN_CHAT_MUSE},
    {{"[TOOL_CALLS]", "[ARGS]"}, KIN_CHAT_MISTRAL_LABELS},
    {{"[TOOL_CALLS]", ""}, KIN_CHAT_MISTRAL},
    {{"<|role_sep|>", "function call"}, KIN_CHAT_GIGACHAT},
    {{"<tool_call>", "<function="}, KIN_CHAT_XML},
    {{"<tool_call>", "<arg_key>"}, KIN_CHAT_GLM},
    {{"<|tool_call>", "call:"}, KIN_CHAT_GEMMA},
    {{"<tool_call>", "arguments"}, KIN_CHAT_HERMES},
    {{"\"parameters\": ", "ipython"}, KIN_CHAT_LLAMA},
    {{"<|tool_calls_section_begin|>", ""}, KIN_CHAT_KIMI},
    {{"<|open|>", "argument"}, KIN_CHAT_KIMI_3},
    {{"<minimax:tool_call>", ""}, KIN_CHAT_MINIMAX},
    {{"<seed:tool_call>", ""}, KIN_CHAT_SEED},
    {{"DSML", "function_calls"}, KIN_CHAT_DSML},
    {{"tool\xe2\x96\x81"
      "calls\xe2\x96\x81"
      "begin",
      "```json"},
     KIN_CHAT_DEEPSEEK},
    {{"tool\xe2\x96\x81"
      "calls\xe2\x96\x81"
      "begin",
      ""},
     KIN_CHAT_DEEPSEEK_31},
    {{"<|tool_call_start|>", ""}, KIN_CHAT_LFM},
    {{"<|START_ACTION|>", ""}, KIN_CHAT_COMMAND},
    {{"<|tools_prefix|>", ""}, KIN_CHAT_APERTUS},
    {{"<|tool_call|>", "<|/tool_call|>"}, KIN_CHAT_PHI},
    {{"<|tool|>", "<|/tool|>"}, KIN_CHAT_PHI}, // Phi-4-mini's template renders the tools but no calls
    {{"<|tool_call|>", ""}, KIN_CHAT_GRANITE},
    {{"<function_calls>", ""}, KIN_CHAT_OLMO},
    {{"<TOOLCALL>", ""}, KIN_CHAT_NEMOTRON},
    {{"functools[", ""}, KIN_CHAT_FIREFUNCTION},
};

static kin_chat_known format_of(kin_str text) {
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        if (has(text, signs[i].marks[0]) && has(text, signs[i].marks[1])) return signs[i].format;
    }
    return KIN_CHAT_PLAIN;
}

// Finds the marks of reasoning in the source of a template, which often leaves reasoning out of what it renders.
static kin_chat_format thinking_of(kin_str source) {
    static const struct {
        const char *sign, *begin, *end;
    } all[] = {
        {"assistant to=self<|message|>", "to=self<|message|>", "<|eom|><|start|>assistant"},
        {"<think:opensource>", "<think:opensource>", "</think:opensource>"},
        {"<seed:think>", "<seed:think>", "</seed:think>"},
        {"<mm:think>", "<mm:think>", "</mm:think>"},
        {"<|START_THINKING|>", "<|START_THINKING|>", "<|END_THINKING|>"},
        {"<|channel>", "<|channel>thought\n", "<channel|>"},
        {"<|inner_prefix|>", "<|inner_prefix|>", "<|inner_suffix|>"},
        {"<|channel|>analysis", "<|channel|>analysis<|message|>", "<|end|>"},
        {"[THINK]", "[THINK]", "[/THINK]"},
        {"<|open|>", "<|open|>think<|sep|>", "<|close|>think<|sep|>"},
        {"think>", "<think>", "</think>"},
    };
    kin_chat_format f = {.syntax = KIN_CALL_NONE};
    for (size_t i = 0; i < sizeof all / sizeof *all && !f.think_begin[0]; i++) {
        if (!has(source, all[i].sign)) continue;
        memcpy(f.think_begin, all[i].begin, strlen(all[i].begin));
        memcpy(f.think_end, all[i].end, strlen(all[i].end));
    }
    return f;
}

// The tag that ends at `end`, or begins at `begin`, apart from white space. Empty: there is none.
static kin_str tag_before(const char *begin, const char *end) {
    while (end > begin && kin_is_space(end[-1])) end--;
    const char *at = end;
    if (at > begin && (end[-1] == '>' || end[-1] == ']'))
        while (at > begin && *at != '<' && *at != '[') at--;
    return (kin_str){at, *at == '<' || *at == '[' ? (size_t)(end - at) : 0};
}

static kin_str tag_after(const char *begin) {
    while (kin_is_space(*begin)) begin++;
    size_t n = *begin == '<' || *begin == '[' ? strcspn(begin, ">]") : 0;
    return (kin_str){begin, n > 0 && begin[n] ? n + 1 : 0};
}

// Takes the tags around the reasoning of an answer. prompt: the question with the generation prompt, which must begin the answer
// too, because the model writes what follows it.
static void take_marks(const char *prompt, const char *text, kin_chat_format *f) {
    const char *thought = strstr(text, KIN_TRIAL_THOUGHT), *answer = thought ? strstr(thought, KIN_TRIAL_ANSWER) : NULL;
    size_t n = strlen(prompt);
    while (n > 0 && kin_is_space(prompt[n - 1])) n--;
    if (!answer || strncmp(text, prompt, n) != 0) return;
    kin_str begin = tag_before(text, thought), end = tag_after(thought + strlen(KIN_TRIAL_THOUGHT));
    bool is_open = begin.len > 0 && begin.at + begin.len == text + n; // the prompt ends with it
    if (begin.len == 0 || end.len == 0 || (begin.at < text + n && !is_open) || end.at + end.len > answer) return;
    if (begin.len >= sizeof f->think_begin || end.len >= sizeof f->think_end) return;
    memcpy(f->think_begin, begin.at, begin.len);
    memcpy(f->think_end, end.at, end.len);
}

// Derives marks of reasoning that no table lists from what the template renders.
static int derive_thinking(const kin_jinja *jinja, kin_chat_format *f) {
    kin_text_buffer prompt = {0}, text = {0};
    bool has_prompt, has_text = false;
    int rc = kin_trial_render(jinja, &(kin_trial){.is_open = true}, &prompt, &has_prompt);
    if (rc == 0) rc = kin_trial_render(jinja, &(kin_trial){.has_answer = true, .reasoning = KIN_TRIAL_THOUGHT}, &text, &has_text);
    kin_text_put(&prompt, "", 1);
    kin_text_put(&text, "", 1);
    if (prompt.failed || text.failed) rc = KIN_FAIL;
    if (rc == 0 && has_prompt && has_text) take_marks(prompt.at, text.at, f);
    kin_text_fini(&prompt);
    kin_text_fini(&text);
    return rc;
}

// ---- the format

typedef struct search {
    const kin_jinja *jinja;
    kin_str source;
    kin_tool_format *out;
    kin_chat_known marked; // the format whose marks a rendered call has
} search;

// Determines whether the template renders the conversation, including `word`.
static int try(search *s, kin_trial t, const char *word, bool *renders) {
    kin_text_buffer text = {0};
    t.is_open = true;
    int rc = kin_trial_render(s->jinja, &t, &text, renders);
    *renders = *renders && has(kin_text_str(&text), word);
    if (*renders && t.n_calls > 0 && s->marked == KIN_CHAT_PLAIN) s->marked = format_of(kin_text_str(&text));
    kin_text_fini(&text);
    return rc;
}

static void use(search *s, kin_chat_known which, const kin_chat_format *think) {
    s->out->chat = *kin_chat_format_known(which);
    memcpy(s->out->chat.think_begin, think->think_begin, sizeof think->think_begin);
    memcpy(s->out->chat.think_end, think->think_end, sizeof think->think_end);
}

// Determines the format of the calls, if the template is told the tools.
static int find_calls(search *s, const kin_chat_format *think) {
    kin_chat_derived derived;
    if (kin_chat_derive(s->jinja, think, &derived) != 0) return KIN_FAIL;
    s->out->is_confirmed = derived.is_certain;
    if (derived.is_certain) {
        s->out->one_call = derived.one_call;
        s->out->chat = derived.format;
        s->out->arguments_are_text = derived.arguments_are_text;
        s->out->content_is_null = derived.content_is_null;
        return 0;
    }
    kin_chat_known which = s->marked != KIN_CHAT_PLAIN ? s->marked : format_of(s->source);
    bool reads;
    use(s, which, think);
    if (kin_chat_reads_calls(s->jinja, &s->out->chat, &reads) != 0) return KIN_FAIL;
    s->out->is_generic = which == KIN_CHAT_PLAIN || !reads;
    if (s->out->is_generic) use(s, KIN_CHAT_HERMES, think);
    return 0;
}

int kin_tool_format_of(kin_tool_format *out, const kin_jinja *jinja, const char *source, size_t len, kin_err *err) {
    static const char nine[] = "abcdef123", other[] = "call_abcdef123";
    static const kin_trial_call calls[] = {{0, "{\"kin_key\": \"b\"}"}, {0, "{\"kin_key\": \"b\"}"}};
    const kin_trial one_call = {.has_tools = true, .has_results = true, .calls = calls, .n_calls = 1, .id = nine};
    kin_trial two_calls = one_call, any_call = one_call;
    search s = {.jinja = jinja, .source = {source, len}, .out = out};
    kin_chat_format think = thinking_of(s.source);
    bool shows_tools = false, one = false, two = false, any_id = false;
    *out = (kin_tool_format){.is_generic = true};
    two_calls.n_calls = 2;
    any_call.id = other;
    int rc = think.think_begin[0] ? 0 : derive_thinking(jinja, &think);
    if (rc == 0) rc = try(&s, (kin_trial){.has_system = true}, KIN_TRIAL_SYSTEM, &out->accepts_system);
    if (rc == 0) rc = try(&s, (kin_trial){.has_tools = true}, KIN_TRIAL_TOOL, &shows_tools);
    if (rc == 0) rc = try(&s, one_call, "", &one);
    if (rc == 0) rc = try(&s, two_calls, "", &two);
    if (rc == 0) rc = try(&s, any_call, "", &any_id);
    use(&s, KIN_CHAT_HERMES, &think);
    out->is_generic = !shows_tools;
    if (rc == 0 && shows_tools) rc = find_calls(&s, &think);
    if (rc != 0) return kin_err_set(err, "chat template: out of memory");
    out->one_call = out->one_call || (!out->is_generic && one && !two);
    out->n_call_id = !out->is_generic && one && !any_id ? (int)strlen(nine) : 0;
    return 0;
}

static bool ends_with(kin_str text, const char *end) {
    size_t n = strlen(end);
    return text.len >= n && memcmp(text.at + text.len - n, end, n) == 0;
}

kin_reply_thinking kin_reply_thinking_of(const kin_tool_format *format, kin_str prompt) {
    while (prompt.len > 0 && memchr(" \n\r\t", prompt.at[prompt.len - 1], 4)) prompt.len--;
    if (!kin_chat_format_thinks(&format->chat)) return KIN_THINKING_NONE;
    if (ends_with(prompt, format->chat.think_begin)) return KIN_THINKING_BEGUN;
    if (ends_with(prompt, format->chat.think_end)) return KIN_THINKING_NONE;
    return KIN_THINKING_MAY_BEGIN;
}

// ---- call ids

static bool is_alphanumeric(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

void kin_tool_format_put_id(const kin_tool_format *format, kin_str id, kin_text_buffer *out) {
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    bool fits = format->n_call_id == 0 || id.len == (size_t)format->n_call_id;
    for (size_t i = 0; format->n_call_id > 0 && i < id.len; i++) fits = fits && is_alphanumeric(id.at[i]);
    uint64_t hash = fits ? 0 : kin_hash64(id.at, id.len, 0);
    for (int i = 0; i < format->n_call_id && !fits; i++, hash /= sizeof letters - 1)
        kin_text_put(out, &letters[hash % (sizeof letters - 1)], 1);
    if (fits) kin_text_put(out, id.at, id.len);
}

// ---- the generic form

static void put_text(kin_text_buffer *out, const char *at) {
    kin_text_put(out, at, strlen(at));
}

void kin_tool_format_put_instructions(const kin_str *tools, size_t n, kin_text_buffer *out) {
    put_text(out, "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
                  "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n");
    for (size_t i = 0; i < n; i++) {
        kin_text_put(out, tools[i].at, tools[i].len);
        put_text(out, "\n");
    }
    put_text(out, "</tools>\n\nFor each function call, write a JSON object with the function's name and arguments within "
                  "<tool_call></tool_call> XML tags, and nothing after it:\n"
                  "<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>\n\n"
                  "The results come within <tool_response></tool_response> XML tags.");
}

void kin_tool_format_put_call(kin_str name, kin_str arguments, kin_text_buffer *out) {
    put_text(out, out->len > 0 ? "\n<tool_call>\n{\"name\": " : "<tool_call>\n{\"name\": ");
    kin_json_write_string(name, out);
    put_text(out, ", \"arguments\": ");
    kin_text_put(out, arguments.at, arguments.len);
    put_text(out, "}\n</tool_call>");
}

void kin_tool_format_put_result(kin_str text, kin_text_buffer *out) {
    put_text(out, "<tool_response>\n");
    kin_text_put(out, text.at, text.len);
    put_text(out, "\n</tool_response>");
}
