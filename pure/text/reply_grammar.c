#include "pure/text/reply_grammar.h"

#include <string.h>

#include "pure/text/parameter.h"
#include "pure/text/schema.h"
#include "pure/text/schema_string.h"

// Rules: s0, s1, ... of schemas, and those of schema_string.h; call: one call; tagged: the text between its tags; calls, body,
// root; parameter: any parameter of the XML format; raw: its text.
typedef struct writer {
    const kin_reply_rules *rules;
    const kin_vocab *vocab;
    kin_schema_grammar *to;
    kin_text_buffer *gbnf; // of `to`: complete rules
    kin_text_buffer *line; // the rule being written
    bool any_arguments;    // ignore the schemas of tools that are not strict
    kin_err *err;
} writer;

static void put(writer *w, const char *text) {
    kin_text_put(w->line, text, strlen(text));
}

static void put_literal(writer *w, const char *text) {
    kin_schema_put_literal((kin_str){text, strlen(text)}, w->line);
    put(w, " ");
}

// Writes a marker: the control token of that name, or its text.
static void put_marker(writer *w, const char *text) {
    int32_t id = w->vocab ? kin_vocab_find(w->vocab, text, strlen(text)) : KIN_TOKEN_NONE;
    if (id != KIN_TOKEN_NONE && kin_vocab_type(w->vocab, id) == KIN_TOKEN_CONTROL)
        kin_text_print(w->line, "<[%d]> ", (int)id);
    else
        put_literal(w, text);
}

static void end_rule(writer *w, const char *name) {
    kin_text_print(w->gbnf, "%s ::= ", name);
    kin_text_put(w->gbnf, w->line->at, w->line->len);
    kin_text_print(w->gbnf, "\n");
    w->line->len = 0;
}

// ---- text without certain strings. They are ASCII and share their first character, which occurs nowhere else in them

static void put_class(writer *w, char first, const char *const *without, size_t n, size_t at) {
    kin_text_print(w->line, "[^%c", first);
    for (size_t i = 0; i < n; i++) kin_text_print(w->line, "%s%c", strchr("[]\\-", without[i][at]) ? "\\" : "", without[i][at]);
    put(w, "]");
}

// Writes what may follow the first `at` characters of the strings, up to the next occurrence of the first character.
static void put_other_ends(writer *w, const char *const *without, size_t n, size_t at) {
    char first = without[0][0];
    put(w, "(\"\" | ");
    put_class(w, first, without, n, at);
    kin_text_print(w->line, " [^%c]*", first);
    for (size_t i = 0; i < n;) { // strings with the same next character are adjacent
        size_t end = i + 1;
        while (end < n && without[end][at] == without[i][at]) end++;
        if (without[i][at + 1]) {
            kin_text_print(w->line, " | \"%c\" ", without[i][at]);
            put_other_ends(w, without + i, end - i, at + 1);
        }
        i = end;
    }
    put(w, ")");
}

