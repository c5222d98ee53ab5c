#include "pure/grammar/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pure/grammar/schema_combine.h"
#include "pure/grammar/schema_scalar.h"
#include "pure/grammar/schema_string.h"
#include "pure/text/string_table.h"

// There is one rule for each list of combined schemas: s0, s1, ... A list is added to the table when it is first mentioned;
// rules are written in order. Helper rules of s7 are named s7-...
typedef struct builder {
    kin_json json;
    kin_string_table lists; // keyed by their bytes
    uint32_t n_before;      // rules of other schemas in the same grammar
    uint64_t work;          // sum of the squares of the sizes of lists so far
    kin_schema_scalars scalars;
    kin_text_buffer *out; // to->gbnf
    kin_schema_grammar *to;
    kin_err *err;
} builder;

enum { MAX_WORK = 1 << 26, MEMBERS_OF_A_STEP = 4 };
#define IS_TEXT UINT32_MAX // after the entries of a list in the table

static int fail_build(const builder *b, const char *what) {
    return kin_err_set(b->err, "schema: %s", what);
}

static bool has_quotes(const builder *b) {
    return b->scalars.text && b->scalars.text->quote.len > 0;
}

// ---- rules

// Writes the name of a list's rule. The list is expanded.
static int put_rule(builder *b, kin_schema_list *list, kin_text_buffer *to) {
    list->is_text |= has_quotes(b);
    if (kin_schema_list_expand(list, &b->json, b->err) != 0) return KIN_FAIL;
    if (list->impossible) {
        kin_text_print(to, "[]");
    } else if (list->n == 0) {
        kin_text_print(to, "%s", has_quotes(b) ? "any" : list->is_text ? b->scalars.text->any : "value");
    } else {
        uint32_t key[KIN_SCHEMA_MAX_COMBINED + 1];
        memcpy(key, list->entries, list->n * sizeof *key);
        key[list->n] = IS_TEXT;
        int64_t rule = kin_string_table_add(&b->lists, (const char *)key, (list->n + list->is_text) * sizeof *key);
        if (rule < 0) return fail_build(b, "out of memory");
        if (rule >= KIN_SCHEMA_MAX_RULES)
            return fail_build(b, "too large: more than 4096 different schemas after expanding references and combinations");
        kin_text_print(to, "s%u", b->n_before + (uint32_t)rule);
    }
    return 0;
}

static void put_on_line(kin_text_buffer *to, kin_str text) {
    for (size_t i = 0; i < text.len; i++) kin_text_print(to, "%c", (uint8_t)text.at[i] < 0x20 ? '?' : text.at[i]);
}

// Notes the place of a rule, for the sentence that a schema has no valid document.
static void note_place(builder *b, const kin_json_value *value, const char *rule) {
    kin_text_buffer *places = &b->to->places;
    char buffer[160];
    const char *path = kin_schema_path(&b->json, value, buffer, sizeof buffer);
    kin_text_print(places, "%s ", rule);
    kin_text_put(places, b->to->name.at, b->to->name.len);
    put_on_line(places, (kin_str){path, strlen(path)});
    kin_text_print(places, "\n");
}

static void note_list(builder *b, const kin_schema_list *list, uint32_t rule) {
    char name[16];
    snprintf(name, sizeof name, "s%u", (unsigned)rule);
    note_place(b, kin_schema_at(&b->json, list, 0), name);
}

static void note_property(builder *b, const kin_schema_list *list, uint32_t rule, size_t i, kin_str name) {
    char helper[40];
    const kin_json_value *value = kin_schema_at(&b->json, list, 0);
    for (uint32_t k = 0; k < list->n; k++) {
        const kin_json_value *all = kin_schema_word(&b->json, list, k, "properties");
        const kin_json_value *one = all ? kin_json_get(&b->json, all, name.at, name.len) : NULL;
        if (one) value = one;
    }
    snprintf(helper, sizeof helper, "s%u-p%zu", (unsigned)rule, i);
    note_place(b, value, helper);
}

// ---- alternatives

// Adds one alternative of its open choice to a copy of the list.
static int choose(builder *b, const kin_schema_list *list, uint32_t entry, unsigned flag, const kin_json_value *alternative,
                  kin_schema_list *out) {
    *out = *list;
    out->entries[entry] |= flag;
    if (kin_schema_list_add(out, &b->json, alternative, b->err) != 0) return KIN_FAIL;
    return kin_schema_list_expand(out, &b->json, b->err);
}

