#include "pure/chat/reply_grammar_values.h"

#include <stdio.h>
#include <string.h>

#include "pure/grammar/parameter.h"
#include "pure/grammar/schema_string.h"
#include "pure/text/string_table.h"

#define ANY_NAME "[a-zA-Z_] [a-zA-Z0-9_]{0,63} "
#define ANY_KEY "[^<>\\n\"]{1,64} "

enum { MAX_PARAMETERS = 512 }; // of a tool

typedef struct parameter {
    kin_str key;
    const kin_json_value *schema; // NULL: any value
    bool is_required, is_impossible;
} parameter;

// The parameters that a tool's schema describes.
typedef struct parameters {
    const kin_json *json;
    bool are_any;                 // no parameters are named: any names are possible
    const kin_json_value *others; // are_any: the schema of each; NULL: any value
    int n;
    parameter at[MAX_PARAMETERS];
} parameters;

static const kin_json_value *of_kind(const kin_json_value *value, kin_json_kind kind) {
    return value && value->kind == kind ? value : NULL;
}

static void add_parameter(parameters *p, parameter one) {
    if (p->n < MAX_PARAMETERS) p->at[p->n] = one;
    p->n++;
}

static bool has(const kin_string_table *names, kin_str name) {
    return kin_string_table_find(names, name.at, name.len) >= 0;
}

// Collects the names of a schema, each once: of its properties, and of `required`.
static int read_names(const kin_json *json, const kin_json_value *properties, const kin_json_value *required,
                      kin_string_table *listed, kin_string_table *wanted) {
    int64_t rc = 0;
    for (const kin_json_value *v = properties ? kin_json_first(json, properties) : NULL; v && rc >= 0; v = kin_json_next(json, v))
        rc = kin_string_table_add(listed, v->key.at, v->key.len);
    for (const kin_json_value *v = required ? kin_json_first(json, required) : NULL; v && rc >= 0; v = kin_json_next(json, v))
        if (v->kind == KIN_JSON_STRING) rc = kin_string_table_add(wanted, v->text.at, v->text.len);
    return rc < 0 ? KIN_FAIL : 0;
}

// Lists the properties, then those that are only required, which have the schema of all others.
static void list_parameters(parameters *p, const kin_json_value *properties, const kin_json_value *others,
                            const kin_string_table *listed, const kin_string_table *wanted) {
    for (const kin_json_value *v = properties ? kin_json_first(p->json, properties) : NULL; v; v = kin_json_next(p->json, v))
        add_parameter(p, (parameter){v->key, v, has(wanted, v->key), false});
    for (uint32_t i = 0; i < wanted->n; i++) {
        kin_str name = {kin_string_table_at(wanted, i), kin_string_table_len(wanted, i)};
        if (!has(listed, name)) add_parameter(p, (parameter){name, p->others, true, of_kind(others, KIN_JSON_FALSE) != NULL});
    }
    p->are_any = p->n == 0 && !of_kind(others, KIN_JSON_FALSE);
}

// wanted: an empty table, which must live as long as p.
static int read_parameters(parameters *p, kin_reply_writer *w, const kin_json *json, const kin_reply_tool *tool,
                           kin_string_table *wanted) {
    static const char too_many[] = "more than 512 parameters";
    const kin_json_value *root = kin_parameter_root(json), *others = kin_json_get(json, root, "additionalProperties", 20);
    const kin_json_value *properties = of_kind(kin_json_get(json, root, "properties", 10), KIN_JSON_OBJECT);
    const kin_json_value *required = of_kind(kin_json_get(json, root, "required", 8), KIN_JSON_ARRAY);
    kin_string_table listed = {0};
    *p = (parameters){.json = json, .are_any = true};
    if (w->any_arguments && !tool->strict) {
        kin_reply_note_relaxed(w, tool, (kin_str){KIN_REPLY_TOO_LARGE, sizeof KIN_REPLY_TOO_LARGE - 1});
        return 0;
    }
    p->others = of_kind(others, KIN_JSON_OBJECT);
    int rc = kin_string_table_init(&listed, 16, 256);
    if (rc == 0) rc = read_names(json, properties, required, &listed, wanted);
    if (rc == 0) list_parameters(p, properties, others, &listed, wanted);
    kin_string_table_fini(&listed);
    if (rc != 0) return kin_err_set(w->err, "out of memory");
    if (p->n <= MAX_PARAMETERS) return 0;
    if (tool->strict) return kin_err_set(w->err, "%s", too_many);
    kin_reply_note_relaxed(w, tool, (kin_str){too_many, sizeof too_many - 1});
    p->n = MAX_PARAMETERS;
    return 0;
}