static void put_text_without(writer *w, const char *const *without, size_t n) {
    char first = without[0][0];
    kin_text_print(w->line, "[^%s%c]* (\"%c\" ", first == '[' ? "\\" : "", first, first);
    put_other_ends(w, without, n, 1);
    put(w, ")* ");
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

static void note_relaxed(writer *w, const kin_reply_tool *tool, kin_str what) {
    kin_text_buffer *to = w->rules->relaxed;
    bool is_place = what.len > 0 && what.at[0] == '#';
    if (!to || to->len + tool->name.len + what.len > KIN_SCHEMA_MAX_RELAXED) return;
    kin_text_print(to, "%stools.", to->len > 0 ? "; " : "");
    kin_text_put(to, tool->name.at, tool->name.len);
    kin_text_print(to, is_place ? "" : " (");
    kin_text_put(to, what.at, what.len);
    if (!is_place) kin_text_print(to, ")");
}

// Writes rules for a schema of a tool, and appends their name to the line. If that is impossible: appends `instead`, or fails
// if the tool is strict.
static int put_schema(writer *w, const kin_json *json, const kin_json_value *schema, const kin_reply_tool *tool,
                      const char *instead) {
    size_t len = w->gbnf->len, line_len = w->line->len;
    uint32_t n_rules = w->to->n_rules;
    kin_text_buffer relaxed = {0}, name = {0};
    kin_err why = {"all tools together are too large"};
    int rc = KIN_FAIL;
    kin_text_print(&name, "tools.");
    kin_text_put(&name, tool->name.at, tool->name.len);
    w->to->name = kin_text_str(&name);
    if (tool->strict || !w->any_arguments)
        rc = kin_schema_put_rules(json, schema, tool->strict ? NULL : &relaxed, w->line, w->to, tool->strict ? w->err : &why);
    w->to->name = (kin_str){NULL, 0};
    kin_text_fini(&name);
    if (rc == 0 && relaxed.len > 0) note_relaxed(w, tool, (kin_str){relaxed.at, relaxed.len});
    kin_text_fini(&relaxed);
    if (rc == 0 || tool->strict) return rc;
    note_relaxed(w, tool, (kin_str){why.text, strlen(why.text)});
    w->gbnf->len = len;
    w->line->len = line_len;
    w->to->n_rules = n_rules;
    put(w, instead);
    return 0;
}

static int put_arguments(writer *w, const kin_reply_tool *tool) {
    static const char no_object[] = "its parameters are no JSON schema of an object";
    kin_text_buffer schema = {0};
    kin_json json;
    int rc = 0;
    if (tool->parameters.len == 0) {
        put(w, "object ");
        return 0;
    }
    bool ok = make_object_schema(tool->parameters, &schema) && kin_json_parse(&json, schema.at, schema.len, NULL) == 0;
    if (ok) {
        rc = put_schema(w, &json, json.values, tool, "object");
        kin_json_fini(&json);
    } else if (tool->strict) {
        rc = kin_err_set(w->err, "%s", no_object);
    } else {
        note_relaxed(w, tool, (kin_str){no_object, sizeof no_object - 1});
        put(w, "object");
    }
    put(w, " ");
    kin_text_fini(&schema);
    return rc;
}

// ---- a call as an object

static void put_key(writer *w, const char *key) {
    kin_text_print(w->line, "\"\\\"%s\\\"\" ws \":\" ws ", key);
}

static int put_objects(writer *w) {
    const kin_reply_rules *r = w->rules;
    put(w, "\"{\" ws ");
    put_key(w, "name");
    put(w, "(");
    for (size_t i = 0; i < r->n_tools; i++) {
        kin_text_buffer name = {0};
        kin_json_write_string(r->tools[i].name, &name);
        if (name.failed) w->line->failed = true;
        if (i > 0) put(w, "| ");
        kin_schema_put_literal((kin_str){name.at, name.len}, w->line);
        kin_text_fini(&name);
        put(w, " ws \",\" ws ");
        put_key(w, r->format == KIN_REPLY_LLAMA ? "parameters" : "arguments");
        if (put_arguments(w, &r->tools[i]) != 0)
            return kin_err_prefix(w->err, "tool %.*s", (int)r->tools[i].name.len, r->tools[i].name.at);
    }
    put(w, ") ws ");
    if (r->format == KIN_REPLY_MISTRAL) put(w, "(\",\" ws \"\\\"id\\\"\" ws \":\" ws \"\\\"\" [a-zA-Z0-9]{9} \"\\\"\" ws)? ");
    put(w, "\"}\" ");
    return 0;
}

// ---- NAME[ARGS]{...}

static int check_names(writer *w, const char *forbidden) {
    for (size_t i = 0; i < w->rules->n_tools; i++) {
        kin_str name = w->rules->tools[i].name;
        bool ok = name.len > 0 && name.len <= KIN_REPLY_MAX_NAME;
        for (size_t k = 0; k < name.len; k++) ok = ok && (uint8_t)name.at[k] > 0x20 && !strchr(forbidden, name.at[k]);
        if (!ok) return kin_err_set(w->err, "tool %.*s: the model's format has no such name", (int)name.len, name.at);
    }
    return 0;
}

static int put_labelled(writer *w) {
    const kin_reply_rules *r = w->rules;
    if (check_names(w, "[]{") != 0) return KIN_FAIL;
    put_marker(w, "[TOOL_CALLS]");
    put(w, "(");
    for (size_t i = 0; i < r->n_tools; i++) {
        if (i > 0) put(w, "| ");
        kin_schema_put_literal(r->tools[i].name, w->line);
        put(w, " id ");
        put_marker(w, "[ARGS]");
        if (put_arguments(w, &r->tools[i]) != 0)
            return kin_err_prefix(w->err, "tool %.*s", (int)r->tools[i].name.len, r->tools[i].name.at);
    }
    put(w, ") ");
    return 0;
}

static void put_id_rule(writer *w) {
    put(w, "(");
    put_marker(w, "[CALL_ID]");
    put(w, "[a-zA-Z0-9]{9})? ");
    end_rule(w, "id");
}

// ---- <function=NAME><parameter=KEY>VALUE</parameter></function>

// True for an enum whose strings can all be written without escaping.
static bool is_enum_of_strings(const kin_json *json, const kin_json_value *schema) {
    const kin_json_value *values = kin_json_get(json, schema, "enum", 4);
    if (!values || values->kind != KIN_JSON_ARRAY || values->n == 0) return false;
    for (const kin_json_value *v = kin_json_first(json, values); v; v = kin_json_next(json, v)) {
        if (v->kind != KIN_JSON_STRING || memchr(v->text.at, '<', v->text.len)) return false;
    }
    return true;
}

static int put_value(writer *w, const kin_json *json, const kin_json_value *schema, const kin_reply_tool *tool) {
    unsigned types = kin_parameter_types(json, schema);
    if (types & KIN_TYPE_STRING && is_enum_of_strings(json, schema)) {
        put(w, "\"\\n\" (");
        const kin_json_value *values = kin_json_get(json, schema, "enum", 4);
        for (const kin_json_value *v = kin_json_first(json, values); v; v = kin_json_next(json, v)) {
            kin_schema_put_literal(v->text, w->line);
            put(w, v->next ? " | " : ") \"\\n\" ");
        }
        return 0;
    }
    if (types & KIN_TYPE_STRING) {
        put(w, "raw ");
        return 0;
    }
    put(w, "ws ");
    if (put_schema(w, json, schema, tool, "raw") != 0) return KIN_FAIL;
    put(w, " ws ");
    return 0;
}

static bool is_required(const kin_json *json, kin_str key) {
    const kin_json_value *required = kin_json_get(json, json->values, "required", 8);
    if (!required) return false;
    for (const kin_json_value *v = kin_json_first(json, required); v; v = kin_json_next(json, v)) {
        if (v->kind == KIN_JSON_STRING && v->text.len == key.len && memcmp(v->text.at, key.at, key.len) == 0) return true;
    }
    return false;
}

// Writes each property in order; any parameters if none are listed or the schemas are too large.
static int put_parameters(writer *w, const kin_json *json, const kin_reply_tool *tool) {
    const kin_json_value *properties = kin_json_get(json, json->values, "properties", 10);
    if (!properties || properties->kind != KIN_JSON_OBJECT || (w->any_arguments && !tool->strict)) {
        put(w, "parameter* ");
        return 0;
    }
    for (const kin_json_value *v = kin_json_first(json, properties); v; v = kin_json_next(json, v)) {
        if (v->key.len == 0 || v->key.len > KIN_REPLY_MAX_NAME || memchr(v->key.at, '>', v->key.len)) {
            if (is_required(json, v->key)) return kin_err_set(w->err, "the model's format has no such name of a parameter");
            continue;
        }
        put(w, "(");
        put_literal(w, "<parameter=");
        kin_schema_put_literal(v->key, w->line);
        put(w, " \">\" ");
        if (put_value(w, json, v, tool) != 0) return KIN_FAIL;
        put(w, is_required(json, v->key) ? "\"</parameter>\" ws) " : "\"</parameter>\" ws)? ");
    }
    return 0;
}

static int put_function(writer *w, const kin_reply_tool *tool) {
    static const char any[] = "{}";
    kin_str schema = tool->parameters.len > 0 ? tool->parameters : (kin_str){any, sizeof any - 1};
    kin_json json;
    if (kin_json_parse(&json, schema.at, schema.len, w->err) != 0) return KIN_FAIL;
    kin_schema_put_literal(tool->name, w->line);
    put(w, " \">\" ws ");
    int rc = put_parameters(w, &json, tool);
    kin_json_fini(&json);
    return rc;
}

static int put_functions(writer *w) {
    static const char *const end_value[] = {"</parameter>"};
    const kin_reply_rules *r = w->rules;
    if (check_names(w, "<>") != 0) return KIN_FAIL;
    put_text_without(w, end_value, 1);
    end_rule(w, "raw");
    put(w, "\"<parameter=\" [^<>\\n]{1,64} \">\" raw \"</parameter>\" ws");
    end_rule(w, "parameter");
    put_literal(w, "<function=");
    put(w, "(");
    for (size_t i = 0; i < r->n_tools; i++) {
        if (i > 0) put(w, "| ");
        if (put_function(w, &r->tools[i]) != 0)
            return kin_err_prefix(w->err, "tool %.*s", (int)r->tools[i].name.len, r->tools[i].name.at);
    }
    put(w, ") \"</function>\" ");
    return 0;
}

// ---- calls

static int put_call_rule(writer *w) {
    bool has_tags = w->rules->format == KIN_REPLY_HERMES || w->rules->format == KIN_REPLY_XML;
    int rc;
    switch (w->rules->format) {
    case KIN_REPLY_XML: rc = put_functions(w); break;
    case KIN_REPLY_MISTRAL_ARGS:
        put_id_rule(w);
        rc = put_labelled(w);
        break;
    default: rc = put_objects(w);
    }
    end_rule(w, has_tags ? "tagged" : "call");
    if (!has_tags) return rc;
    put_marker(w, "<tool_call>");
    put(w, "ws tagged ws ");
    put_marker(w, "</tool_call>");
    end_rule(w, "call");
    return rc;
}

static void put_calls_rule(writer *w) {
    int n_more = w->rules->parallel ? KIN_REPLY_MAX_CALLS - 1 : 0;
    switch (w->rules->format) {
    case KIN_REPLY_MISTRAL:
        put_marker(w, "[TOOL_CALLS]");
        kin_text_print(w->line, "ws \"[\" ws call (\",\" ws call ws){0,%d} \"]\"", n_more);
        break;
    case KIN_REPLY_MISTRAL_ARGS: kin_text_print(w->line, "call{1,%d}", n_more + 1); break;
    case KIN_REPLY_LLAMA:
        put(w, "(");
        put_marker(w, "<|python_tag|>");
        kin_text_print(w->line, ")? call (ws \";\" ws call){0,%d}", n_more);
        break;
    default: kin_text_print(w->line, "call (ws call){0,%d}", n_more);
    }
    end_rule(w, "calls");
}

// ---- text before calls

// Llama 3's calls have no marker: text must not begin like a call with the name of a tool.
static void put_llama_text(writer *w) {
    static const char space[] = "[ \\t\\n\\r]*";
    kin_str keys[KIN_REPLY_MAX_TOOLS], name = {"name", 4};
    for (size_t i = 0; i < w->rules->n_tools; i++) keys[i] = w->rules->tools[i].name;
    kin_schema_put_other_keys("no-name", &name, 1, w->gbnf);
    kin_schema_put_other_keys("no-tool", keys, w->rules->n_tools, w->gbnf);
    kin_text_print(w->line, "%s ([^{ \\t\\n\\r] .*)? | ", space);
    kin_text_print(w->line, "%s \"{\" %s ([^\" \\t\\n\\r] .* | no-name .*)? | ", space, space);
    kin_text_print(w->line, "%s \"{\" %s \"\\\"name\\\"\" %s \":\" %s ([^\" \\t\\n\\r] .* | no-tool .*) | %s calls", space, space,
                   space, space, space);
}

static void put_text_and_calls(writer *w) {
    static const char *const tags[] = {"<function=", "<tool_call>"}, *const mistral[] = {"[TOOL_CALLS]"};
    switch (w->rules->format) {
    case KIN_REPLY_LLAMA: put_llama_text(w); return;
    case KIN_REPLY_MISTRAL:
    case KIN_REPLY_MISTRAL_ARGS: put_text_without(w, mistral, 1); break;
    case KIN_REPLY_XML: put_text_without(w, tags, 2); break;
    default: put_text_without(w, tags + 1, 1);
    }
    put(w, "calls?");
}

static int put_json_text(writer *w) {
    kin_json json;
    if (kin_json_parse(&json, w->rules->schema.at, w->rules->schema.len, w->err) != 0) return kin_err_prefix(w->err, "schema");
    kin_text_buffer *relaxed = w->rules->strict ? NULL : w->rules->relaxed;
    int rc = kin_schema_put_rules(&json, json.values, relaxed, w->line, w->to, w->err);
    kin_json_fini(&json);
    return rc;
}

static int put_body_rule(writer *w) {
    bool has_calls = w->rules->n_tools > 0 && w->rules->format != KIN_REPLY_PLAIN;
    int rc = has_calls ? put_call_rule(w) : 0;
    if (rc == 0 && has_calls) put_calls_rule(w);
    if (rc == 0 && w->rules->required) {
        put(w, "ws calls"); // SentencePiece models tend to begin with a space
    } else if (rc == 0 && w->rules->schema.len > 0) {
        rc = put_json_text(w);
        if (has_calls) put(w, " | ws calls");
    } else if (rc == 0 && has_calls) {
        put_text_and_calls(w);
    } else {
        put(w, ".*");
    }
    end_rule(w, "body");
    return rc;
}

// ---- reasoning

static void put_root_rule(writer *w) {
    static const char *const end_think[] = {"</think>"};
    bool may_end = !w->rules->required && w->rules->schema.len == 0; // the reply may end within the reasoning
    if (w->rules->thinking == KIN_THINKING_MAY_BEGIN) {
        put(w, "([ \\t\\n\\r]{0,8} ");
        put_marker(w, "<think>");
    }
    if (w->rules->thinking != KIN_THINKING_NONE) {
        put_text_without(w, end_think, 1);
        if (may_end) put(w, "(");
        put_marker(w, "</think>");
        put(w, "[ \\t\\n\\r]{0,8} ");
    }
    put(w, "body");
    if (w->rules->thinking != KIN_THINKING_NONE && may_end) put(w, ")?");
    if (w->rules->thinking == KIN_THINKING_MAY_BEGIN) put(w, " | body)");
    end_rule(w, "root");
}

// ---- the whole grammar

static int write_rules(const kin_reply_rules *rules, const kin_vocab *vocab, bool any_arguments, kin_schema_grammar *to,
                       kin_err *err) {
    kin_text_buffer line = {0};
    writer w = {
        .rules = rules, .vocab = vocab, .to = to, .gbnf = &to->gbnf, .line = &line, .any_arguments = any_arguments, .err = err};
    if (rules->required && (rules->n_tools == 0 || rules->format == KIN_REPLY_PLAIN))
        return kin_err_set(err, "tools: a call is required, but there is no tool");
    if (rules->n_tools > KIN_REPLY_MAX_TOOLS)
        return kin_err_set(err, "tools: %zu of them, at most 512 are possible", rules->n_tools);
    kin_schema_put_builtins(&to->gbnf);
    int rc = put_body_rule(&w);
    put_root_rule(&w);
    if (rc == 0 && (line.failed || to->gbnf.failed))
        rc = kin_err_set(err, "tools: the grammar is too large, or there is no memory for it");
    kin_text_fini(&line);
    return rc;
}

int kin_reply_rules_to_gbnf(const kin_reply_rules *rules, const kin_vocab *vocab, kin_text_buffer *gbnf, kin_err *err) {
    kin_grammar_budget budget = kin_grammar_budget_of(KIN_GRAMMAR_MAX_STEPS);
    kin_schema_grammar to = {.budget = rules->budget ? rules->budget : &budget};
    int rc = write_rules(rules, vocab, false, &to, err);
    kin_text_put(gbnf, to.gbnf.at, to.gbnf.len);
    kin_schema_grammar_fini(&to);
    return rc;
}

static int compile(kin_grammar **out, const kin_reply_rules *rules, const kin_vocab *vocab, bool any_arguments,
                   kin_grammar_budget *budget, kin_err *err) {
    kin_schema_grammar to = {.budget = budget};
    if (rules->relaxed) rules->relaxed->len = 0;
    int rc = write_rules(rules, vocab, any_arguments, &to, err);
    if (rc == 0) rc = kin_schema_grammar_compile(&to, out, err);
    kin_schema_grammar_fini(&to);
    return rc;
}

int kin_reply_grammar_new(kin_grammar **out, const kin_reply_rules *rules, const kin_vocab *vocab, kin_err *err) {
    kin_grammar_budget own = kin_grammar_budget_of(KIN_GRAMMAR_MAX_STEPS), *budget = rules->budget ? rules->budget : &own;
    kin_grammar_budget first = *budget; // and a quarter for the calls alone
    *out = NULL;
    first.steps -= first.steps / 4;
    uint64_t n_before = first.steps;
    int rc = compile(out, rules, vocab, false, &first, err);
    budget->steps -= n_before - first.steps;
    budget->is_spent |= first.is_spent;
    if (rc != 0) rc = compile(out, rules, vocab, true, budget, err);
    return rc;
}