static int check_one_of(builder *b, const kin_schema_list *list, uint32_t entry, const kin_json_value *one_of) {
    kin_err why;
    int i = 0;
    for (const kin_json_value *v = kin_json_first(&b->json, one_of); v; v = kin_json_next(&b->json, v), i++) {
        kin_schema_list written;
        int k = 0;
        if (choose(b, list, entry, KIN_SCHEMA_ONE_OF_CHOSEN, v, &written) != 0) return KIN_FAIL;
        for (const kin_json_value *w = kin_json_first(&b->json, one_of); w; w = kin_json_next(&b->json, w), k++) {
            kin_schema_list other = {.relaxed = list->relaxed};
            if (w == v) continue;
            if (kin_schema_list_add(&other, &b->json, w, b->err) != 0 || kin_schema_list_expand(&other, &b->json, b->err) != 0)
                return KIN_FAIL;
            if (written.impossible || other.impossible || kin_schema_excludes(&b->json, &written, &other)) continue;
            kin_err_set(&why,
                        "alternatives %d and %d (counted from 0) overlap; use anyOf, or distinguish them by a "
                        "required property with const",
                        i, k);
            return kin_schema_relax(&b->json, list, one_of, why.text, b->err);
        }
    }
    return 0;
}

static int put_alternatives(builder *b, const kin_schema_list *list, uint32_t entry, unsigned flag,
                            const kin_json_value *choice) {
    if (flag == KIN_SCHEMA_ONE_OF_CHOSEN && check_one_of(b, list, entry, choice) != 0) return KIN_FAIL;
    for (const kin_json_value *v = kin_json_first(&b->json, choice); v; v = kin_json_next(&b->json, v)) {
        kin_schema_list one;
        if (choose(b, list, entry, flag, v, &one) != 0 || put_rule(b, &one, b->out) != 0) return KIN_FAIL;
        kin_text_print(b->out, v->next ? " | " : "\n");
    }
    return 0;
}

// ---- const and enum

static bool has_mark(kin_str text, const char *mark) {
    const size_t len = strlen(mark);
    for (size_t i = 0; i + len <= text.len; i++)
        if (memcmp(text.at + i, mark, len) == 0) return true;
    return false;
}

static void put_json_literal(const builder *b, const kin_json_value *value, kin_text_buffer *to) {
    kin_text_buffer json = {0};
    kin_json_write(&b->json, value, &json);
    kin_schema_put_literal(kin_text_str(&json), to);
    if (json.failed) to->failed = true;
    kin_text_fini(&json);
}

static void put_key(const builder *b, kin_str name, kin_text_buffer *to) {
    kin_text_buffer json = {0};
    bool is_bare = has_quotes(b) && kin_schema_is_bare_key(name);
    if (!is_bare) kin_json_write_string(name, &json);
    kin_schema_put_literal(is_bare ? name : kin_text_str(&json), to);
    if (json.failed) to->failed = true;
    kin_text_fini(&json);
}

// Appends the expression of a value with the format's own quotes.
static void put_quoted_value(const builder *b, const kin_json_value *value, kin_text_buffer *to) {
    const kin_schema_text *text = b->scalars.text;
    bool is_object = value->kind == KIN_JSON_OBJECT;
    if (value->kind == KIN_JSON_STRING && !has_mark(value->text, text->mark)) {
        kin_text_put(to, text->quote.at, text->quote.len);
        kin_text_print(to, " ");
        kin_schema_put_literal(value->text, to);
        kin_text_print(to, " ");
        kin_text_put(to, text->quote.at, text->quote.len);
    } else if (is_object || value->kind == KIN_JSON_ARRAY) {
        kin_text_print(to, is_object ? "\"{\"" : "\"[\"");
        for (const kin_json_value *v = kin_json_first(&b->json, value); v; v = kin_json_next(&b->json, v)) {
            kin_text_print(to, " ");
            if (is_object) put_key(b, v->key, to);
            kin_text_print(to, is_object ? " \":\" " : "");
            put_quoted_value(b, v, to);
            kin_text_print(to, v->next ? " \",\"" : "");
        }
        kin_text_print(to, is_object ? " \"}\"" : " \"]\"");
    } else {
        put_json_literal(b, value, to);
    }
}

