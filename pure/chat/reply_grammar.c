#include "pure/chat/reply_grammar.h"

#include <string.h>

#include "pure/chat/reply_grammar_values.h"
#include "pure/grammar/schema_combine.h"
#include "pure/grammar/schema_string.h"

// ---- calls in JSON

static void put_key(kin_reply_writer *w, const char *key) {
    kin_text_print(w->line, "\"\\\"%s\\\"\" ws \":\" ws ", key);
}

static void put_json_literal(kin_reply_writer *w, kin_str text) {
    kin_text_buffer json = {0};
    kin_json_write_string(text, &json);
    if (json.failed) w->line->failed = true;
    kin_reply_put_literal(w, kin_text_str(&json));
    kin_text_fini(&json);
}

static int put_objects(kin_reply_writer *w) {
    const kin_reply_rules *r = w->rules;
    const kin_chat_format *f = w->format;
    kin_reply_put(w, "\"{\" ws ");
    if (f->id_key[0] && f->id_first) {
        put_key(w, f->id_key);
        kin_reply_put(w, "\"\\\"\" [0-9]{1,3} \"\\\"\" ws \",\" ws ");
    }
    if (f->name_key[0]) put_key(w, f->name_key);
    kin_reply_put(w, "(");
    for (size_t i = 0; i < r->n_tools; i++) {
        if (i > 0) kin_reply_put(w, "| ");
        put_json_literal(w, r->tools[i].name);
        kin_reply_put(w, f->name_key[0] ? "ws \",\" ws " : "ws \":\" ws ");
        if (f->name_key[0]) put_key(w, f->arguments_key);
        if (kin_reply_put_arguments(w, &r->tools[i], NULL, "object") != 0) return kin_reply_name_tool(w, &r->tools[i]);
    }
    kin_reply_put(w, ") ws ");
    if (f->id_key[0] && !f->id_first) {
        kin_reply_put(w, "(\",\" ws ");
        put_key(w, f->id_key);
        kin_reply_put(w, "\"\\\"\" [a-zA-Z0-9]{9} \"\\\"\" ws)? ");
    }
    kin_reply_put(w, "\"}\" ");
    return 0;
}

// Names that are not quoted have no white space and no character that begins a mark after them. Between calls as in Python stand
// commas, and a bracket ends them.
static int check_names(kin_reply_writer *w) {
    const kin_chat_format *f = w->format;
    const char forbidden[] = {'{', '(', '<', '[', f->name_end[0], f->id_begin[0], ',', ']'};
    size_t n_forbidden = sizeof forbidden - (f->syntax == KIN_CALL_PYTHON ? 0 : 2);
    for (size_t i = 0; i < w->rules->n_tools; i++) {
        kin_str name = w->rules->tools[i].name;
        bool ok = name.len > 0 && name.len <= KIN_REPLY_MAX_NAME;
        for (size_t k = 0; k < name.len; k++)
            ok = ok && (uint8_t)name.at[k] > 0x20 && !memchr(forbidden, name.at[k], n_forbidden);
        if (!ok) return kin_err_set(w->err, "tool %.*s: the model's format does not support this name", (int)name.len, name.at);
    }
    return 0;
}

static int put_json_calls(kin_reply_writer *w) {
    const kin_reply_rules *r = w->rules;
    const kin_chat_format *f = w->format;
    kin_reply_put(w, "(");
    for (size_t i = 0; i < r->n_tools; i++) {
        kin_reply_put(w, i > 0 ? "| " : "");
        kin_reply_put(w, f->id_names ? "\"functions.\" " : "");
        kin_reply_put_literal(w, r->tools[i].name);
        kin_reply_put(w, f->id_names ? "\":\" [0-9]{1,3} ws " : f->id_begin[0] ? "id ws " : "ws ");
        kin_reply_put_mark(w, f->name_end);
        kin_reply_put(w, "ws ");
        if (kin_reply_put_arguments(w, &r->tools[i], NULL, "object") != 0) return kin_reply_name_tool(w, &r->tools[i]);
    }
    kin_reply_put(w, ") ");
    return 0;
}

static void put_id_rule(kin_reply_writer *w) {
    kin_reply_put(w, "(");
    kin_reply_put_mark(w, w->format->id_begin);
    kin_reply_put(w, "[a-zA-Z0-9]{9})? ");
    kin_reply_end_rule(w, "id");
}

// ---- calls