// Checks that the name can be written. Returns false if the parameter is left out, or (with *rc) if it is required.
static bool has_name(kin_reply_writer *w, const parameter *p, const char *forbidden, int *rc) {
    kin_str key = p->key;
    bool ok = key.len > 0 && key.len <= KIN_REPLY_MAX_NAME;
    for (size_t i = 0; i < key.len && ok; i++) ok = key.at[i] && !strchr(forbidden, key.at[i]);
    if (!ok && p->is_required) *rc = kin_err_set(w->err, "the model's format does not support the name of a parameter");
    return ok;
}

// True if the schema has only these keywords and annotations.
static bool has_only(const kin_json *json, const kin_json_value *schema, const char *const *keywords) {
    static const char *const annotations[] = {"type", "description", "title", "default", "examples", NULL};
    for (const kin_json_value *v = kin_json_first(json, schema); v; v = kin_json_next(json, v)) {
        bool is_known = false;
        for (int i = 0; annotations[i]; i++) is_known |= kin_str_eq(v->key, annotations[i]);
        for (int i = 0; keywords[i]; i++) is_known |= kin_str_eq(v->key, keywords[i]);
        if (!is_known) return false;
    }
    return schema->kind == KIN_JSON_OBJECT;
}

// ---- parameters between marks

static void put_type(kin_reply_writer *w, bool is_string) {
    const kin_chat_format *f = w->format;
    const char *type = is_string ? f->string_type : f->other_type;
    if (type[0])
        kin_reply_put_literal(w, (kin_str){type, strlen(type)});
    else
        kin_reply_put(w, "(\"number\" | \"boolean\" | \"object\" | \"array\" | \"null\") ");
}

// A string is plain text: any, or what its schema allows.
static int put_text_value(kin_reply_writer *w, const parameters *p, const kin_json_value *schema, unsigned types,
                          const kin_reply_tool *tool) {
    static const char *const none[] = {NULL};
    const kin_chat_format *f = w->format;
    kin_text_buffer any = {0}, *line = w->line;
    kin_schema_text text = {.any = "raw",
                            .mark = f->value_end,
                            .mark_is_token = kin_reply_is_token(w, f->value_end),
                            .only_strings = types == KIN_TYPE_STRING || f->type_end[0],
                            .reads_json = !f->type_end[0] && types & (KIN_TYPE_OBJECT | KIN_TYPE_ARRAY)};
    if (!schema || (has_only(p->json, schema, none) && (types == KIN_TYPE_STRING || types == KIN_TYPE_ALL))) {
        kin_reply_put(w, "raw ");
        return 0;
    }
    w->line = &any;
    kin_reply_put_text_without(w, f->value_end);
    w->line = line;
    text.any_body = kin_text_str(&any);
    kin_reply_put(w, f->pads_values ? "\"\\n\" " : "");
    int rc = kin_reply_put_schema(w, p->json, schema, &text, tool, "raw");
    if (any.failed) w->line->failed = true;
    kin_text_fini(&any);
    kin_reply_put(w, f->pads_values ? " \"\\n\" " : " ");
    return rc;
}

static int put_value(kin_reply_writer *w, const parameters *p, const kin_json_value *schema, const kin_reply_tool *tool) {
    const kin_chat_format *f = w->format;
    unsigned types = schema ? kin_parameter_types(p->json, schema) : KIN_TYPE_ALL;
    bool is_string = types & KIN_TYPE_STRING;
    if (f->type_end[0]) put_type(w, is_string);
    kin_reply_put_mark(w, f->type_end);
    if (is_string) return put_text_value(w, p, schema, types, tool);
    kin_reply_put(w, "ws ");
    int rc = kin_reply_put_schema(w, p->json, schema, NULL, tool, "raw");
    kin_reply_put(w, " ws ");
    return rc;
}

static int put_parameters(kin_reply_writer *w, const parameters *p, const kin_reply_tool *tool) {
    const kin_chat_format *f = w->format;
    const char forbidden[] = {f->key_end[0], '\n', 0};
    int rc = 0;
    if (p->are_any && !p->others) kin_reply_put(w, "parameter* ");
    if (p->are_any && p->others) {
        kin_reply_put(w, "(");
        kin_reply_put_mark(w, f->key_begin);
        kin_reply_put(w, ANY_KEY);
        kin_reply_put_mark(w, f->key_end);
        rc = put_value(w, p, p->others, tool);
        kin_reply_put_mark(w, f->value_end);
        kin_reply_put(w, "ws)* ");
    }
    for (int i = 0; i < p->n && rc == 0; i++) {
        if (!has_name(w, &p->at[i], forbidden, &rc)) continue;
        kin_reply_put(w, "(");
        kin_reply_put_mark(w, f->key_begin);
        kin_reply_put_literal(w, p->at[i].key);
        kin_reply_put_mark(w, f->key_end);
        rc = put_value(w, p, p->at[i].schema, tool);
        kin_reply_put(w, p->at[i].is_impossible ? "[] " : "");
        kin_reply_put_mark(w, f->value_end);
        kin_reply_put(w, p->at[i].is_required ? "ws) " : "ws)? ");
    }
    return rc;
}

