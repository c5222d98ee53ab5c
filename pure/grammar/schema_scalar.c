#include "pure/grammar/schema_scalar.h"

#include <stdio.h>
#include <string.h>

#include "pure/grammar/gbnf.h"
#include "pure/grammar/grammar_compile.h"
#include "pure/grammar/schema_string.h"

int kin_schema_scalars_init(kin_schema_scalars *s, const kin_json *json, const kin_schema_text *text, kin_schema_grammar *to,
                            kin_err *err) {
    *s = (kin_schema_scalars){.json = json, .text = text, .prefix = to->n_rules, .to = to, .err = err};
    return kin_string_table_init(&s->rules, 4, 256) == 0 ? 0 : kin_err_set(err, "schema: out of memory");
}

void kin_schema_scalars_fini(kin_schema_scalars *s) {
    kin_string_table_fini(&s->rules);
}

// ---- rules with look-ahead

typedef enum trial { FITS, IS_EMPTY, IS_TOO_LARGE } trial;

// Compiles with the steps that the budget has for trials.
static int compile_trial(kin_grammar_budget *budget, const kin_text_buffer *gbnf, kin_grammar **out) {
    kin_grammar_budget trial = *budget;
    if (trial.steps > trial.trial_steps) trial.steps = trial.trial_steps;
    uint64_t before = trial.steps;
    int rc = kin_grammar_compile_with(out, gbnf->at, gbnf->len, &(kin_grammar_options){.budget = &trial}, NULL, NULL);
    budget->steps -= before - trial.steps;
    budget->trial_steps -= before - trial.steps;
    budget->is_spent |= trial.is_spent;
    return rc;
}

// Compiles a grammar of this expression or a line end, so that an expression that matches nothing is not an error. If it fits,
// the caller gets the grammar in *out.
static trial try_expression(kin_schema_scalars *s, const kin_text_buffer *expression, kin_grammar **out) {
    kin_text_buffer gbnf = {0};
    kin_grammar *grammar = NULL;
    trial result = IS_TOO_LARGE;
    *out = NULL;
    kin_schema_put_builtins(&gbnf);
    kin_text_print(&gbnf, "root ::= \"\\n\" | all\nall ::= ");
    kin_text_put(&gbnf, expression->at, expression->len);
    kin_text_print(&gbnf, "\n");
    if (!gbnf.failed && compile_trial(s->to->budget, &gbnf, &grammar) == 0) {
        kin_grammar_size size = kin_grammar_get_size(grammar);
        bool has_room = s->n_states + size.n_states <= KIN_SCHEMA_MAX_STATES;
        if (has_room) s->n_states += size.n_states;
        result = size.n_machines == 1 ? IS_EMPTY : has_room ? FITS : IS_TOO_LARGE;
    }
    if (result == FITS)
        *out = grammar;
    else
        kin_grammar_free(grammar);
    kin_text_fini(&gbnf);
    return result;
}

static void put_name(const kin_schema_scalars *s, int64_t rule, kin_text_buffer *to) {
    kin_text_print(to, "a%u-%u", s->prefix, (uint32_t)rule);
}

// Adds a rule with its automaton. Takes the grammar over.
static trial add_rule(kin_schema_scalars *s, const kin_text_buffer *expression, kin_grammar *grammar, int64_t *rule) {
    kin_text_buffer name = {0};
    kin_text_buffer *gbnf = &s->to->gbnf;
    *rule = kin_string_table_add(&s->rules, expression->at, expression->len);
    put_name(s, *rule, &name);
    if (*rule < 0 || name.failed) {
        kin_grammar_free(grammar);
        kin_text_fini(&name);
        return IS_TOO_LARGE;
    }
    int rc = kin_grammar_parts_add(&s->to->parts, name.at, grammar);
    kin_text_print(gbnf, "%s ::= ", name.at);
    kin_text_put(gbnf, expression->at, expression->len);
    kin_text_print(gbnf, "\n");
    kin_text_fini(&name);
    return rc == 0 ? FITS : IS_TOO_LARGE;
}