// Appends the expression of a value. Returns false if it cannot be written as text.
static bool put_value(const builder *b, const kin_schema_list *list, const kin_json_value *value, kin_text_buffer *to) {
    bool is_plain = list->is_text && value->kind == KIN_JSON_STRING;
    bool is_bare = value->kind == KIN_JSON_NUMBER || value->kind == KIN_JSON_TRUE || value->kind == KIN_JSON_FALSE;
    if (has_quotes(b)) {
        put_quoted_value(b, value, to);
        return true;
    }
    if (list->is_text && !is_plain && (is_bare || b->scalars.text->only_strings)) return false;
    if (is_plain && has_mark(value->text, b->scalars.text->mark)) return false;
    if (is_plain)
        kin_schema_put_literal(value->text, to);
    else
        put_json_literal(b, value, to);
    return true;
}

static int put_values(builder *b, const kin_schema_list *list, const kin_schema_facts *facts) {
    bool is_const, fits;
    const kin_json_value *values = kin_schema_values(&b->json, list, &is_const);
    kin_text_print(b->out, "[]"); // followed by the alternatives
    for (const kin_json_value *v = is_const ? values : kin_json_first(&b->json, values); v;
         v = is_const ? NULL : kin_json_next(&b->json, v)) {
        size_t len = b->out->len;
        if (kin_schema_value_fits(&b->json, list, facts, v, &fits, b->err) != 0) return KIN_FAIL;
        kin_text_print(b->out, " | ");
        if (!fits || !put_value(b, list, v, b->out)) b->out->len = len;
    }
    kin_text_print(b->out, "\n");
    return 0;
}

// ---- objects

// {A, B?, C}: each property has a rule sN-pI; sN-rI matches the rest after a property, from property I on. The rules form a
// chain, so that commas come only between properties that are present.
typedef struct object {
    kin_str *names;
    size_t n;
    bool others_allowed;
    kin_schema_list others, keys;
    uint32_t rule;
} object;

static int relax_word(builder *b, const kin_schema_list *list, const char *word, const char *why) {
    for (uint32_t i = 0; i < list->n; i++) {
        const kin_json_value *v = kin_schema_word(&b->json, list, i, word);
        if (v && kin_schema_relax(&b->json, list, v, why, b->err) != 0) return KIN_FAIL;
    }
    return 0;
}

static int check_n_properties(builder *b, const kin_schema_list *list, const object *o) {
    uint32_t least = 0, most = KIN_COUNT_ANY, n_required = 0;
    for (uint32_t i = 0; i < list->n; i++) {
        if (kin_schema_read_counts(&b->json, kin_schema_at(&b->json, list, i), "minProperties", "maxProperties", &least, &most,
                                   b->err) != 0)
            return KIN_FAIL;
    }
    for (size_t i = 0; i < o->n; i++) n_required += kin_schema_requires(&b->json, list, o->names[i]);
    if (least > n_required && relax_word(b, list, "minProperties", "only supported if that many properties are required") != 0)
        return KIN_FAIL;
    if (most != KIN_COUNT_ANY && (o->others_allowed || o->n > most))
        return relax_word(b, list, "maxProperties", "only supported if no more properties are possible");
    return 0;
}

static int put_properties(builder *b, const kin_schema_list *list, const object *o) {
    for (size_t i = 0; i < o->n; i++) {
        kin_schema_list property;
        kin_text_print(b->out, "s%u-p%zu ::= ", o->rule, i);
        put_key(b, o->names[i], b->out);
        kin_text_print(b->out, " ws \":\" ws ");
        if (kin_schema_property(&b->json, list, o->names[i], &property, b->err) != 0 || put_rule(b, &property, b->out) != 0)
            return KIN_FAIL;
        kin_text_print(b->out, "\n");
        if (property.impossible) note_property(b, list, o->rule, i, o->names[i]);
    }
    return 0;
}