static void put_name_rule(kin_reply_writer *w) {
    for (size_t i = 0; i < w->rules->n_tools; i++) {
        kin_reply_put(w, i > 0 ? "| " : "");
        kin_reply_put_literal(w, w->rules->tools[i].name);
    }
    kin_reply_end_rule(w, "name");
}

static int put_call_rule(kin_reply_writer *w) {
    const kin_chat_format *f = w->format;
    int rc = f->syntax == KIN_CALL_OBJECT ? 0 : check_names(w);
    if (rc != 0) return rc;
    if (strchr(f->call_begin, KIN_MARK_NAME[0])) put_name_rule(w);
    if (f->id_begin[0]) put_id_rule(w);
    if (f->syntax == KIN_CALL_OBJECT)
        rc = put_objects(w);
    else
        rc = f->syntax == KIN_CALL_JSON ? put_json_calls(w) : kin_reply_put_value_calls(w);
    kin_reply_end_rule(w, "bare");
    if (!f->is_begun) kin_reply_put_mark(w, f->call_begin);
    kin_reply_put(w, f->call_begin[0] ? "ws " : "");
    kin_reply_put_mark(w, f->name_begin);
    kin_reply_put(w, "bare ");
    kin_reply_put(w, f->arguments_end[0] ? "ws " : "");
    kin_reply_put_mark(w, f->arguments_end);
    kin_reply_put(w, f->call_end[0] ? "ws " : "");
    kin_reply_put_mark(w, f->call_end);
    kin_reply_end_rule(w, "call");
    return rc;
}

static void put_calls_rule(kin_reply_writer *w) {
    const kin_chat_format *f = w->format;
    int n_more = w->rules->parallel ? KIN_REPLY_MAX_CALLS - 1 : 0;
    if (f->is_begun) { // the first call's mark is in the prompt, or text precedes it
        kin_reply_put(w, "call (");
        kin_reply_put_mark(w, f->call_begin);
        kin_text_print(w->line, "ws call ws){0,%d} ", n_more);
        kin_reply_end_rule(w, "calls");
        return;
    }
    if (f->calls_begin[0]) {
        kin_reply_put(w, f->is_bare ? "(" : "");
        kin_reply_put_mark(w, f->calls_begin);
        kin_reply_put(w, f->is_bare ? ")? " : "ws ");
    }
    kin_reply_put(w, f->is_list ? "\"[\" ws call ws " : "call ");
    kin_reply_put(w, f->is_list ? "(\",\" ws " : f->is_bare ? "(ws (\";\" ws)? " : "(ws ");
    if (f->ends_messages) kin_reply_put_mark(w, f->text_end);
    kin_text_print(w->line, "%scall%s){0,%d} ", f->ends_messages ? "ws " : "", f->is_list ? " ws" : "", n_more);
    kin_reply_put(w, f->is_list ? "\"]\" " : "");
    kin_reply_put(w, f->calls_end[0] ? "ws " : "");
    kin_reply_put_mark(w, f->calls_end);
    kin_reply_end_rule(w, "calls");
}

// ---- text before calls

// A mark around the text of an answer, which the model may leave out.
static void put_text_mark(kin_reply_writer *w, const char *mark) {
    if (!mark[0] || w->format->is_begun) return;
    kin_reply_put(w, "(ws ");
    kin_reply_put_mark(w, mark);
    kin_reply_put(w, ")? ");
}

// Llama 3's calls have no mark: text must not begin like a call with the name of a tool.
static void put_llama_text(kin_reply_writer *w) {
    static const char space[] = "[ \\t\\n\\r]*";
    kin_str keys[KIN_REPLY_MAX_TOOLS], name = {w->format->name_key, strlen(w->format->name_key)};
    for (size_t i = 0; i < w->rules->n_tools; i++) keys[i] = w->rules->tools[i].name;
    kin_schema_put_other_keys("no-name", &name, 1, false, w->gbnf);
    kin_schema_put_other_keys("no-tool", keys, w->rules->n_tools, false, w->gbnf);
    kin_text_print(w->line, "%s ([^{ \\t\\n\\r] .*)? | ", space);
    kin_text_print(w->line, "%s \"{\" %s ([^\" \\t\\n\\r] .* | no-name .*)? | ", space, space);
    kin_text_print(w->line, "%s \"{\" %s \"\\\"%s\\\"\" %s \":\" %s ([^\" \\t\\n\\r] .* | no-tool .*) | %s calls", space, space,
                   w->format->name_key, space, space, space);
}