// Writes a rule for the expression, and appends its name to the line.
static trial put_rule_with_ahead(kin_schema_scalars *s, const kin_text_buffer *expression, kin_text_buffer *line) {
    int64_t known = kin_string_table_find(&s->rules, expression->at, expression->len);
    kin_grammar *grammar;
    trial result = known >= 0 ? FITS : try_expression(s, expression, &grammar);
    if (known < 0 && result == FITS) result = add_rule(s, expression, grammar, &known);
    if (result == IS_EMPTY) kin_text_print(line, "[]");
    if (result == FITS) put_name(s, known, line);
    return result;
}

// ---- strings

static const char too_complex[] = "too complex together with the other keywords of the string: its automaton is too large";

static bool has_length(const kin_schema_facts *facts) {
    return facts->min_length > 0 || facts->max_length != KIN_COUNT_ANY;
}

static void put_length(const kin_schema_facts *facts, const char *of, kin_text_buffer *to) {
    if (facts->min_length > facts->max_length) {
        kin_text_print(to, "[]");
        return;
    }
    kin_text_print(to, "%s{%u,", of, facts->min_length);
    if (facts->max_length != KIN_COUNT_ANY) kin_text_print(to, "%u", facts->max_length);
    kin_text_print(to, "}");
}

static int relax(kin_schema_scalars *s, const kin_schema_list *list, const kin_json_value *word, const char *why) {
    return kin_schema_relax(s->json, list, word, why, s->err);
}

// Appends a pattern; an unsupported one is left out if the list is relaxed.
static int put_pattern_ahead(kin_schema_scalars *s, const kin_schema_list *list, const kin_json_value *pattern, bool *is_last,
                             kin_text_buffer *to) {
    kin_text_buffer one = {0};
    kin_err why;
    int rc = kin_schema_put_pattern(pattern->text, list->is_text ? KIN_SPELLING_TEXT : KIN_SPELLING_JSON_ONCE, &one, &why);
    if (rc != 0) {
        rc = relax(s, list, pattern, why.text);
        *is_last = false;
    } else {
        kin_text_print(to, *is_last ? "" : "&(");
        kin_text_put(to, one.at, one.len);
        kin_text_print(to, *is_last ? "" : " $) ");
    }
    if (one.failed) to->failed = true;
    kin_text_fini(&one);
    return rc;
}

// Writes all keywords of the string after what `all` has: as one expression, or in plain text as look-aheads. *is_open: no
// supported keyword is left. A format is a look-ahead if there is a pattern, whose automaton it keeps small: all texts of a
// format are short, and it is followed no further than they go.
static int put_keywords(kin_schema_scalars *s, const kin_schema_list *list, const kin_schema_facts *facts, kin_text_buffer *all,
                        bool *is_open) {
    bool is_text = list->is_text;
    bool has_last = false; // the last pattern is not a look-ahead but the expression itself, which saves an automaton
    bool is_format = facts->format && facts->n_patterns == 0 && !is_text; // the format is
    size_t len = all->len;
    int rc = 0;
    if (has_length(facts)) {
        kin_text_print(all, "&(");
        put_length(facts, is_text ? "[^\\x00]" : "one", all);
        kin_text_print(all, " $) ");
    }
    if (facts->format) {
        kin_text_print(all, is_format ? "" : "&(");
        kin_schema_put_format(facts->format->text, facts->has_short_times, all);
        kin_text_print(all, is_format ? "" : " $) ");
    }
    for (int i = 0; i < facts->n_patterns && rc == 0; i++) {
        has_last = i + 1 == facts->n_patterns && !is_text;
        rc = put_pattern_ahead(s, list, facts->patterns[i], &has_last, all);
    }
    *is_open = all->len == len;
    if (!has_last && !is_format && !is_text) kin_text_print(all, "one*");
    return rc;
}