static int put_rests(builder *b, const kin_schema_list *list, object *o) {
    for (size_t i = 0; i < o->n; i++) {
        bool is_required = kin_schema_requires(&b->json, list, o->names[i]);
        kin_text_print(b->out, "s%u-r%zu ::= (ws \",\" ws s%u-p%zu)%s s%u-r%zu\n", o->rule, i, o->rule, i, is_required ? "" : "?",
                       o->rule, i + 1);
    }
    kin_text_print(b->out, "s%u-r%zu ::=", o->rule, o->n);
    if (!o->others_allowed) {
        kin_text_print(b->out, " \"\"\n"); // without it the next line would continue this rule
        return 0;
    }
    kin_text_print(b->out, " (ws \",\" ws s%u-x)*\ns%u-x ::= s%u-k ws \":\" ws ", o->rule, o->rule, o->rule);
    if (put_rule(b, &o->others, b->out) != 0) return KIN_FAIL;
    kin_text_print(b->out, "\n");
    return 0;
}

// Writes the rule of the object: the alternatives for the first property.
static void put_object_line(builder *b, const kin_schema_list *list, const object *o) {
    bool may_be_empty = true;
    kin_text_print(b->out, "s%u-o ::= \"{\" ws (([]", o->rule);
    for (size_t i = 0; i < o->n && may_be_empty; i++) {
        kin_text_print(b->out, " | s%u-p%zu s%u-r%zu", o->rule, i, o->rule, i + 1);
        may_be_empty = !kin_schema_requires(&b->json, list, o->names[i]);
    }
    if (may_be_empty && o->others_allowed) kin_text_print(b->out, " | s%u-x s%u-r%zu", o->rule, o->rule, o->n);
    kin_text_print(b->out, ") ws)%s \"}\"\n", may_be_empty ? "?" : "");
}

// Writes a rule for the keys of other properties: of schemas, if their list has any, else any but those of the object. Sorts the
// object's names, which are no longer needed in order.
static int put_keys(builder *b, object *o) {
    kin_text_buffer name = {0};
    int rc = 0;
    kin_text_print(&name, "s%u-k", o->rule);
    if (!name.failed && o->keys.n == 0) {
        kin_schema_put_other_keys(name.at, o->names, o->n, has_quotes(b), b->out);
    } else if (!name.failed) {
        kin_text_print(b->out, "%s ::= ", name.at);
        rc = put_rule(b, &o->keys, b->out);
        kin_text_print(b->out, "\n");
    }
    if (name.failed) b->out->failed = true;
    kin_text_fini(&name);
    return rc;
}

static int put_object(builder *b, const kin_schema_list *list, uint32_t rule) {
    object o = {.rule = rule};
    if (kin_schema_others(&b->json, list, &o.others_allowed, &o.others, b->err) != 0) return KIN_FAIL;
    if (kin_schema_names(&b->json, list, &o.names, &o.n, b->err) != 0) return KIN_FAIL;
    int rc = kin_schema_keys(&b->json, list, o.n, &o.keys, b->err);
    if (rc == 0) rc = check_n_properties(b, list, &o);
    if (rc == 0) rc = put_properties(b, list, &o);
    if (rc == 0) rc = put_rests(b, list, &o);
    if (rc == 0) put_object_line(b, list, &o);
    if (rc == 0 && o.others_allowed) rc = put_keys(b, &o);
    free(o.names);
    return rc;
}

// ---- arrays

// sN-aI: item I and the items after it.
static int put_array(builder *b, const kin_schema_list *list, const kin_schema_facts *facts, uint32_t rule) {
    uint32_t n_prefix = kin_schema_n_prefix(&b->json, list), least = facts->min_items, most = facts->max_items, i = 0;
    kin_schema_list item;
    if (least > most) {
        kin_text_print(b->out, "s%u-a ::= []\n", rule);
        return 0;
    }
    for (; i < n_prefix && i < most; i++) {
        kin_text_print(b->out, "s%u-a%u ::= ", rule, i);
        if (kin_schema_item(&b->json, list, i, &item, b->err) != 0 || put_rule(b, &item, b->out) != 0) return KIN_FAIL;
        if (i + 1 < most) kin_text_print(b->out, " (ws \",\" ws s%u-a%u)%s", rule, i + 1, i + 1 < least ? "" : "?");
        kin_text_print(b->out, "\n");
    }
    if (i < most) {
        kin_text_print(b->out, "s%u-i ::= ", rule);
        if (kin_schema_item(&b->json, list, i, &item, b->err) != 0 || put_rule(b, &item, b->out) != 0) return KIN_FAIL;
        kin_text_print(b->out, "\ns%u-a%u ::= s%u-i (ws \",\" ws s%u-i){%u,", rule, i, rule, rule,
                       least > i + 1 ? least - i - 1 : 0);
        if (most != KIN_COUNT_ANY) kin_text_print(b->out, "%u", most - i - 1);
        kin_text_print(b->out, "}\n");
    }
    kin_text_print(b->out, "s%u-a ::= \"[\" ws ", rule);
    if (most > 0) kin_text_print(b->out, "(s%u-a0 ws)%s", rule, least > 0 ? "" : "?");
    kin_text_print(b->out, " \"]\"\n");
    return 0;
}