static void put_parameter_rules(kin_reply_writer *w) {
    const kin_chat_format *f = w->format;
    kin_reply_put_text_without(w, f->value_end);
    kin_reply_end_rule(w, "raw");
    kin_text_print(w->line, "| [^{[ \\t\\r\\n\\x%02X] raw", (unsigned char)f->value_end[0]);
    kin_reply_end_rule(w, "raw-no-json");
    kin_reply_put_mark(w, f->key_begin);
    kin_reply_put(w, ANY_KEY);
    kin_reply_put_mark(w, f->key_end);
    if (f->type_end[0]) put_type(w, true);
    kin_reply_put_mark(w, f->type_end);
    kin_reply_put(w, "raw ");
    kin_reply_put_mark(w, f->value_end);
    kin_reply_put(w, "ws");
    kin_reply_end_rule(w, "parameter");
}

// ---- with the format's own quotes: as in JSON, but for strings and keys

// Writes the text of a string, any value, any object and any array.
static void put_quoted_rules(kin_reply_writer *w) {
    static const char members[] = "\"{\" ws (any-member (ws \",\" ws any-member)*)? ws \"}\"";
    const char *quote = w->format->quote;
    kin_reply_put_text_without(w, quote);
    kin_reply_end_rule(w, "raw");
    kin_reply_put_mark(w, quote);
    kin_reply_put(w, "raw ");
    kin_reply_put_mark(w, quote);
    kin_reply_end_rule(w, "quoted");
    kin_reply_put(w, "quoted | number | \"true\" | \"false\" | \"null\" | any-array | any-object");
    kin_reply_end_rule(w, "any");
    kin_reply_put(w, "\"[\" ws (any (ws \",\" ws any)*)? ws \"]\"");
    kin_reply_end_rule(w, "any-array");
    kin_reply_put(w, members);
    kin_reply_end_rule(w, "any-object");
    kin_reply_put(w, "(quoted | [a-zA-Z0-9_.-]{1,64}) ws \":\" ws any");
    kin_reply_end_rule(w, "any-member");
}

// Writes into a buffer: the marks around a string, or the text between them.
static kin_text_buffer written(kin_reply_writer *w, void (*put)(kin_reply_writer *, const char *)) {
    kin_text_buffer out = {0}, *line = w->line;
    w->line = &out;
    put(w, w->format->quote);
    w->line = line;
    if (out.failed) line->failed = true;
    return out;
}

static int put_quoted_arguments(kin_reply_writer *w, const kin_reply_tool *tool) {
    kin_text_buffer quote = written(w, kin_reply_put_mark), body = written(w, kin_reply_put_text_without);
    kin_schema_text text = {.any = "raw",
                            .any_body = kin_text_str(&body),
                            .mark = w->format->quote,
                            .mark_is_token = kin_reply_is_token(w, w->format->quote),
                            .only_strings = true,
                            .quote = kin_text_str(&quote)};
    int rc = kin_reply_put_arguments(w, tool, &text, "any-object");
    kin_text_fini(&quote);
    kin_text_fini(&body);
    return rc;
}

// ---- as in Python

static int put_python(kin_reply_writer *w, const kin_json *json, const kin_json_value *schema, const kin_reply_tool *tool,
                      int depth);

static int put_python_list(kin_reply_writer *w, const kin_json *json, const kin_json_value *items, const kin_reply_tool *tool,
                           int depth) {
    kin_text_buffer item = {0}, *line = w->line;
    w->line = &item;
    int rc = put_python(w, json, items, tool, depth + 1);
    w->line = line;
    kin_reply_put(w, "\"[\" ws (");
    kin_text_put(w->line, item.at, item.len);
    kin_reply_put(w, "(ws \",\" ws ");
    kin_text_put(w->line, item.at, item.len);
    kin_reply_put(w, ")*)? ws \"]\" ");
    if (item.failed) w->line->failed = true;
    kin_text_fini(&item);
    return rc;
}

