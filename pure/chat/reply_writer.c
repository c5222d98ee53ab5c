#include "pure/chat/reply_writer.h"

#include <string.h>

#include "pure/grammar/schema_combine.h"
#include "pure/grammar/schema_string.h"
#include "pure/text/utf8.h"

void kin_reply_put(kin_reply_writer *w, const char *text) {
    kin_text_put(w->line, text, strlen(text));
}

void kin_reply_put_literal(kin_reply_writer *w, kin_str text) {
    if (text.len == 0) return;
    kin_schema_put_literal(text, w->line);
    kin_reply_put(w, " ");
}

// ---- marks

// Returns the control token whose name the text begins with, the longest one.
static int32_t control_token_at(const kin_reply_writer *w, const char *text, size_t *len) {
    for (*len = strnlen(text, KIN_CHAT_MAX_MARK); w->vocab && *len > 1; --*len) {
        int32_t id = kin_vocab_find(w->vocab, text, *len);
        if (id != KIN_TOKEN_NONE && kin_vocab_type(w->vocab, id) == KIN_TOKEN_CONTROL) return id;
    }
    return KIN_TOKEN_NONE;
}

void kin_reply_put_mark(kin_reply_writer *w, const char *mark) {
    const char *begin = mark;
    for (const char *at = mark;;) {
        size_t len = 1;
        int32_t id = *at ? control_token_at(w, at, &len) : KIN_TOKEN_NONE;
        bool is_line = *at == '\n', is_number = *at == KIN_MARK_DIGITS[0], is_name = *at == KIN_MARK_NAME[0];
        if (*at && id == KIN_TOKEN_NONE && !is_line && !is_number && !is_name) {
            at++;
            continue;
        }
        kin_reply_put_literal(w, (kin_str){begin, (size_t)(at - begin)});
        if (!*at) return;
        if (id != KIN_TOKEN_NONE)
            kin_text_print(w->line, "<[%d]> ", (int)id);
        else
            kin_reply_put(w, is_number ? "[0-9]{1,3} " : is_name ? "name " : "ws ");
        for (at += id != KIN_TOKEN_NONE ? len : 1; is_line && kin_is_space(*at);) at++;
        begin = at;
    }
}

void kin_reply_end_rule(kin_reply_writer *w, const char *name) {
    kin_text_print(w->gbnf, "%s ::= ", name);
    kin_text_put(w->gbnf, w->line->at, w->line->len);
    kin_text_print(w->gbnf, "\n");
    w->line->len = 0;
}

// ---- text without certain strings, which share their first character. A string counts up to the next occurrence of that
// character in it

typedef struct words {
    char at[2][KIN_CHAT_MAX_MARK];
    size_t n;
} words;

static int char_len(const char *at) {
    return kin_utf8_len(at, strlen(at)) > 0 ? kin_utf8_len(at, strlen(at)) : 1;
}

// Writes a character of a class.
static void put_member(kin_reply_writer *w, const char *at) {
    kin_text_print(w->line, "%s%.*s", strchr("[]\\-^", *at) ? "\\" : "", char_len(at), at);
}

// Writes what may follow the first `at` bytes of the strings, up to the next occurrence of the first character.
static void put_other_ends(kin_reply_writer *w, char without[][KIN_CHAT_MAX_MARK], size_t n, size_t at) {
    kin_reply_put(w, "(\"\" | [^");
    put_member(w, without[0]);
    for (size_t i = 0; i < n; i++) put_member(w, without[i] + at);
    kin_reply_put(w, "] [^");
    put_member(w, without[0]);
    kin_reply_put(w, "]*");
    for (size_t i = 0; i < n;) { // strings with the same next character are adjacent
        size_t end = i + 1, len = (size_t)char_len(without[i] + at);
        while (end < n && memcmp(without[end] + at, without[i] + at, len) == 0) end++;
        if (without[i][at + len]) {
            kin_reply_put(w, " | ");
            kin_reply_put_literal(w, (kin_str){without[i] + at, len});
            put_other_ends(w, without + i, end - i, at + len);
        }
        i = end;
    }
    kin_reply_put(w, ")");
}

bool kin_reply_is_token(const kin_reply_writer *w, const char *mark) {
    size_t len;
    for (; *mark; mark++) {
        if (control_token_at(w, mark, &len) != KIN_TOKEN_NONE) return true;
    }
    return false;
}

// Adds a mark, which text then must not contain. One with a control token cannot be in text.
static void add_word(const kin_reply_writer *w, words *words, const char *mark) {
    if (!mark[0] || words->n == 2 || kin_reply_is_token(w, mark)) return;
    if (words->n == 1 && mark[0] != words->at[0][0]) return;
    size_t n = (size_t)char_len(mark);
    while (mark[n] && mark[n] != mark[0] && mark[n] != '\n' && mark[n] != KIN_MARK_NAME[0]) n++;
    memcpy(words->at[words->n], mark, n);
    words->at[words->n++][n] = 0;
}