static const kin_json_value *first_keyword(const kin_schema_facts *facts) {
    return facts->n_patterns > 0 ? facts->patterns[0] : facts->format;
}

// Returns whether no text matches all patterns and this look-ahead.
static bool exclude(kin_schema_scalars *s, const kin_schema_list *list, const kin_schema_facts *facts, kin_str ahead) {
    kin_text_buffer all = {0};
    kin_grammar *grammar = NULL;
    bool is_last = false;
    uint32_t n_states = s->n_states;
    int rc = 0;
    for (int i = 0; i < facts->n_patterns && rc == 0; i++) rc = put_pattern_ahead(s, list, facts->patterns[i], &is_last, &all);
    kin_text_put(&all, ahead.at, ahead.len);
    kin_text_print(&all, " %s", list->is_text ? "[^\\x00]*" : "one*");
    bool is_excluded = rc == 0 && !all.failed && try_expression(s, &all, &grammar) == IS_EMPTY;
    s->n_states = n_states; // the automaton is not kept
    kin_grammar_free(grammar);
    kin_text_fini(&all);
    return is_excluded;
}

// True if the patterns are those of times without seconds or offset, as some programs write them beside the formats `time` and
// `date-time` (zod's iso.time()): they exclude all times of the format, and all that has other characters than a time.
static bool mean_short_times(kin_schema_scalars *s, const kin_schema_list *list, const kin_schema_facts *facts) {
    static const char no_time[] = "!([0-9T:.Z+-]* $)";
    kin_text_buffer format = {0};
    if (facts->has_short_times || !kin_schema_put_format(facts->format->text, true, NULL)) return false;
    kin_text_print(&format, "&(");
    kin_schema_put_format(facts->format->text, false, &format);
    kin_text_print(&format, " $)");
    bool are_meant = !format.failed && exclude(s, list, facts, kin_text_str(&format)) &&
                     exclude(s, list, facts, (kin_str){no_time, sizeof no_time - 1});
    kin_text_fini(&format);
    return are_meant;
}

// The automaton of a string with a format and patterns is not possible. Copies the facts with shorter times, without the format,
// or without the patterns if the automaton is too large; what is left out is named. Returns false if nothing may change.
static bool change(kin_schema_scalars *s, const kin_schema_list *list, const kin_schema_facts *facts, trial result,
                   kin_schema_facts *changed) {
    *changed = *facts;
    if (!facts->format || facts->n_patterns == 0) return false;
    if (result == IS_EMPTY && mean_short_times(s, list, facts)) {
        changed->has_short_times = true;
    } else if (!list->relaxed) {
        return false;
    } else if (result == IS_TOO_LARGE) {
        changed->n_patterns = 0;
        relax(s, list, facts->patterns[0], too_complex);
    } else {
        changed->format = NULL;
        relax(s, list, facts->format, "no text has the format and matches the other keywords of the string");
    }
    return true;
}

static int put_combined(kin_schema_scalars *s, const kin_schema_list *list, const kin_schema_facts *facts,
                        kin_text_buffer *line) {
    kin_text_buffer all = {0};
    kin_schema_facts changed;
    bool is_open;
    size_t len = line->len;
    kin_text_print(&all, "&(\"\") "); // says nothing, but a rule with look-ahead is compiled on its own
    int rc = put_keywords(s, list, facts, &all, &is_open);
    trial result = rc != 0 || is_open || all.failed ? FITS : put_rule_with_ahead(s, &all, line);
    if (all.failed) line->failed = true;
    if (rc == 0 && is_open) {
        kin_text_print(line, "char*");
    } else if (result != FITS && change(s, list, facts, result, &changed)) {
        line->len = len;
        rc = put_combined(s, list, &changed, line);
    } else if (result == IS_TOO_LARGE) {
        rc = relax(s, list, first_keyword(facts), too_complex);
        if (rc == 0) put_length(facts, "char", line);
    }
    kin_text_fini(&all);
    return rc;
}