// Writes a string that has no escapes between the quotes, and no quote: JSON would have both.
static int put_raw_string(kin_reply_writer *w, const kin_json *json, const kin_json_value *schema, const kin_reply_tool *tool) {
    static const char body[] = "[^'\\x00]*";
    const kin_schema_text text = {.any = "unquoted", .any_body = {body, sizeof body - 1}, .mark = "'", .only_strings = true};
    kin_reply_put(w, "\"'\" ");
    int rc = kin_reply_put_schema(w, json, schema, &text, tool, "unquoted");
    kin_reply_put(w, " \"'\" ");
    return rc;
}

// Writes a value. Where the schema has other keywords than types it is JSON, which the parser reads there too.
static int put_python(kin_reply_writer *w, const kin_json *json, const kin_json_value *schema, const kin_reply_tool *tool,
                      int depth) {
    static const char *const list_keywords[] = {"items", NULL}, *const none[] = {NULL};
    unsigned types = kin_parameter_types(json, schema);
    const kin_json_value *items = kin_json_get(json, schema, "items", 5);
    if (types == KIN_TYPE_STRING && has_only(json, schema, none)) {
        kin_reply_put(w, "quoted ");
        return 0;
    }
    if (types == KIN_TYPE_STRING && w->format->is_raw && depth == 0) return put_raw_string(w, json, schema, tool);
    if (types == KIN_TYPE_BOOLEAN && has_only(json, schema, none)) {
        kin_reply_put(w, "(\"True\" | \"False\" | \"true\" | \"false\") ");
        return 0;
    }
    if (types == KIN_TYPE_ARRAY && items && depth < 4 && has_only(json, schema, list_keywords))
        return put_python_list(w, json, items, tool, depth);
    if (types == KIN_TYPE_ARRAY && has_only(json, schema, none)) {
        kin_reply_put(w, "\"[\" ws (any (ws \",\" ws any)*)? ws \"]\" ");
        return 0;
    }
    if (types == KIN_TYPE_ALL && has_only(json, schema, none)) {
        kin_reply_put(w, "any ");
        return 0;
    }
    if (kin_reply_put_schema(w, json, schema, NULL, tool, "any") != 0) return KIN_FAIL;
    kin_reply_put(w, " ");
    return 0;
}

// Writes a parameter: its key, then any value or one of the schema.
static int put_item(kin_reply_writer *w, const parameters *p, const kin_json_value *schema, const kin_reply_tool *tool) {
    kin_reply_put(w, "\"=\" ");
    if (schema) return put_python(w, p->json, schema, tool, 0);
    kin_reply_put(w, "any ");
    return 0;
}

// Writes the rules item-T-I of the parameters, each with its key. Returns their number, or KIN_FAIL.
static int put_item_rules(kin_reply_writer *w, const parameters *p, const kin_reply_tool *tool, int i_tool, bool *required) {
    kin_text_buffer item = {0}, *line = w->line;
    int n = 0, rc = 0;
    w->line = &item;
    for (int i = 0; i < p->n && rc == 0; i++) {
        char name[40];
        if (!has_name(w, &p->at[i], " ,:=()[]{}\"'<\n", &rc)) continue;
        kin_reply_put_literal(w, p->at[i].key);
        rc = put_item(w, p, p->at[i].schema, tool);
        kin_reply_put(w, p->at[i].is_impossible ? "[] " : "");
        required[n] = p->at[i].is_required;
        snprintf(name, sizeof name, "item-%d-%d", i_tool, n++);
        kin_reply_end_rule(w, name);
    }
    w->line = line;
    if (item.failed) w->line->failed = true;
    kin_text_fini(&item);
    return rc == 0 ? n : KIN_FAIL;
}

// Any names, each with a value of the schema of all others.
static int put_any_items(kin_reply_writer *w, const parameters *p, const kin_reply_tool *tool, int i_tool) {
    char name[40];
    kin_text_buffer item = {0}, *line = w->line;
    if (!p->others) {
        kin_reply_put(w, "(parameter (\",\" ws parameter)*)? ");
        return 0;
    }
    w->line = &item;
    kin_reply_put(w, ANY_NAME);
    int rc = put_item(w, p, p->others, tool);
    snprintf(name, sizeof name, "item-%d-0", i_tool);
    kin_reply_end_rule(w, name);
    w->line = line;
    if (item.failed) w->line->failed = true;
    kin_text_fini(&item);
    kin_text_print(w->line, "(%s (\",\" ws %s)*)? ", name, name);
    return rc;
}

