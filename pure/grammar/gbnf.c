#include "pure/grammar/gbnf.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "pure/text/grow.h"
#include "pure/text/utf8.h"
#include "pure/tokenizer/token_reference.h"

enum { MAX_CODEPOINT = 0x10ffff, SURROGATE_FIRST = 0xd800, SURROGATE_LAST = 0xdfff };

typedef struct parser {
    kin_gbnf *gbnf;
    const char *at, *end;
    const char *text;
    int nesting;
    kin_err *err;
} parser;

// ---- errors

static int line_of(const parser *p, const char *at) {
    int line = 1;
    for (const char *c = p->text; c < at; c++) line += *c == '\n';
    return line;
}

static int fail_gbnf(const parser *p, const char *what) {
    return kin_err_set(p->err, "grammar: line %d: %s", line_of(p, p->at), what);
}

static int too_large(const parser *p) {
    return fail_gbnf(p, "the grammar is too large, or out of memory");
}

// ---- building the tree: these return 0, or KIN_FAIL with the error written

static int add_node(parser *p, kin_gbnf_node node, uint32_t *out) {
    kin_gbnf *g = p->gbnf;
    if (kin_grow((void **)&g->nodes, &g->cap_nodes, (uint64_t)g->n_nodes + 1, KIN_GBNF_MAX_NODES, sizeof *g->nodes) != 0)
        return too_large(p);
    *out = g->n_nodes++;
    g->nodes[*out] = node;
    return 0;
}

static int add_bytes(parser *p, const char *at, int n) {
    kin_gbnf *g = p->gbnf;
    if (kin_grow((void **)&g->bytes, &g->cap_bytes, (uint64_t)g->n_bytes + (uint64_t)n, KIN_GBNF_MAX_BYTES, 1) != 0)
        return too_large(p);
    memcpy(g->bytes + g->n_bytes, at, (size_t)n);
    g->n_bytes += (uint32_t)n;
    return 0;
}

static int add_class_range(parser *p, uint32_t lo, uint32_t hi) {
    kin_gbnf *g = p->gbnf;
    if (kin_grow((void **)&g->ranges, &g->cap_ranges, (uint64_t)g->n_ranges + 1, KIN_GBNF_MAX_RANGES, sizeof *g->ranges) != 0)
        return too_large(p);
    g->ranges[g->n_ranges++] = (kin_gbnf_range){lo, hi};
    return 0;
}

// Finds or adds the rule of that name, which may be defined later.
static int rule_named(parser *p, const char *at, size_t len, uint32_t *rule) {
    kin_gbnf *g = p->gbnf;
    if (len > KIN_GBNF_MAX_NAME) return fail_gbnf(p, "the name of a rule is too long");
    int64_t id = kin_string_table_add(&g->names, at, len);
    if (id < 0 || id >= KIN_GBNF_MAX_RULES) return fail_gbnf(p, "more than 16384 rules, or out of memory");
    if (kin_grow((void **)&g->rules, &g->cap_rules, (uint64_t)id + 1, KIN_GBNF_MAX_RULES, sizeof *g->rules) != 0)
        return too_large(p);
    while (g->n_rules <= (uint32_t)id) g->rules[g->n_rules++] = 0;
    *rule = (uint32_t)id;
    return 0;
}

// ---- characters

static bool is_name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

// Skips white space and comments; line ends only if allowed.
static void skip_space(parser *p, bool over_lines) {
    for (; p->at < p->end; p->at++) {
        if (*p->at == '#') {
            while (p->at < p->end && *p->at != '\n' && *p->at != '\r') p->at++;
            if (p->at == p->end) return;
        }
        if (*p->at != ' ' && *p->at != '\t' && (!over_lines || (*p->at != '\n' && *p->at != '\r'))) return;
    }
}

static bool skip_char(parser *p, char c) {
    if (p->at == p->end || *p->at != c) return false;
    p->at++;
    return true;
}

static int parse_hex(parser *p, int n_digits, uint32_t *codepoint) {
    *codepoint = 0;
    for (int i = 0; i < n_digits; i++, p->at++) {
        int value = p->at < p->end ? hex_value(*p->at) : -1;
        if (value < 0) return fail_gbnf(p, "\\x needs 2 hexadecimal digits, \\u 4 and \\U 8");
        *codepoint = *codepoint << 4 | (uint32_t)value;
    }
    if (*codepoint > MAX_CODEPOINT) return fail_gbnf(p, "code points end at U+10FFFF");
    if (*codepoint >= SURROGATE_FIRST && *codepoint <= SURROGATE_LAST)
        return fail_gbnf(p, "U+D800 to U+DFFF are surrogates, not characters");
    return 0;
}