// The rest of a text's mark, which the prompt ends with the beginning of.
static void put_begun_text_mark(kin_reply_writer *w) {
    const char *mark = w->format->text_begin;
    size_t n = strlen(w->format->call_begin);
    if (w->format->is_begun) kin_reply_put_literal(w, (kin_str){mark + n, strlen(mark) - n});
}

static void put_text_and_calls(kin_reply_writer *w) {
    const kin_chat_format *f = w->format;
    if (f->is_begun) {
        kin_reply_put(w, "calls | ");
        put_begun_text_mark(w);
        kin_reply_put_text_without(w, f->call_begin);
        kin_reply_put(w, "(");
        kin_reply_put_mark(w, f->call_begin);
        kin_reply_put(w, "calls)? ");
        return;
    }
    if (f->is_bare && f->syntax == KIN_CALL_OBJECT && f->name_key[0]) {
        put_llama_text(w);
        return;
    }
    if (f->is_bare) {
        kin_reply_put(w, "[ \\t\\n\\r]* ([^[{ \\t\\n\\r] .*)? | ws calls");
        return;
    }
    put_text_mark(w, f->text_begin);
    kin_reply_put_text_without_both(w,
                                    f->calls_begin[0]  ? f->calls_begin
                                    : f->call_begin[0] ? f->call_begin
                                                       : f->name_begin,
                                    f->call_begin[0] && f->name_begin[0] == '<' ? f->name_begin : "");
    put_text_mark(w, f->text_end);
    kin_reply_put(w, f->text_end[0] ? "(ws calls)? " : "calls? ");
}

static int put_json_text(kin_reply_writer *w) {
    kin_json json;
    if (kin_json_parse(&json, w->rules->schema.at, w->rules->schema.len, w->err) != 0) return kin_err_prefix(w->err, "schema");
    kin_text_buffer *relaxed = w->rules->strict ? NULL : w->rules->relaxed;
    int rc = kin_schema_put_rules(&json, json.values, NULL, relaxed, w->line, w->to, w->err);
    kin_json_fini(&json);
    return rc;
}

static int put_body_rule(kin_reply_writer *w) {
    const kin_chat_format *f = w->format;
    bool has_calls = w->rules->n_tools > 0 && f->syntax != KIN_CALL_NONE;
    int rc = has_calls ? put_call_rule(w) : 0;
    if (rc == 0 && has_calls) put_calls_rule(w);
    if (rc == 0 && w->rules->required) {
        put_text_mark(w, f->text_begin);
        put_text_mark(w, f->text_end);
        kin_reply_put(w, "ws calls "); // SentencePiece models tend to begin with a space
    } else if (rc == 0 && w->rules->schema.len > 0) {
        put_text_mark(w, f->text_begin);
        put_begun_text_mark(w);
        rc = put_json_text(w);
        kin_reply_put(w, " ");
        put_text_mark(w, f->text_end);
        kin_reply_put(w, has_calls ? "| ws calls " : "");
    } else if (rc == 0 && has_calls) {
        put_text_and_calls(w);
    } else {
        put_begun_text_mark(w);
        kin_reply_put(w, ".* ");
    }
    kin_reply_end_rule(w, "body");
    return rc;
}

// ---- reasoning

static void put_root_rule(kin_reply_writer *w) {
    const kin_chat_format *f = w->format;
    bool may_end = !w->rules->required && w->rules->schema.len == 0; // the reply may end within the reasoning
    bool thinks = w->rules->thinking != KIN_THINKING_NONE && kin_chat_format_thinks(f);
    bool may_begin = thinks && w->rules->thinking == KIN_THINKING_MAY_BEGIN;
    if (may_begin) {
        kin_reply_put(w, "([ \\t\\n\\r]{0,8} ");
        kin_reply_put_mark(w, f->think_begin);
    }
    if (thinks) {
        kin_reply_put_text_without(w, f->think_end);
        kin_reply_put(w, may_end ? "(" : "");
        kin_reply_put_mark(w, f->think_end);
        kin_reply_put(w, "[ \\t\\n\\r]{0,8} ");
    }
    kin_reply_put(w, "body ");
    put_text_mark(w, f->turn_end);
    if (thinks && may_end) kin_reply_put(w, ")?");
    if (may_begin) kin_reply_put(w, "| body ");
    if (may_begin) put_text_mark(w, f->turn_end);
    if (may_begin) kin_reply_put(w, ")");
    kin_reply_end_rule(w, "root");
}

// ---- channels

