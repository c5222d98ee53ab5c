#include "serve/prompt.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "model/chat_template.h"
#include "pure/jinja/jinja.h"
#include "pure/tokenizer/detok.h"
#include "serve/history.h"
#include "serve/request/request_chat.h"

// For models without a template: concatenates the messages.
static const char plain_template[] = "{% for m in messages %}{{ m.content }}\n{% endfor %}";
static const char chatml_template[] = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
                                      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

struct kin_prompter {
    const kin_session *session;
    kin_jinja *chat, *tool_use; // tool_use: for requests with tools; NULL: use chat
    kin_str source;
    bool has_source;  // the model's own, or the caller's
    kin_err bad_chat; // why `chat` is NULL: the model's template does not compile
    bool accepts_parts, accepts_objects, accepts_thinking;
    bool accepts_later_system; // system messages anywhere, and several
    kin_tool_format format;
};

// ---- JSON to values

static kin_value *value_of(kin_values *v, const json_t *j);

static kin_value *list_of(kin_values *v, const json_t *j) {
    kin_value *list = kin_value_list(v);
    for (size_t i = 0; i < json_array_size(j); i++) kin_value_append(v, list, value_of(v, json_array_get(j, i)));
    return list;
}

static kin_value *dict_of(kin_values *v, const json_t *j) {
    kin_value *dict = kin_value_dict(v);
    const char *key;
    json_t *item;
    json_object_foreach((json_t *)j, key, item) kin_value_put(v, dict, key, strlen(key), value_of(v, item));
    return dict;
}

static kin_value *value_of(kin_values *v, const json_t *j) {
    switch (json_typeof(j)) {
    case JSON_OBJECT: return dict_of(v, j);
    case JSON_ARRAY: return list_of(v, j);
    case JSON_STRING: return kin_value_string(v, json_string_value(j), json_string_length(j), KIN_ORIGIN_INPUT);
    case JSON_INTEGER: return kin_value_int(v, json_integer_value(j));
    case JSON_REAL: return kin_value_float(v, json_real_value(j));
    case JSON_TRUE: return kin_value_bool(v, true);
    case JSON_FALSE: return kin_value_bool(v, false);
    case JSON_NULL: break;
    }
    return kin_value_none(v);
}

// Roles that the APIs define are trusted: some templates turn them into control tokens. Everything else is input.
static kin_value *messages_of(kin_values *v, const json_t *messages) {
    kin_value *list = kin_value_list(v);
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i);
        const json_t *role = json_object_get(message, "role");
        kin_value *dict = dict_of(v, message);
        if (kin_request_knows_role(role))
            kin_value_put(v, dict, "role", 4,
                          kin_value_string(v, json_string_value(role), json_string_length(role), KIN_ORIGIN_TEMPLATE));
        kin_value_append(v, list, dict);
    }
    return list;
}

// ---- messages in the form that the template expects

static json_t *as_parts(const json_t *content) {
    return json_pack("[{s:s, s:O}]", "type", "text", "text", content);
}