// ---- all types

// Writes one alternative for each type. strings, numbers: their expressions.
static void put_types_line(builder *b, const kin_schema_facts *facts, unsigned types, uint32_t rule, kin_str strings,
                           kin_str numbers) {
    kin_text_print(b->out, "s%u ::= []", rule); // followed by the alternatives
    if (types & KIN_TYPE_OBJECT && facts->has_object_words)
        kin_text_print(b->out, " | s%u-o", rule);
    else if (types & KIN_TYPE_OBJECT)
        kin_text_print(b->out, has_quotes(b) ? " | any-object" : " | object");
    if (types & KIN_TYPE_ARRAY && facts->has_array_words)
        kin_text_print(b->out, " | s%u-a", rule);
    else if (types & KIN_TYPE_ARRAY)
        kin_text_print(b->out, has_quotes(b) ? " | any-array" : " | array");
    if (strings.len > 0) {
        kin_text_print(b->out, " | ");
        kin_text_put(b->out, strings.at, strings.len);
    }
    if (numbers.len > 0) {
        kin_text_print(b->out, " | ");
        kin_text_put(b->out, numbers.at, numbers.len);
    }
    if (types & KIN_TYPE_BOOLEAN) kin_text_print(b->out, " | \"true\" | \"false\"");
    if (types & KIN_TYPE_NULL) kin_text_print(b->out, " | \"null\"");
    kin_text_print(b->out, "\n");
}

static int put_types(builder *b, const kin_schema_list *list, const kin_schema_facts *facts, uint32_t rule) {
    kin_text_buffer strings = {0}, numbers = {0};
    unsigned types = facts->types;
    int rc = 0;
    if (list->is_text && !has_quotes(b))
        types &= b->scalars.text->only_strings ? KIN_TYPE_STRING : ~(KIN_TYPE_NUMBER | KIN_TYPE_BOOLEAN);
    if (types & KIN_TYPE_OBJECT && facts->has_object_words) rc = put_object(b, list, rule);
    if (rc == 0 && types & KIN_TYPE_ARRAY && facts->has_array_words) rc = put_array(b, list, facts, rule);
    if (rc == 0 && types & KIN_TYPE_STRING) rc = kin_schema_put_string(&b->scalars, list, facts, &strings);
    if (rc == 0 && types & KIN_TYPE_NUMBER) rc = kin_schema_put_number(&b->scalars, list, facts, &numbers);
    if (rc == 0) put_types_line(b, facts, types, rule, (kin_str){strings.at, strings.len}, (kin_str){numbers.at, numbers.len});
    if (strings.failed || numbers.failed) b->out->failed = true;
    kin_text_fini(&strings);
    kin_text_fini(&numbers);
    return rc;
}

static int put_list(builder *b, const kin_schema_list *list, uint32_t rule) {
    uint32_t entry;
    unsigned flag;
    kin_schema_facts facts;
    uint64_t n_members = kin_schema_n_members(&b->json, list);
    b->work += n_members * n_members;
    if (b->work > MAX_WORK || kin_grammar_spend(b->to->budget, n_members * n_members / MEMBERS_OF_A_STEP, NULL) != 0)
        return fail_build(b, "too many properties, values or alternatives in one place");
    note_list(b, list, rule);
    const kin_json_value *choice = kin_schema_open_choice(&b->json, list, &entry, &flag);
    if (choice) {
        kin_text_print(b->out, "s%u ::= ", rule);
        return put_alternatives(b, list, entry, flag, choice);
    }
    if (kin_schema_get_facts(&b->json, list, &facts, b->err) != 0) return KIN_FAIL;
    if (facts.has_values) {
        kin_text_print(b->out, "s%u ::= ", rule);
        return put_values(b, list, &facts);
    }
    return put_types(b, list, &facts, rule);
}