// Appends "[^...]", a character that does not begin the mark.
static void put_other(const kin_schema_scalars *s, kin_text_buffer *to) {
    if (s->text->mark_is_token)
        kin_text_print(to, "[^\\x00]");
    else
        kin_text_print(to, "[^\\x00\\x%02X]", (unsigned char)s->text->mark[0]);
}

// A length without other keywords as a repetition, which needs no automaton.
static void put_counted(const kin_schema_scalars *s, const kin_schema_facts *facts, kin_text_buffer *line) {
    kin_text_buffer other = {0};
    put_other(s, &other);
    put_length(facts, other.failed ? "" : other.at, line);
    if (other.failed) line->failed = true;
    kin_text_fini(&other);
}

// The keywords cannot be observed: the text may be any. A length alone is observed if it must be.
static int fall_back(kin_schema_scalars *s, const kin_schema_list *list, const kin_schema_facts *facts, kin_text_buffer *line) {
    static const char why[] = "not possible in plain text, or its automaton is too large";
    const kin_json_value *word = first_keyword(facts);
    if (!word && !list->relaxed) {
        put_counted(s, facts, line);
        return 0;
    }
    int rc = relax(s, list, word ? word : kin_schema_at(s->json, list, 0), why);
    if (rc == 0) kin_text_print(line, "%s", s->text->any);
    return rc;
}

// Writes a rule for the look-aheads and any text after them; if it is too large, for text without the first byte of the mark,
// unless only the length is limited.
static trial put_text_rule(kin_schema_scalars *s, const kin_schema_facts *facts, kin_text_buffer *all, kin_text_buffer *line) {
    size_t len = all->len, line_len = line->len;
    kin_text_put(all, s->text->any_body.at, s->text->any_body.len);
    trial result = all->failed ? IS_TOO_LARGE : put_rule_with_ahead(s, all, line);
    if (result != IS_TOO_LARGE || !first_keyword(facts) || all->failed) return result;
    line->len = line_len;
    all->len = len;
    put_other(s, all);
    kin_text_print(all, "*");
    return put_rule_with_ahead(s, all, line);
}

static int put_text(kin_schema_scalars *s, const kin_schema_list *list, const kin_schema_facts *facts, kin_text_buffer *line) {
    kin_text_buffer all = {0};
    kin_schema_facts changed;
    bool is_open;
    if (s->text->reads_json) kin_text_print(&all, "&((\"\" | [^{[ \\t\\r\\n] [^\\x00]*) $) ");
    int rc = put_keywords(s, list, facts, &all, &is_open);
    size_t len = line->len;
    if (rc == 0 && is_open) {
        kin_text_print(line, s->text->reads_json ? "%s-no-json" : "%s", s->text->any);
    } else if (rc == 0 && !first_keyword(facts) && s->text->mark_is_token && !s->text->reads_json) {
        put_counted(s, facts, line);
    } else if (rc == 0) {
        trial result = put_text_rule(s, facts, &all, line);
        bool is_as_json = result == IS_EMPTY && s->text->quote.len > 0; // no string is valid, and the line says so
        if (result != FITS && change(s, list, facts, result, &changed)) {
            line->len = len;
            rc = put_text(s, list, &changed, line);
        } else if (result != FITS && !is_as_json) {
            line->len = len;
            rc = fall_back(s, list, facts, line);
        }
    }
    if (all.failed) line->failed = true;
    kin_text_fini(&all);
    return rc;
}

static void put_quote(const kin_schema_scalars *s, kin_text_buffer *line) {
    kin_text_print(line, " ");
    kin_text_put(line, s->text->quote.at, s->text->quote.len);
    kin_text_print(line, " ");
}

static int put_text_and_quotes(kin_schema_scalars *s, const kin_schema_list *list, const kin_schema_facts *facts,
                               kin_text_buffer *line) {
    bool has_quote = s->text->quote.len > 0;
    if (has_quote) put_quote(s, line);
    int rc = put_text(s, list, facts, line);
    if (has_quote) put_quote(s, line);
    return rc;
}