// A message's text and its end. If the reply may end within the text, a bracket remains open after it.
static void put_message_end(kin_reply_writer *w, bool may_end) {
    kin_reply_put_text_without(w, "<|end|>");
    kin_reply_put(w, may_end ? "(" : "");
    kin_reply_put_mark(w, "<|end|><|start|>assistant");
}

static int put_channel_calls(kin_reply_writer *w) {
    const kin_reply_rules *r = w->rules;
    if (check_names(w) != 0) return KIN_FAIL;
    for (size_t i = 0; i < r->n_tools; i++) {
        kin_reply_put_literal(w, r->tools[i].name);
        kin_reply_put(w, "(");
        kin_reply_put_mark(w, "<|channel|>commentary ");
        kin_reply_put(w, "| \" \") ");
        kin_reply_put(w, "(");
        kin_reply_put_mark(w, "<|constrain|>");
        kin_reply_put(w, ")? \"json\" ");
        kin_reply_put_mark(w, "<|message|>");
        if (kin_reply_put_arguments(w, &r->tools[i], NULL, "object") != 0) return kin_reply_name_tool(w, &r->tools[i]);
        kin_reply_put(w, i + 1 < r->n_tools ? "| " : "");
    }
    kin_reply_end_rule(w, "to-tool");
    kin_reply_put(w, "(\" \"? | ");
    kin_reply_put_mark(w, "<|channel|>");
    kin_reply_put(w, "(\"commentary \" | \"analysis \")) \"to=functions.\" to-tool");
    kin_reply_end_rule(w, "calls");
    return 0;
}

static int put_channel_rules(kin_reply_writer *w) {
    bool has_calls = w->rules->n_tools > 0, may_end = !w->rules->required && w->rules->schema.len == 0;
    int rc = has_calls ? put_channel_calls(w) : 0;
    if (rc == 0 && w->rules->schema.len > 0) rc = put_json_text(w);
    if (w->rules->schema.len == 0) kin_reply_put_text_without(w, "<|end|>");
    kin_reply_end_rule(w, "body");
    kin_reply_put_mark(w, "<|channel|>analysis<|message|>");
    put_message_end(w, false);
    kin_reply_end_rule(w, "thought");
    kin_reply_put_mark(w, "<|channel|>commentary<|message|>");
    put_message_end(w, false);
    kin_reply_end_rule(w, "preamble");
    bool begun = w->rules->thinking == KIN_THINKING_BEGUN;
    if (begun) put_message_end(w, may_end); // the prompt ends with the beginning of a thought
    kin_reply_put(w, w->rules->thinking == KIN_THINKING_NONE ? "" : "thought{0,16} ");
    kin_reply_put(w, has_calls ? "preamble{0,4} (" : "(");
    kin_reply_put(w, has_calls ? "calls" : "");
    if (!w->rules->required) {
        kin_reply_put(w, has_calls ? " | " : "");
        kin_reply_put_mark(w, "<|channel|>final<|message|>");
        kin_reply_put(w, "body");
    }
    kin_reply_put(w, may_end ? ")?" : ")");
    kin_reply_put(w, begun && may_end ? ")?" : "");
    kin_reply_end_rule(w, "root");
    return rc;
}

// ---- the whole grammar

static int write_rules(const kin_reply_rules *rules, const kin_vocab *vocab, bool any_arguments, kin_schema_grammar *to,
                       kin_err *err) {
    kin_text_buffer line = {0};
    kin_reply_writer w = {.rules = rules,
                          .format = rules->format ? rules->format : kin_chat_format_known(KIN_CHAT_PLAIN),
                          .vocab = vocab,
                          .to = to,
                          .gbnf = &to->gbnf,
                          .line = &line,
                          .any_arguments = any_arguments,
                          .err = err};
    bool has_channels = w.format->syntax == KIN_CALL_CHANNELS;
    if (rules->required && (rules->n_tools == 0 || w.format->syntax == KIN_CALL_NONE))
        return kin_err_set(err, "tools: a call is required, but there are no tools");
    if (rules->n_tools > KIN_REPLY_MAX_TOOLS) return kin_err_set(err, "tools: %zu tools, but the limit is 512", rules->n_tools);
    kin_schema_put_builtins(&to->gbnf);
    int rc = has_channels ? put_channel_rules(&w) : put_body_rule(&w);
    if (!has_channels) put_root_rule(&w);
    if (rc == 0 && (line.failed || to->gbnf.failed)) rc = kin_err_set(err, "tools: the grammar is too large, or out of memory");
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