static int parse_escape(parser *p, uint32_t *codepoint) {
    char c = p->at < p->end ? *p->at++ : 0;
    switch (c) {
    case 'x': return parse_hex(p, 2, codepoint);
    case 'u': return parse_hex(p, 4, codepoint);
    case 'U': return parse_hex(p, 8, codepoint);
    case 'n': *codepoint = '\n'; return 0;
    case 'r': *codepoint = '\r'; return 0;
    case 't': *codepoint = '\t'; return 0;
    case '\\':
    case '"':
    case '[':
    case ']':
    case '-': *codepoint = (uint32_t)c; return 0;
    default: return fail_gbnf(p, "unknown escape; must be one of \\n \\r \\t \\\\ \\\" \\[ \\] \\- \\xHH \\uHHHH \\UHHHHHHHH");
    }
}

// Parses one code point of a literal or a class, before its closing character.
static int parse_char(parser *p, uint32_t *codepoint) {
    if (skip_char(p, '\\')) return parse_escape(p, codepoint);
    int len = kin_utf8_len(p->at, (size_t)(p->end - p->at));
    if (len <= 0) return fail_gbnf(p, "invalid UTF-8");
    *codepoint = kin_utf8_get(p->at, len);
    p->at += len;
    return 0;
}

// ---- elements

static int parse_literal(parser *p, uint32_t *out) {
    uint32_t begin = p->gbnf->n_bytes;
    while (!skip_char(p, '"')) {
        uint32_t codepoint;
        char bytes[KIN_UTF8_MAX];
        if (p->at == p->end) return fail_gbnf(p, "the closing '\"' of a literal is missing");
        if (parse_char(p, &codepoint) != 0 || add_bytes(p, bytes, kin_utf8_put(bytes, codepoint)) != 0) return KIN_FAIL;
    }
    return add_node(p, (kin_gbnf_node){.kind = KIN_GBNF_BYTES, .begin = begin, .end = p->gbnf->n_bytes}, out);
}