int kin_schema_put_string(kin_schema_scalars *s, const kin_schema_list *list, const kin_schema_facts *facts,
                          kin_text_buffer *line) {
    int n = facts->n_patterns + (facts->format != NULL) + has_length(facts), rc = 0;
    bool is_single = n == 1 && (facts->n_patterns == 0 || !kin_schema_pattern_has_lookaround(facts->patterns[0]->text));
    size_t len = line->len;
    kin_err why;
    if (list->is_text) return put_text_and_quotes(s, list, facts, line);
    if (n == 0) {
        kin_text_print(line, "string");
        return 0;
    }
    kin_text_print(line, "\"\\\"\" ");
    if (!is_single) {
        rc = put_combined(s, list, facts, line);
    } else if (facts->n_patterns == 1) {
        if (kin_schema_put_pattern(facts->patterns[0]->text, KIN_SPELLING_JSON, line, &why) != 0) {
            line->len = len;
            if (relax(s, list, facts->patterns[0], why.text) != 0) return KIN_FAIL;
            kin_text_print(line, "string");
            return 0;
        }
    } else if (facts->format) {
        kin_schema_put_format(facts->format->text, false, line);
    } else {
        put_length(facts, "char", line);
    }
    kin_text_print(line, " \"\\\"\"");
    return rc;
}

// ---- numbers

// Writes the number of the keyword as N of %N; returns false if a grammar cannot express it.
static bool put_multiple(const kin_json_value *word, bool *has_fraction, kin_text_buffer *to) {
    kin_decimal d;
    if (kin_decimal_parse(&d, word->text) != 0 || d.n_frac > KIN_GBNF_MAX_FRACTION || d.n_int + d.n_frac > 9) return false;
    kin_text_print(to, "%%%s%.*s", d.n_int == 0 ? "0" : "", d.n_int, d.integer);
    *has_fraction |= d.n_frac > 0;
    if (d.n_frac > 0) kin_text_print(to, ".%.*s", d.n_frac, d.fraction);
    return true;
}

static void put_range(const kin_schema_facts *facts, kin_text_buffer *to) {
    bool integer = !(facts->types & KIN_TYPE_FRACTION);
    if (facts->has_numbers)
        kin_number_range_put(&facts->numbers, integer, to);
    else
        kin_text_print(to, integer ? "integer" : "number");
}

int kin_schema_put_number(kin_schema_scalars *s, const kin_schema_list *list, const kin_schema_facts *facts,
                          kin_text_buffer *line) {
    static const char why[] = "a multiple of a number with this many digits is not supported";
    kin_text_buffer all = {0};
    bool has_fraction = false;
    int rc = 0, n = 0;
    for (int i = 0; i < facts->n_multiples && rc == 0; i++) {
        size_t len = all.len;
        kin_text_print(&all, "&(\"-\"? ");
        if (put_multiple(facts->multiples[i], &has_fraction, &all)) {
            kin_text_print(&all, " $) ");
            n++;
            continue;
        }
        all.len = len;
        rc = relax(s, list, facts->multiples[i], why);
    }
    // Limits the digits, so that readers that round to double get the written number.
    if (n > 0 && (!facts->has_numbers || has_fraction)) kin_text_print(&all, "&(\"-\"? [0-9.]{1,15} $) ");
    put_range(facts, &all);
    trial result = n == 0 || all.failed || rc != 0 ? IS_TOO_LARGE : put_rule_with_ahead(s, &all, line);
    if (n > 0 && rc == 0 && result == IS_TOO_LARGE) rc = relax(s, list, facts->multiples[0], why);
    if (result == IS_TOO_LARGE) put_range(facts, line);
    if (all.failed) line->failed = true;
    kin_text_fini(&all);
    return rc;
}