// Parses arguments, which arrive as a string of JSON: most templates expect the object.
static void open_arguments(json_t *message) {
    size_t i;
    json_t *call;
    json_array_foreach(json_object_get(message, "tool_calls"), i, call) {
        json_t *function = json_object_get(call, "function"), *text = json_object_get(function, "arguments");
        if (!json_is_string(text)) continue;
        json_t *object = json_loadb(json_string_value(text), json_string_length(text), JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        if (object) json_object_set_new(function, "arguments", object);
    }
}

// ---- tools as text, for templates without tools

static kin_str string_of(const json_t *j) {
    return json_is_string(j) ? (kin_str){json_string_value(j), json_string_length(j)} : (kin_str){"", 0};
}

static void set_text(json_t *message, const kin_text_buffer *text) {
    json_object_set_new(message, "content", json_stringn(text->at ? text->at : "", text->len));
}

static void append_content(json_t *message, const kin_text_buffer *text) {
    kin_str before = string_of(json_object_get(message, "content"));
    kin_text_buffer all = {0};
    kin_text_put(&all, before.at, before.len);
    if (before.len > 0) kin_text_put(&all, "\n\n", 2);
    kin_text_put(&all, text->at ? text->at : "", text->len);
    set_text(message, &all);
    kin_text_fini(&all);
}

static void write_calls(json_t *message) {
    kin_text_buffer text = {0};
    size_t i;
    json_t *call;
    json_array_foreach(json_object_get(message, "tool_calls"), i, call) {
        const json_t *function = json_object_get(call, "function");
        kin_tool_format_put_call(string_of(json_object_get(function, "name")), string_of(json_object_get(function, "arguments")),
                                 &text);
    }
    if (text.len > 0) append_content(message, &text);
    json_object_del(message, "tool_calls");
    kin_text_fini(&text);
}

static void write_result(json_t *message) {
    kin_text_buffer text = {0};
    kin_tool_format_put_result(string_of(json_object_get(message, "content")), &text);
    json_object_set_new(message, "role", json_string("user"));
    set_text(message, &text);
    kin_text_fini(&text);
}

static bool is_by(const json_t *message, const char *role) {
    const char *by = json_string_value(json_object_get(message, "role"));
    return by && strcmp(by, role) == 0;
}

static void write_instructions(json_t *messages, const json_t *tools) {
    kin_text_buffer text = {0};
    size_t n = json_array_size(tools), n_written = 0;
    kin_str *each = calloc(n + 1, sizeof *each);
    for (size_t i = 0; i < n && each; i++) {
        char *json = json_dumps(json_array_get(tools, i), JSON_COMPACT);
        if (json) each[n_written++] = (kin_str){json, strlen(json)};
    }
    if (each) kin_tool_format_put_instructions(each, n_written, &text);
    if (!is_by(json_array_get(messages, 0), "system"))
        json_array_insert_new(messages, 0, json_pack("{s:s, s:s}", "role", "system", "content", ""));
    append_content(json_array_get(messages, 0), &text);
    while (n_written > 0) free((char *)each[--n_written].at);
    free(each);
    kin_text_fini(&text);
}

static void write_tools_as_text(json_t *messages, const json_t *tools) {
    size_t i;
    json_t *message;
    json_array_foreach(messages, i, message) {
        if (json_object_get(message, "tool_calls")) write_calls(message);
        if (is_by(message, "tool")) write_result(message);
    }
    if (tools) write_instructions(messages, tools);
}

// Where a template takes calls only without content, empty content is none; where it calls the reasoning `thinking`, that is a
// copy of it. gpt-oss's template refuses reasoning beside text in a message with calls.
static void fit_reply(const kin_prompter *p, json_t *message) {
    bool has_calls = json_object_get(message, "tool_calls"), has_text = string_of(json_object_get(message, "content")).len > 0;
    json_t *reasoning = json_object_get(message, "reasoning_content");
    if (has_calls && !has_text && p->format.content_is_null) json_object_set_new(message, "content", json_null());
    if (reasoning && p->accepts_thinking && !(has_calls && has_text)) json_object_set(message, "thinking", reasoning);
}

static json_t *adapt(const kin_prompter *p, const json_t *messages, const json_t *tools) {
    json_t *copy = json_deep_copy(messages), *message;
    size_t i;
    if (copy && !p->accepts_later_system) kin_history_merge_later_system(copy);
    if (copy && p->format.is_generic) write_tools_as_text(copy, tools);
    if (copy && !p->format.accepts_system && !p->accepts_parts) kin_history_merge_system(copy);
    if (copy) kin_history_fit_ids(copy, &p->format);
    json_array_foreach(copy, i, message) {
        json_t *content = json_object_get(message, "content");
        fit_reply(p, message);
        if (p->accepts_objects) open_arguments(message);
        if (p->accepts_parts && json_is_string(content)) json_object_set_new(message, "content", as_parts(content));
    }
    return copy;
}

// ---- rendering

static void put_item(kin_values *v, kin_value *dict, const char *key, kin_value *item) {
    kin_value_put(v, dict, key, strlen(key), item);
}

static kin_value *token_text(kin_values *v, const kin_vocab *vocab, int32_t id) {
    kin_str text = id == KIN_TOKEN_NONE ? (kin_str){"", 0} : kin_vocab_text(vocab, id);
    return kin_value_string(v, text.at, text.len, KIN_ORIGIN_TEMPLATE);
}

typedef struct chat {
    const json_t *messages, *tools, *kwargs;
    bool add_generation_prompt;
    bool leaves_out_none; // absent tools and documents are undefined instead of none
    kin_tristate thinking;
    int thinking_budget; // tokens; -1: none
} chat;

typedef struct dates {
    char day[64], second[64];
} dates;

// Sets the date for templates without strftime_now: Llama 3.1's, which otherwise says 26 Jul 2024, and Functionary's. The values
// point into `d`.
static void put_dates(kin_values *v, kin_value *all, dates *d) {
    time_t now = time(NULL);
    struct tm tm;
    if (localtime_r(&now, &tm)) {
        size_t len = strftime(d->day, sizeof d->day, "%d %b %Y", &tm);
        put_item(v, all, "date_string", kin_value_string(v, d->day, len, KIN_ORIGIN_TEMPLATE));
    }
    if (gmtime_r(&now, &tm)) {
        size_t len = strftime(d->second, sizeof d->second, "%b %d %Y %H:%M:%S GMT", &tm);
        put_item(v, all, "datetime", kin_value_string(v, d->second, len, KIN_ORIGIN_TEMPLATE));
    }
}

static kin_value *variables_of(const kin_prompter *p, kin_values *v, const chat *c, dates *d) {
    const kin_vocab *vocab = p->session->vocab;
    kin_value *all = kin_value_dict(v);
    const char *key;
    json_t *item;
    put_item(v, all, "messages", messages_of(v, c->messages));
    if (c->tools || !c->leaves_out_none) put_item(v, all, "tools", c->tools ? value_of(v, c->tools) : kin_value_none(v));
    if (!c->leaves_out_none) put_item(v, all, "documents", kin_value_none(v));
    put_dates(v, all, d);
    put_item(v, all, "add_generation_prompt", kin_value_bool(v, c->add_generation_prompt));
    put_item(v, all, "bos_token", token_text(v, vocab, kin_vocab_bos(vocab)));
    put_item(v, all, "eos_token", token_text(v, vocab, kin_vocab_eos(vocab)));
    if (c->thinking != KIN_UNSET) {
        put_item(v, all, "enable_thinking", kin_value_bool(v, c->thinking == KIN_YES)); // Qwen, GLM, gemma 4
        put_item(v, all, "thinking", kin_value_bool(v, c->thinking == KIN_YES));        // DeepSeek V3.1, Granite, Kimi K3
    }
    if (c->thinking_budget >= 0) put_item(v, all, "thinking_budget", kin_value_int(v, c->thinking_budget)); // Seed-OSS
    json_object_foreach((json_t *)c->kwargs, key, item) put_item(v, all, key, value_of(v, item));
    return all;
}

static int64_t local_seconds(void) {
    time_t now = time(NULL);
    struct tm tm;
    return localtime_r(&now, &tm) ? (int64_t)now + tm.tm_gmtoff : (int64_t)now;
}

// Returns room for at least n elements: a power of two, so that a list that grows one element at a time is seldom copied.
static size_t room_for(size_t n) {
    size_t room = 16;
    while (room < n) room *= 2;
    return room;
}

// Makes room for n_more elements after the existing n. NULL: out of memory; `at` stays valid.
static void *grow(void *at, size_t n, size_t n_more, size_t element_bytes) {
    size_t room = room_for(n + n_more);
    return at && room == room_for(n) ? at : realloc(at, room * element_bytes);
}

static int add_run(kin_prompt *out, size_t begin, size_t end) {
    kin_text_range *larger = grow(out->trusted, out->n_trusted, 1, sizeof *larger);
    if (!larger) return KIN_FAIL;
    out->trusted = larger;
    out->trusted[out->n_trusted++] = (kin_text_range){begin, end};
    return 0;
}

static int render_once(const kin_prompter *p, const chat *c, kin_prompt *out, kin_err *err) {
    size_t bytes = json_dumpb(c->messages, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY);
    bytes += c->tools ? json_dumpb(c->tools, NULL, 0, JSON_COMPACT) : 0;
    const kin_jinja *jinja = c->tools && p->tool_use ? p->tool_use : p->chat;
    if (!jinja) return kin_err_set(err, "%s", p->bad_chat.text);
    kin_values *v = kin_values_new(8 * bytes + (4 << 20));
    if (!v) return kin_err_set(err, "out of memory");
    kin_jinja_text text;
    dates d;
    int rc = kin_jinja_render(jinja, v, variables_of(p, v, c, &d), local_seconds(), &text, err);
    *out = (kin_prompt){0};
    if (rc == 0) {
        kin_text_put(&out->text, text.at, text.len);
        for (size_t i = 0; i < text.n_runs && rc == 0; i++) {
            const kin_jinja_run *run = &text.runs[i];
            if (run->origin == KIN_ORIGIN_TEMPLATE && add_run(out, run->begin, run->end) != 0)
                rc = kin_err_set(err, "out of memory");
        }
        if (out->text.failed) rc = kin_err_set(err, "out of memory");
    }
    kin_values_free(v);
    if (rc != 0) kin_prompt_fini(out);
    return rc;
}

// Transformers sets absent tools and documents to none; templates that loop over them without a check (Hermes 2 Pro, Command R+)
// were written for programs that leave them undefined.
static int render(const kin_prompter *p, const chat *c, kin_prompt *out, kin_err *err) {
    chat without = *c;
    without.leaves_out_none = true;
    int rc = render_once(p, c, out, err);
    return rc == 0 ? 0 : render_once(p, &without, out, NULL);
}

void kin_prompt_fini(kin_prompt *prompt) {
    kin_text_fini(&prompt->text);
    free(prompt->trusted);
    *prompt = (kin_prompt){0};
}

// Cuts the prompt after the last occurrence of a text. Returns false if there is none.
static bool cut_after(kin_prompt *prompt, const char *text, size_t len) {
    for (size_t at = prompt->text.len; at >= len && len > 0; at--) {
        if (memcmp(prompt->text.at + at - len, text, len) != 0) continue;
        prompt->text.len = at;
        return true;
    }
    return false;
}

// Ends the prompt of a chat to be continued where the last message's text ends.
static void cut_after_last(kin_prompt *prompt, const json_t *messages) {
    const json_t *content = json_object_get(json_array_get(messages, json_array_size(messages) - 1), "content");
    size_t len = json_string_length(content), n_trimmed = len;
    const char *text = json_string_value(content);
    while (n_trimmed > 0 && strchr(" \t\r\n", text[n_trimmed - 1])) n_trimmed--; // some templates trim it
    if (!cut_after(prompt, text, len) && !cut_after(prompt, text, n_trimmed)) return;
    while (prompt->n_trusted > 0 && prompt->trusted[prompt->n_trusted - 1].begin >= prompt->text.len) prompt->n_trusted--;
    if (prompt->n_trusted > 0 && prompt->trusted[prompt->n_trusted - 1].end > prompt->text.len)
        prompt->trusted[prompt->n_trusted - 1].end = prompt->text.len;
}

int kin_prompter_render(const kin_prompter *p, const kin_request *r, kin_prompt *out, kin_api_error *err) {
    const json_t *tools = r->tools && r->tool_choice != KIN_TOOLS_NONE ? r->tools : NULL;
    if (!p->chat && (!tools || p->format.is_generic)) return kin_api_error_set(err, 501, NULL, "%s", p->bad_chat.text);
    json_t *messages = adapt(p, r->messages, tools);
    chat c = {.messages = messages,
              .tools = p->format.is_generic ? NULL : tools,
              .kwargs = r->template_kwargs,
              .add_generation_prompt = r->add_generation_prompt && !r->continues_last,
              .thinking = r->thinking,
              .thinking_budget = r->thinking_budget};
    kin_err why;
    int rc = messages ? render(p, &c, out, &why) : kin_err_set(&why, "out of memory");
    if (rc == 0 && r->continues_last) cut_after_last(out, r->messages);
    json_decref(messages);
    return rc == 0 ? 0 : kin_api_error_set(err, 400, "messages", "the chat template rejects these messages: %s", why.text);
}

// ---- tokens

static int set_out_of_memory(kin_api_error *err) {
    return kin_api_error_set(err, 500, NULL, "out of memory");
}

static int encode(const kin_prompter *p, kin_str text, const kin_text_range *trusted, size_t n_trusted, bool add_special,
                  int32_t **ids, int *n, kin_api_error *err) {
    kin_err why = p->session->vocab_err;
    *ids = NULL;
    if (!p->session->tokenizer) return kin_api_error_set(err, 500, NULL, "%s", why.text);
    size_t cap = text.len + 8; // a token has at least one byte of text, except bos, eos and a leading space
    *ids = malloc(cap * sizeof **ids);
    if (!*ids) return set_out_of_memory(err);
    int64_t got =
        kin_tokenizer_encode_prompt(p->session->tokenizer, text.at, text.len, trusted, n_trusted, add_special, *ids, cap, &why);
    if (got >= 0 && (size_t)got <= cap && got < 1 << 30) {
        *n = (int)got;
        return 0;
    }
    free(*ids);
    *ids = NULL;
    return kin_api_error_set(err, 400, NULL, "%s", got < 0 ? why.text : "the text is too long");
}

// Does not add the token that begins texts if the template has written it.
int kin_prompter_encode(const kin_prompter *p, const kin_prompt *prompt, int32_t **ids, int *n, kin_api_error *err) {
    const kin_vocab *vocab = p->session->vocab;
    int32_t bos = kin_vocab_bos(vocab);
    kin_str first = bos == KIN_TOKEN_NONE ? (kin_str){"", 0} : kin_vocab_text(vocab, bos);
    kin_str text = {prompt->text.at ? prompt->text.at : "", prompt->text.len};
    bool is_trusted = prompt->n_trusted > 0 && prompt->trusted[0].begin == 0 && prompt->trusted[0].end >= first.len;
    bool has_bos = first.len > 0 && is_trusted && memcmp(text.at, first.at, first.len) == 0;
    return encode(p, text, prompt->trusted, prompt->n_trusted, !has_bos, ids, n, err);
}

static int append(int32_t **ids, int *n, const int32_t *more, int n_more) {
    int32_t *larger = grow(*ids, (size_t)*n, (size_t)n_more, sizeof *larger);
    if (!larger) return KIN_FAIL;
    memcpy(larger + *n, more, (size_t)n_more * sizeof *more);
    *ids = larger;
    *n += n_more;
    return 0;
}

static int encode_item(const kin_prompter *p, const json_t *item, bool add_special, bool parse_special, int32_t **ids, int *n,
                       kin_api_error *err) {
    if (json_is_integer(item)) {
        json_int_t id = json_integer_value(item);
        int n_tokens = kin_vocab_n_tokens(p->session->vocab);
        if (id < 0 || id >= n_tokens)
            return kin_api_error_set(err, 400, NULL, "token %lld: ids are from 0 to %d", (long long)id, n_tokens - 1);
        return append(ids, n, &(int32_t){(int32_t)id}, 1) == 0 ? 0 : set_out_of_memory(err);
    }
    kin_str text = {json_string_value(item), json_string_length(item)};
    const kin_text_range all = {0, text.len};
    int32_t *more = NULL;
    int n_more = 0;
    if (encode(p, text, &all, parse_special, add_special, &more, &n_more, err) != 0) return KIN_FAIL;
    int rc = append(ids, n, more, n_more) == 0 ? 0 : set_out_of_memory(err);
    free(more);
    return rc;
}

int kin_prompter_encode_json(const kin_prompter *p, const json_t *from, bool add_special, bool parse_special, int32_t **ids,
                             int *n, kin_api_error *err) {
    *ids = NULL;
    *n = 0;
    if (json_is_string(from)) return encode_item(p, from, add_special, parse_special, ids, n, err);
    for (size_t i = 0; i < json_array_size(from); i++) {
        if (encode_item(p, json_array_get(from, i), add_special && i == 0, parse_special, ids, n, err) == 0) continue;
        free(*ids);
        *ids = NULL;
        return KIN_FAIL;
    }
    return 0;
}

int kin_prompter_text(const kin_prompter *p, const int32_t *ids, int n, bool special, kin_text_buffer *out, kin_err *err) {
    kin_detok *detok;
    if (kin_detok_new(&detok, p->session->vocab, KIN_DETOK_REPLACE | (special ? KIN_DETOK_SPECIAL : 0), err) != 0)
        return KIN_FAIL;
    for (int i = 0; i < n; i++) {
        kin_str piece = kin_detok_push(detok, ids[i]);
        kin_text_put(out, piece.at, piece.len);
    }
    kin_str rest = kin_detok_flush(detok);
    kin_text_put(out, rest.at, rest.len);
    kin_detok_free(detok);
    return out->failed ? kin_err_set(err, "out of memory") : 0;
}

// ---- what the template can do

// True if the template accepts the messages (JSON) and then writes `sign`, unless that is NULL.
static bool shows(const kin_prompter *p, const char *messages, const char *tools, const char *sign) {
    json_t *m = json_loads(messages, 0, NULL), *t = tools ? json_loads(tools, 0, NULL) : NULL;
    chat c = {.messages = m, .tools = t, .add_generation_prompt = true, .thinking = KIN_UNSET, .thinking_budget = -1};
    kin_prompt prompt = {0};
    kin_err err;
    bool ok = render(p, &c, &prompt, &err) == 0;
    if (ok && sign) ok = memmem(prompt.text.at ? prompt.text.at : "", prompt.text.len, sign, strlen(sign)) != NULL;
    kin_prompt_fini(&prompt);
    json_decref(m);
    json_decref(t);
    return ok;
}

#define USER "{\"role\":\"user\",\"content\":\"kin-user\"}"
#define CALL(arguments)                                                                                                          \
    "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"abcdefghi\",\"type\":\"function\",\"function\":"         \
    "{\"name\":\"kin_tool\",\"arguments\":" arguments "}}]}"
#define TOOL                                                                                                                     \
    "[{\"type\":\"function\",\"function\":{\"name\":\"kin_tool\",\"description\":\"d\",\"parameters\":{\"type\":\"object\","     \
    "\"properties\":{\"kin_a\":{\"type\":\"string\",\"description\":\"x\"}}}}}]"

// Whether each of three system messages is rendered: two at the beginning, one later.
static bool shows_later_system(const kin_prompter *p) {
#define SYSTEM(content) "{\"role\":\"system\",\"content\":" content "}"
#define PARTS(text) "[{\"type\":\"text\",\"text\":\"" text "\"}]"
#define CHAT(one, two, later)                                                                                                    \
    "[" SYSTEM(one) "," SYSTEM(two) "," USER ",{\"role\":\"assistant\",\"content\":\"kin-answer\"}," SYSTEM(later) "," USER "]"
    static const char text[] = CHAT("\"kin-one\"", "\"kin-two\"", "\"kin-later\"");
    static const char parts[] = CHAT(PARTS("kin-one"), PARTS("kin-two"), PARTS("kin-later"));
    const char *chat = p->accepts_parts ? parts : text;
    return shows(p, chat, NULL, "kin-one") && shows(p, chat, NULL, "kin-two") && shows(p, chat, NULL, "kin-later");
#undef CHAT
#undef PARTS
#undef SYSTEM
}

static bool has_word(kin_str text, const char *word) {
    return text.at && memmem(text.at, text.len, word, strlen(word)) != NULL;
}

static void probe(kin_prompter *p) {
    p->accepts_parts =
        !shows(p, "[" USER "]", NULL, "kin-user") &&
        shows(p, "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"kin-user\"}]}]", NULL, "kin-user");
    p->accepts_later_system = shows_later_system(p);
    p->accepts_thinking = has_word(p->source, ".thinking") || has_word(p->source, "'thinking'");
    if (p->format.is_confirmed) {
        p->accepts_objects = !p->format.arguments_are_text;
        return;
    }
    p->accepts_objects = shows(p, "[" USER "," CALL("{\"kin_a\":\"kin_b\"}") "]", TOOL, "\"kin_b\"") ||
                         !shows(p, "[" USER "," CALL("\"{\\\"kin_a\\\": \\\"kin_b\\\"}\"") "]", TOOL, "{\"kin_a\": \"kin_b\"}");
}

// Compiles the model's template of that name. NULL: there is none, or it does not compile (*why says so).
static kin_jinja *compile_own(const kin_prompter *p, const char *name, kin_str *source, kin_err *why) {
    kin_jinja *jinja = NULL;
    kin_err_set(why, "there is none");
    if (!p->session->model.gguf || kin_chat_template_source(p->session->model.gguf, name, source, why) != 0) return NULL;
    if (kin_jinja_new(&jinja, source->at, source->len, why) == 0) return jinja;
    kin_err_prefix(why, "the model's chat template%s%s does not compile (use --chat-template-file for another one)",
                   name ? " for " : "", name ? name : "");
    kin_log(KIN_LOG_WARN, "%s", why->text);
    return NULL;
}

static bool has_own_template(const kin_session *session) {
    kin_str source;
    kin_err none;
    return session->model.gguf && kin_chat_template_source(session->model.gguf, NULL, &source, &none) == 0;
}

static int compile_built_in(kin_prompter *p, kin_err *err) {
    bool has_chatml = kin_vocab_find(p->session->vocab, "<|im_start|>", 12) != KIN_TOKEN_NONE;
    p->source = has_chatml ? (kin_str){chatml_template, sizeof chatml_template - 1}
                           : (kin_str){plain_template, sizeof plain_template - 1};
    return kin_jinja_new(&p->chat, p->source.at, p->source.len, err);
}

// A template given by the user must compile. If the model's own does not, only chats fail.
static int choose_template(kin_prompter *p, const char *source, kin_err *err) {
    p->has_source = source || has_own_template(p->session);
    if (source) {
        p->source = (kin_str){source, strlen(source)};
        return kin_jinja_new(&p->chat, p->source.at, p->source.len, err);
    }
    kin_err why;
    kin_str of_tools;
    p->tool_use = compile_own(p, "tool_use", &of_tools, &why);
    if (!p->has_source) return compile_built_in(p, err);
    p->chat = compile_own(p, NULL, &p->source, &p->bad_chat);
    return 0;
}

// Finds the call format of the template that receives the tools.
static int find_format(kin_prompter *p, kin_err *err) {
    kin_str source = p->source;
    kin_err none;
    if (!p->chat && !p->tool_use) {
        p->format = (kin_tool_format){.chat = *kin_chat_format_known(KIN_CHAT_HERMES), .is_generic = true};
        return 0;
    }
    if (p->tool_use) kin_chat_template_source(p->session->model.gguf, "tool_use", &source, &none);
    return kin_tool_format_of(&p->format, p->tool_use ? p->tool_use : p->chat, source.at, source.len, err);
}

static void log_format(const kin_prompter *p) {
    if (p->format.is_generic)
        kin_log(KIN_LOG_INFO, "the chat template has no tool calls of its own: tools are described in the system message");
    else if (!p->format.is_confirmed)
        kin_log(KIN_LOG_INFO, "the chat template renders no calls that can be read back: their format is guessed from its marks");
}

int kin_prompter_open(kin_prompter **out, const kin_session *session, const char *source, kin_err *err) {
    *out = NULL;
    if (!session->vocab) {
        *err = session->vocab_err;
        return KIN_FAIL;
    }
    kin_prompter *p = calloc(1, sizeof *p);
    if (!p) return kin_err_set(err, "out of memory");
    p->session = session;
    if (choose_template(p, source, err) != 0 || find_format(p, err) != 0) {
        kin_prompter_close(p);
        return kin_err_prefix(err, "the chat template");
    }
    if (p->chat || p->tool_use) {
        probe(p);
        if (p->has_source) log_format(p);
    }
    *out = p;
    return 0;
}

void kin_prompter_close(kin_prompter *p) {
    if (!p) return;
    kin_jinja_free(p->chat);
    kin_jinja_free(p->tool_use);
    free(p);
}

kin_str kin_prompter_template(const kin_prompter *p) {
    return p->has_source ? p->source : (kin_str){NULL, 0};
}

const kin_tool_format *kin_prompter_format(const kin_prompter *p) {
    return &p->format;
}