static int by_lo(const void *a, const void *b) {
    const kin_gbnf_range *x = a, *y = b;
    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

// Sorts ranges [begin, n_ranges) and merges those that overlap or touch.
static void merge_ranges(kin_gbnf *g, uint32_t begin) {
    if (g->n_ranges == begin) return;
    qsort(g->ranges + begin, g->n_ranges - begin, sizeof *g->ranges, by_lo);
    uint32_t last = begin;
    for (uint32_t i = begin + 1; i < g->n_ranges; i++) {
        kin_gbnf_range *before = &g->ranges[last], range = g->ranges[i];
        if (range.lo > before->hi + 1)
            g->ranges[++last] = range;
        else if (range.hi > before->hi)
            before->hi = range.hi;
    }
    g->n_ranges = last + 1;
}

// Adds the code points of [lo, hi], without surrogates.
static int add_scalars(parser *p, uint32_t lo, uint32_t hi) {
    if (lo < SURROGATE_FIRST && add_class_range(p, lo, hi < SURROGATE_FIRST ? hi : SURROGATE_FIRST - 1) != 0) return KIN_FAIL;
    if (hi > SURROGATE_LAST && add_class_range(p, lo > SURROGATE_LAST ? lo : SURROGATE_LAST + 1, hi) != 0) return KIN_FAIL;
    return 0;
}

// Replaces ranges [begin, n_ranges), already merged, by their complement.
static int negate_ranges(parser *p, uint32_t begin) {
    kin_gbnf *g = p->gbnf;
    uint32_t end = g->n_ranges, next = 0;
    for (uint32_t i = begin; i < end; i++) {
        kin_gbnf_range range = g->ranges[i];
        if (range.lo > next && add_scalars(p, next, range.lo - 1) != 0) return KIN_FAIL;
        next = range.hi + 1;
    }
    if (next <= MAX_CODEPOINT && add_scalars(p, next, MAX_CODEPOINT) != 0) return KIN_FAIL;
    if (end > begin) memmove(g->ranges + begin, g->ranges + end, (g->n_ranges - end) * sizeof *g->ranges);
    g->n_ranges -= end - begin;
    return 0;
}

static int add_class(parser *p, uint32_t begin, uint32_t *out) {
    return add_node(p, (kin_gbnf_node){.kind = KIN_GBNF_CLASS, .begin = begin, .end = p->gbnf->n_ranges}, out);
}

static int parse_class(parser *p, uint32_t *out) {
    uint32_t begin = p->gbnf->n_ranges;
    bool negate = skip_char(p, '^');
    while (!skip_char(p, ']')) {
        uint32_t lo, hi;
        if (p->at == p->end) return fail_gbnf(p, "the closing ']' of a character class is missing");
        if (parse_char(p, &lo) != 0) return KIN_FAIL;
        hi = lo;
        if (p->end - p->at >= 2 && p->at[0] == '-' && p->at[1] != ']') {
            p->at++;
            if (parse_char(p, &hi) != 0) return KIN_FAIL;
        }
        if (hi < lo) return fail_gbnf(p, "a character range ends before it begins");
        if (add_scalars(p, lo, hi) != 0) return KIN_FAIL;
    }
    merge_ranges(p->gbnf, begin);
    if (negate && negate_ranges(p, begin) != 0) return KIN_FAIL;
    return add_class(p, begin, out);
}

static int parse_any(parser *p, uint32_t *out) {
    uint32_t begin = p->gbnf->n_ranges;
    return add_scalars(p, 0, MAX_CODEPOINT) == 0 ? add_class(p, begin, out) : KIN_FAIL;
}

static const char *parse_name(parser *p, size_t *len) {
    const char *begin = p->at;
    while (p->at < p->end && is_name_char(*p->at)) p->at++;
    *len = (size_t)(p->at - begin);
    return begin;
}

static int parse_rule_name(parser *p, uint32_t *out) {
    size_t len;
    uint32_t rule;
    const char *name = parse_name(p, &len);
    if (rule_named(p, name, len, &rule) != 0) return KIN_FAIL;
    return add_node(p, (kin_gbnf_node){.kind = KIN_GBNF_RULE, .rule = rule}, out);
}

static int parse_choice(parser *p, uint32_t *out);

static int parse_group(parser *p, uint32_t *out) {
    if (++p->nesting > KIN_GBNF_MAX_NESTING) return fail_gbnf(p, "parentheses are nested more than 64 deep");
    skip_space(p, true);
    if (parse_choice(p, out) != 0) return KIN_FAIL;
    p->nesting--;
    return skip_char(p, ')') ? 0 : fail_gbnf(p, "')' is missing");
}

static int parse_gbnf_number(parser *p, uint32_t *number) {
    uint64_t value = 0;
    const char *begin = p->at;
    for (; p->at < p->end && *p->at >= '0' && *p->at <= '9'; p->at++) {
        value = value * 10 + (uint64_t)(*p->at - '0');
        if (value > KIN_GBNF_MAX_REPEAT) return fail_gbnf(p, "a number is larger than 2147483647");
    }
    if (p->at == begin) return fail_gbnf(p, "a number is missing: {m}, {m,}, {m,n} or <[id]>");
    *number = (uint32_t)value;
    return 0;
}

// Called after '<'.
static int parse_token(parser *p, uint32_t *out) {
    uint32_t begin = p->gbnf->n_bytes, id;
    char bytes[KIN_TOKEN_REFERENCE_BYTES];
    if (!skip_char(p, '['))
        return fail_gbnf(p, "tokens cannot be referenced by name; write their text, or <[id]> for a control token");
    if (parse_gbnf_number(p, &id) != 0) return KIN_FAIL;
    if (id >= KIN_VOCAB_MAX_TOKENS) return fail_gbnf(p, "the token id is too large");
    if (!skip_char(p, ']') || !skip_char(p, '>')) return fail_gbnf(p, "\"]>\" is missing after a token id");
    kin_token_reference_put(bytes, (int32_t)id);
    if (add_bytes(p, bytes, sizeof bytes) != 0) return KIN_FAIL;
    return add_node(p, (kin_gbnf_node){.kind = KIN_GBNF_BYTES, .begin = begin, .end = p->gbnf->n_bytes}, out);
}

// Called after '&' or '!'.
static int parse_ahead(parser *p, bool negated, uint32_t *out) {
    uint32_t child;
    skip_space(p, p->nesting > 0);
    if (!skip_char(p, '(')) return fail_gbnf(p, "'(' is missing after '&' or '!'");
    if (parse_group(p, &child) != 0) return KIN_FAIL;
    return add_node(p, (kin_gbnf_node){.kind = KIN_GBNF_AHEAD, .child = child, .negated = negated}, out);
}

// Called after '%'.
static int parse_multiple(parser *p, uint32_t *out) {
    kin_gbnf_node node = {.kind = KIN_GBNF_MULTIPLE};
    uint64_t number = 0;
    int n_digits = 0;
    bool has_point = false;
    for (; p->at < p->end && number < UINT32_MAX; p->at++) {
        if (*p->at == '.' && !has_point && n_digits > 0) {
            has_point = true;
            continue;
        }
        if (*p->at < '0' || *p->at > '9') break;
        number = number * 10 + (uint64_t)(*p->at - '0');
        node.n_fraction += has_point;
        n_digits++;
    }
    while (node.n_fraction > 0 && number % 10 == 0) number /= 10, node.n_fraction--;
    node.number = (uint32_t)number;
    if (number == 0 || number > KIN_GBNF_MAX_REPEAT || node.n_fraction > KIN_GBNF_MAX_FRACTION)
        return fail_gbnf(p, "%N needs a number above 0 and below 2147483648, with at most 9 digits after the point");
    return add_node(p, node, out);
}

// Sets *found to false if no element begins here.
static int parse_element(parser *p, uint32_t *out, bool *found) {
    *found = p->at < p->end;
    if (!*found) return 0;
    if (skip_char(p, '"')) return parse_literal(p, out);
    if (skip_char(p, '[')) return parse_class(p, out);
    if (skip_char(p, '.')) return parse_any(p, out);
    if (skip_char(p, '(')) return parse_group(p, out);
    if (is_name_char(*p->at)) return parse_rule_name(p, out);
    if (skip_char(p, '<')) return parse_token(p, out);
    if (skip_char(p, '$')) return add_node(p, (kin_gbnf_node){.kind = KIN_GBNF_END}, out);
    if (skip_char(p, '%')) return parse_multiple(p, out);
    if (*p->at == '!' && p->end - p->at > 1 && p->at[1] == '<') return fail_gbnf(p, "'!' cannot negate a token id");
    if (*p->at == '&' || *p->at == '!') return parse_ahead(p, *p->at++ == '!', out);
    *found = false;
    return 0;
}

// ---- repetitions

// Called after '{'.
static int parse_bounds(parser *p, uint32_t *min, uint32_t *max) {
    skip_space(p, false);
    if (p->at < p->end && *p->at == ',')
        *min = 0;
    else if (parse_gbnf_number(p, min) != 0)
        return KIN_FAIL;
    *max = *min;
    skip_space(p, false);
    if (skip_char(p, ',')) {
        skip_space(p, false);
        *max = KIN_GBNF_UNBOUNDED;
        if (p->at < p->end && *p->at != '}' && parse_gbnf_number(p, max) != 0) return KIN_FAIL;
        skip_space(p, false);
    }
    if (*max < *min) return fail_gbnf(p, "the upper bound of a repetition is below the lower bound");
    return skip_char(p, '}') ? 0 : fail_gbnf(p, "'}' is missing");
}

// Parses the repetition operators * + ? {m,n} after an element; each applies to everything before it.
static int parse_repetitions(parser *p, uint32_t *node) {
    for (int n = 0;; n++) {
        skip_space(p, p->nesting > 0);
        uint32_t min = 0, max = KIN_GBNF_UNBOUNDED;
        if (skip_char(p, '+'))
            min = 1;
        else if (skip_char(p, '?'))
            max = 1;
        else if (skip_char(p, '{')) {
            if (parse_bounds(p, &min, &max) != 0) return KIN_FAIL;
        } else if (!skip_char(p, '*'))
            return 0;
        if (n == KIN_GBNF_MAX_STACKED) return fail_gbnf(p, "more than 4 repetitions in a row");
        if (add_node(p, (kin_gbnf_node){.kind = KIN_GBNF_REPEAT, .child = *node, .min = min, .max = max}, node) != 0)
            return KIN_FAIL;
    }
}

static int parse_sequence(parser *p, uint32_t *out) {
    uint32_t last = 0;
    if (add_node(p, (kin_gbnf_node){.kind = KIN_GBNF_SEQUENCE}, out) != 0) return KIN_FAIL;
    for (;;) {
        uint32_t node = 0;
        bool found;
        if (parse_element(p, &node, &found) != 0) return KIN_FAIL;
        if (!found) return 0;
        if (parse_repetitions(p, &node) != 0) return KIN_FAIL;
        kin_gbnf_node *nodes = p->gbnf->nodes;
        *(last ? &nodes[last].next : &nodes[*out].child) = node;
        last = node;
    }
}

static int parse_choice(parser *p, uint32_t *out) {
    uint32_t last, node;
    if (parse_sequence(p, &node) != 0) return KIN_FAIL;
    *out = last = node;
    if (p->at == p->end || *p->at != '|') return 0;
    if (add_node(p, (kin_gbnf_node){.kind = KIN_GBNF_CHOICE, .child = node}, out) != 0) return KIN_FAIL;
    while (skip_char(p, '|')) {
        skip_space(p, true);
        if (parse_sequence(p, &node) != 0) return KIN_FAIL;
        p->gbnf->nodes[last].next = node;
        last = node;
    }
    return 0;
}

// ---- rules

static int parse_rule(parser *p) {
    size_t len;
    uint32_t rule, node;
    const char *name = parse_name(p, &len);
    if (len == 0) return fail_gbnf(p, "expected a rule: NAME ::= ...");
    if (rule_named(p, name, len, &rule) != 0) return KIN_FAIL;
    if (p->gbnf->rules[rule] != 0)
        return kin_err_set(p->err, "grammar: line %d: the rule '%.*s' is defined twice", line_of(p, p->at), (int)len, name);
    skip_space(p, false);
    if (p->end - p->at < 3 || memcmp(p->at, "::=", 3) != 0) return fail_gbnf(p, "expected '::=' after the name of a rule");
    p->at += 3;
    skip_space(p, true);
    if (parse_choice(p, &node) != 0) return KIN_FAIL;
    p->gbnf->rules[rule] = node;
    if (p->at < p->end && *p->at != '\n' && *p->at != '\r')
        return fail_gbnf(p, *p->at == ')' ? "')' without '('" : "unexpected character after a rule");
    skip_space(p, true);
    return 0;
}

static int check_rules(parser *p) {
    kin_gbnf *g = p->gbnf;
    for (uint32_t i = 0; i < g->names.n; i++) {
        int len = (int)kin_string_table_len(&g->names, i);
        if (g->rules[i] == 0)
            return kin_err_set(p->err, "grammar: the rule '%.*s' is used, but not defined", len,
                               kin_string_table_at(&g->names, i));
    }
    int64_t root = kin_string_table_find(&g->names, "root", 4);
    if (root < 0) return kin_err_set(p->err, "grammar: the rule 'root' is missing");
    g->root = (uint32_t)root;
    return 0;
}

int kin_gbnf_parse(kin_gbnf *out, const char *text, size_t len, kin_err *err) {
    *out = (kin_gbnf){0};
    if (len > KIN_GBNF_MAX_BYTES) return kin_err_set(err, "grammar: longer than 4 MiB");
    parser p = {.gbnf = out, .at = text, .end = text + len, .text = text, .err = err};
    uint32_t none;
    int rc = kin_string_table_init(&out->names, 16, 256);
    if (rc != 0) kin_err_set(err, "grammar: out of memory");
    if (rc == 0) rc = add_node(&p, (kin_gbnf_node){.kind = KIN_GBNF_SEQUENCE}, &none);
    skip_space(&p, true);
    while (rc == 0 && p.at < p.end) rc = parse_rule(&p);
    if (rc == 0) rc = check_rules(&p);
    if (rc != 0) kin_gbnf_fini(out);
    return rc;
}

void kin_gbnf_fini(kin_gbnf *gbnf) {
    free(gbnf->nodes);
    free(gbnf->ranges);
    free(gbnf->bytes);
    free(gbnf->rules);
    kin_string_table_fini(&gbnf->names);
    *gbnf = (kin_gbnf){0};
}