// Writes the parameters in order, with commas between those that are there: the first one, then `more` of those after it.
static int put_items(kin_reply_writer *w, const parameters *p, const kin_reply_tool *tool, int i_tool) {
    static const char none[] = "\"\" ";
    bool required[MAX_PARAMETERS];
    int n = put_item_rules(w, p, tool, i_tool, required), i = 0;
    if (n < 0) return KIN_FAIL;
    for (int k = n - 1; k > 0; k--) {
        const char *option = required[k] ? "" : "?";
        kin_text_print(w->gbnf, "more-%d-%d ::= (\",\" ws item-%d-%d)%s ", i_tool, k, i_tool, k, option);
        kin_text_print(w->gbnf, k + 1 < n ? "more-%d-%d\n" : "\n", i_tool, k + 1);
    }
    kin_reply_put(w, "(");
    for (; i < n; i++) {
        kin_text_print(w->line, "%sitem-%d-%d ", i > 0 ? "| " : "", i_tool, i);
        if (i + 1 < n) kin_text_print(w->line, "more-%d-%d ", i_tool, i + 1);
        if (required[i]) break;
    }
    if (i == n) kin_reply_put(w, n > 0 ? "| \"\" " : none);
    kin_reply_put(w, ") ");
    return 0;
}

static void put_python_rules(kin_reply_writer *w) {
    // A quote or a backslash may not be in it, so it is the same string with and without escapes.
    kin_reply_put(w, "\"'\" [^'\\\\]* \"'\" | \"\\\"\" [^\"\\\\]* \"\\\"\" ");
    kin_reply_put(w, w->format->is_raw ? "" : "| string ");
    kin_reply_end_rule(w, "quoted");
    kin_reply_put(w, "[^'\\x00]*");
    kin_reply_end_rule(w, "unquoted");
    kin_reply_put(w, "quoted | value | \"True\" | \"False\" | \"None\" | \"[\" ws (any (ws \",\" ws any)*)? ws \"]\" | ");
    kin_reply_put(w, "\"{\" ws (any-member (ws \",\" ws any-member)*)? ws \"}\"");
    kin_reply_end_rule(w, "any");
    kin_reply_put(w, "quoted ws \":\" ws any");
    kin_reply_end_rule(w, "any-member");
    kin_reply_put(w, ANY_NAME "\"=\" any");
    kin_reply_end_rule(w, "parameter");
}

// ---- calls

static int put_parameters_of(kin_reply_writer *w, const kin_reply_tool *tool, int i_tool) {
    static const char none[] = "{}";
    kin_str schema = tool->parameters.len > 0 ? tool->parameters : (kin_str){none, sizeof none - 1};
    parameters p;
    kin_string_table wanted;
    kin_json json;
    if (kin_json_parse(&json, schema.at, schema.len, w->err) != 0) return KIN_FAIL;
    int rc = kin_string_table_init(&wanted, 16, 256) == 0 ? 0 : kin_err_set(w->err, "out of memory");
    if (rc == 0) rc = read_parameters(&p, w, &json, tool, &wanted);
    if (rc == 0 && w->format->syntax == KIN_CALL_PARAMETERS)
        rc = put_parameters(w, &p, tool);
    else if (rc == 0)
        rc = p.are_any ? put_any_items(w, &p, tool, i_tool) : put_items(w, &p, tool, i_tool);
    kin_string_table_fini(&wanted);
    kin_json_fini(&json);
    return rc;
}

static int put_call(kin_reply_writer *w, const kin_reply_tool *tool, int i_tool) {
    kin_call_syntax syntax = w->format->syntax;
    kin_reply_put_literal(w, tool->name);
    kin_reply_put_mark(w, w->format->name_end);
    if (syntax == KIN_CALL_QUOTED) return put_quoted_arguments(w, tool);
    kin_reply_put(w, syntax == KIN_CALL_PYTHON ? "\"(\" " : "ws ");
    int rc = put_parameters_of(w, tool, i_tool);
    kin_reply_put(w, syntax == KIN_CALL_PYTHON ? "\")\" " : "");
    return rc;
}

int kin_reply_put_value_calls(kin_reply_writer *w) {
    const kin_reply_rules *r = w->rules;
    switch (w->format->syntax) {
    case KIN_CALL_PARAMETERS: put_parameter_rules(w); break;
    case KIN_CALL_QUOTED: put_quoted_rules(w); break;
    default: put_python_rules(w);
    }
    kin_reply_put(w, "(");
    for (size_t i = 0; i < r->n_tools; i++) {
        kin_reply_put(w, i > 0 ? "| " : "");
        if (put_call(w, &r->tools[i], (int)i) != 0) return kin_reply_name_tool(w, &r->tools[i]);
    }
    kin_reply_put(w, ") ");
    return 0;
}