static void put_text_without_words(kin_reply_writer *w, words *words) {
    if (words->n == 0) {
        kin_reply_put(w, ".* ");
        return;
    }
    kin_reply_put(w, "[^");
    put_member(w, words->at[0]);
    kin_reply_put(w, "]* (");
    kin_reply_put_literal(w, (kin_str){words->at[0], (size_t)char_len(words->at[0])});
    if (words->at[0][char_len(words->at[0])]) put_other_ends(w, words->at, words->n, (size_t)char_len(words->at[0]));
    kin_reply_put(w, ")");
    kin_reply_put(w, words->at[0][char_len(words->at[0])] ? "* " : "{0} ");
}

void kin_reply_put_text_without(kin_reply_writer *w, const char *mark) {
    kin_reply_put_text_without_both(w, mark, "");
}

void kin_reply_put_text_without_both(kin_reply_writer *w, const char *mark, const char *other) {
    words words = {.n = 0};
    add_word(w, &words, mark);
    add_word(w, &words, other);
    put_text_without_words(w, &words);
}

// ---- arguments

// Writes the schema with "type": "object", which tools often omit. Returns false if it is not a schema of objects.
static bool make_object_schema(kin_str schema, kin_text_buffer *out) {
    kin_json json;
    bool ok = false;
    if (kin_json_parse(&json, schema.at, schema.len, NULL) != 0) return false;
    const kin_json_value *type = kin_json_get(&json, json.values, "type", 4), *root = json.values;
    const char *brace = memchr(schema.at, '{', schema.len);
    if (root->kind == KIN_JSON_OBJECT && root->n > 0 && brace) {
        ok = !type || (type->kind == KIN_JSON_STRING && type->text.len == 6 && memcmp(type->text.at, "object", 6) == 0);
        kin_text_print(out, type ? "{" : "{\"type\":\"object\",");
        kin_text_put(out, brace + 1, schema.len - (size_t)(brace + 1 - schema.at));
    } else {
        ok = root->kind == KIN_JSON_TRUE || (root->kind == KIN_JSON_OBJECT && root->n == 0);
        kin_text_print(out, "%s", KIN_SCHEMA_ANY_OBJECT);
    }
    kin_json_fini(&json);
    return ok && !out->failed;
}

void kin_reply_note_relaxed(kin_reply_writer *w, const kin_reply_tool *tool, kin_str what) {
    kin_text_buffer *to = w->rules->relaxed;
    bool is_place = what.len > 0 && what.at[0] == '#';
    if (!to || to->len + tool->name.len + what.len > KIN_SCHEMA_MAX_RELAXED) return;
    kin_text_print(to, "%stools.", to->len > 0 ? "; " : "");
    kin_text_put(to, tool->name.at, tool->name.len);
    kin_text_print(to, is_place ? "" : " (");
    kin_text_put(to, what.at, what.len);
    if (!is_place) kin_text_print(to, ")");
}

int kin_reply_put_schema(kin_reply_writer *w, const kin_json *json, const kin_json_value *schema, const kin_schema_text *text,
                         const kin_reply_tool *tool, const char *instead) {
    size_t len = w->gbnf->len, line_len = w->line->len;
    uint32_t n_rules = w->to->n_rules;
    kin_text_buffer relaxed = {0}, name = {0};
    kin_err why = {KIN_REPLY_TOO_LARGE};
    int rc = KIN_FAIL;
    kin_text_print(&name, "tools.");
    kin_text_put(&name, tool->name.at, tool->name.len);
    w->to->name = kin_text_str(&name);
    if (tool->strict || !w->any_arguments)
        rc = kin_schema_put_rules(json, schema, text, tool->strict ? NULL : &relaxed, w->line, w->to,
                                  tool->strict ? w->err : &why);
    w->to->name = (kin_str){NULL, 0};
    kin_text_fini(&name);
    if (rc == 0 && relaxed.len > 0) kin_reply_note_relaxed(w, tool, (kin_str){relaxed.at, relaxed.len});
    kin_text_fini(&relaxed);
    if (rc == 0 || tool->strict) return rc;
    kin_reply_note_relaxed(w, tool, (kin_str){why.text, strlen(why.text)});
    w->gbnf->len = len;
    w->line->len = line_len;
    w->to->n_rules = n_rules;
    kin_reply_put(w, instead);
    return 0;
}

int kin_reply_put_arguments(kin_reply_writer *w, const kin_reply_tool *tool, const kin_schema_text *text, const char *any) {
    static const char no_object[] = "its parameters are not a JSON schema of an object";
    kin_text_buffer schema = {0};
    kin_json json;
    int rc = 0;
    if (tool->parameters.len == 0) {
        kin_text_print(w->line, "%s ", any);
        return 0;
    }
    bool ok = make_object_schema(tool->parameters, &schema) && kin_json_parse(&json, schema.at, schema.len, NULL) == 0;
    if (ok) {
        rc = kin_reply_put_schema(w, &json, json.values, text, tool, any);
        kin_json_fini(&json);
    } else if (tool->strict) {
        rc = kin_err_set(w->err, "%s", no_object);
    } else {
        kin_reply_note_relaxed(w, tool, (kin_str){no_object, sizeof no_object - 1});
        kin_reply_put(w, any);
    }
    kin_reply_put(w, " ");
    kin_text_fini(&schema);
    return rc;
}

int kin_reply_name_tool(kin_reply_writer *w, const kin_reply_tool *tool) {
    return kin_err_prefix(w->err, "tool %.*s", (int)tool->name.len, tool->name.at);
}