// ---- whole schemas

int kin_schema_put_rules(const kin_json *json, const kin_json_value *schema, const kin_schema_text *text,
                         kin_text_buffer *relaxed, kin_text_buffer *rule, kin_schema_grammar *to, kin_err *err) {
    builder b = {.json = *json, .n_before = to->n_rules, .out = &to->gbnf, .to = to, .err = err};
    kin_schema_list list = {.relaxed = relaxed, .is_text = text != NULL};
    int rc = kin_string_table_init(&b.lists, 16, 256) == 0 ? 0 : fail_build(&b, "out of memory");
    if (rc == 0) rc = kin_schema_scalars_init(&b.scalars, &b.json, text, to, err);
    if (rc == 0) rc = kin_schema_list_add(&list, json, schema, err);
    if (rc == 0) rc = put_rule(&b, &list, rule);
    for (uint32_t i = 0; rc == 0 && i < b.lists.n; i++) { // the loop may add lists
        kin_schema_list one = {.relaxed = relaxed, .n = (uint32_t)(kin_string_table_len(&b.lists, i) / sizeof *one.entries)};
        uint32_t key[KIN_SCHEMA_MAX_COMBINED + 1];
        memcpy(key, kin_string_table_at(&b.lists, i), one.n * sizeof *key);
        one.is_text = key[one.n - 1] == IS_TEXT;
        one.n -= one.is_text;
        memcpy(one.entries, key, one.n * sizeof *key);
        rc = put_list(&b, &one, b.n_before + i);
    }
    to->n_rules += b.lists.n;
    if (rc == 0 && to->n_rules > KIN_SCHEMA_MAX_RULES)
        rc = fail_build(&b, "too large: all schemas together need more than 4096 rules");
    kin_schema_scalars_fini(&b.scalars);
    kin_string_table_fini(&b.lists);
    return rc;
}

static int put_schema(kin_str schema, kin_text_buffer *relaxed, kin_schema_grammar *to, kin_err *err) {
    kin_text_buffer root = {0};
    kin_json json;
    if (kin_json_parse(&json, schema.at, schema.len, err) != 0) return kin_err_prefix(err, "schema");
    kin_schema_put_builtins(&to->gbnf);
    int rc = kin_schema_put_rules(&json, json.values, NULL, relaxed, &root, to, err);
    kin_text_print(&to->gbnf, "root ::= ");
    kin_text_put(&to->gbnf, root.at, root.len);
    kin_text_print(&to->gbnf, "\n");
    if (rc == 0 && (root.failed || to->gbnf.failed)) rc = kin_err_set(err, "schema: the grammar is too large, or out of memory");
    kin_text_fini(&root);
    kin_json_fini(&json);
    return rc;
}

int kin_schema_to_gbnf(kin_str schema, kin_text_buffer *relaxed, kin_text_buffer *gbnf, kin_err *err) {
    kin_grammar_budget budget = kin_grammar_budget_of(KIN_GRAMMAR_MAX_STEPS);
    kin_schema_grammar to = {.budget = &budget};
    int rc = put_schema(schema, relaxed, &to, err);
    kin_text_put(gbnf, to.gbnf.at, to.gbnf.len);
    kin_schema_grammar_fini(&to);
    if (rc == 0 && gbnf->failed) rc = kin_err_set(err, "schema: the grammar is too large, or out of memory");
    return rc;
}

int kin_schema_compile(kin_grammar **out, kin_str schema, kin_text_buffer *relaxed, kin_grammar_budget *budget, kin_err *err) {
    kin_grammar_budget own = kin_grammar_budget_of(KIN_GRAMMAR_MAX_STEPS);
    kin_schema_grammar to = {.budget = budget ? budget : &own};
    *out = NULL;
    int rc = put_schema(schema, relaxed, &to, err);
    if (rc == 0) rc = kin_schema_grammar_compile(&to, out, err);
    kin_schema_grammar_fini(&to);
    return rc;
}
