// Grammars: GBNF is matched correctly on every byte; a mask equals the result of testing each token; memory and time are
// bounded.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "pure/grammar/gbnf.h"
#include "pure/grammar/grammar_compile.h"
#include "pure/grammar/grammar_tokens.h"
#include "pure/grammar/matcher.h"
#include "pure/text/utf8.h"
#include "pure/text/utf8_ranges.h"
#include "testkit/sanitized.h"
#include "testkit/small_vocab.h"
#include "tests/place.h"

static kin_grammar *compile(const char *gbnf) {
    kin_grammar *grammar;
    kin_err err = {""};
    kin_grammar_compile(&grammar, gbnf, strlen(gbnf), &err);
    assert_string_equal(err.text, "");
    return grammar;
}
#define compile(...) FROM_TEST(compile(__VA_ARGS__))

static void assert_refused(const char *gbnf, const char *words) {
    kin_grammar *grammar;
    kin_err err = {""};
    assert_int_equal(kin_grammar_compile(&grammar, gbnf, strlen(gbnf), &err), KIN_FAIL);
    assert_null(grammar);
    if (!strstr(err.text, words)) fail_msg("'%s' is not in '%s'", words, err.text);
}
#define assert_refused(...) FROM_TEST(assert_refused(__VA_ARGS__))

// Returns true if the grammar matches the whole text; *n_taken: length of the longest allowed prefix.
static bool matches_with(kin_matcher *m, const char *text, size_t len, size_t *n_taken) {
    kin_place place = {0};
    bool allowed = true;
    assert_int_equal(kin_matcher_begin(m, &place), 0);
    for (*n_taken = 0; *n_taken < len && allowed; *n_taken += allowed)
        assert_int_equal(kin_matcher_accept_bytes(m, &place, text + *n_taken, 1, &allowed), 0);
    bool ends = allowed && kin_place_may_end(&place);
    kin_place_fini(&place);
    return ends;
}
#define matches_with(...) FROM_TEST(matches_with(__VA_ARGS__))

static bool matches_n(const char *gbnf, const char *text, size_t len, size_t *n_taken) {
    kin_grammar *grammar = compile(gbnf);
    kin_matcher *m;
    assert_int_equal(kin_matcher_new(&m, grammar, NULL, NULL), 0);
    bool ends = matches_with(m, text, len, n_taken);
    kin_matcher_free(m);
    kin_grammar_free(grammar);
    return ends;
}
#define matches_n(...) FROM_TEST(matches_n(__VA_ARGS__))

static bool matches(const char *gbnf, const char *text) {
    size_t n_taken;
    return matches_n(gbnf, text, strlen(text), &n_taken);
}
#define matches(...) FROM_TEST(matches(__VA_ARGS__))

// Returns the length of the longest prefix of the text that is allowed.
static size_t taken(const char *gbnf, const char *text) {
    size_t n_taken;
    matches_n(gbnf, text, strlen(text), &n_taken);
    return n_taken;
}
#define taken(...) FROM_TEST(taken(__VA_ARGS__))

// ---- the language

static void literals_sequences_and_choices_match(void **state) {
    (void)state;
    assert_true(matches("root ::= \"abc\"", "abc"));
    assert_false(matches("root ::= \"abc\"", "ab"));
    assert_int_equal(taken("root ::= \"abc\"", "abd"), 2);
    assert_true(matches("root ::= \"a\" \"b\" | \"c\"", "c"));
    assert_true(matches("root ::= \"a\" (\"b\" | \"c\") \"d\"", "acd"));
    assert_true(matches("root ::= \"\"", ""));
    assert_true(matches("root ::=", ""));
    assert_true(matches("root ::= \"a\" |", ""));
    assert_true(matches("# comment\n\nroot ::= # one\n  \"a\" # two\n", "a"));
    assert_true(matches("root ::= (\n \"a\" # comment\n | \"b\"\n)\r\n", "b"));
    assert_true(matches("root ::= x-1\nx-1 ::= y_2\ny_2 ::= \"q\"", "q"));
}

static void escapes_are_code_points(void **state) {
    (void)state;
    assert_true(matches("root ::= \"\\n\\r\\t\\\\\\\"\\[\\]\\x41\\u00e9\\U0001F600\"", "\n\r\t\\\"[]A\xc3\xa9\xf0\x9f\x98\x80"));
    assert_true(matches("root ::= [\\]\\-\\\\\\x41-\\x43]+", "]-\\ABC"));
    assert_refused("root ::= \"\\q\"", "unknown escape");
    assert_refused("root ::= \"\\x4\"", "hexadecimal");
    assert_refused("root ::= \"\\ud800\"", "surrogates");
    assert_refused("root ::= \"\\U00110000\"", "U+10FFFF");
}

static void classes_match_one_code_point(void **state) {
    (void)state;
    assert_true(matches("root ::= [a-c_]", "b"));
    assert_true(matches("root ::= [a-c_]", "_"));
    assert_false(matches("root ::= [a-c_]", "d"));
    assert_true(matches("root ::= [a-]", "-"));
    assert_true(matches("root ::= [^a-c]", "d"));
    assert_false(matches("root ::= [^a-c]", "a"));
    assert_true(matches("root ::= [^a-c]", "\xf0\x9f\x98\x80"));
    assert_true(matches("root ::= [\xc3\xa0-\xc3\xbf]", "\xc3\xa9"));
    assert_false(matches("root ::= [\xc3\xa0-\xc3\xbf]", "\xc3\x89"));
    assert_true(matches("root ::= .", "\n"));
    assert_false(matches("root ::= .", "ab"));
}

static void any_character_is_exactly_utf8(void **state) {
    (void)state;
    kin_grammar *grammar = compile("root ::= .");
    kin_matcher *m;
    assert_int_equal(kin_matcher_new(&m, grammar, NULL, NULL), 0);
    for (uint32_t i = 0; i < 1 << 20; i++) { // all of 3 bytes, and some of 4
        char text[4] = {(char)(i >> 16 | 0xe0), (char)(i >> 8), (char)i, (char)0x80};
        size_t n_taken, n = text[0] >= (char)0xf0 ? 4 : 3;
        bool is_char = kin_utf8_len(text, n) == (int)n;
        if (matches_with(m, text, n, &n_taken) != is_char) fail_msg("%02x", i);
    }
    kin_matcher_free(m);
    kin_grammar_free(grammar);
}

static void pieces_of_a_range_hold_its_code_points_and_no_others(void **state) {
    (void)state;
    kin_rng rng;
    kin_rng_seed(&rng, 1);
    for (int round = 0; round < 300; round++) {
        uint32_t a = (uint32_t)kin_rng_u64(&rng) % (round % 2 ? 0x110000 : 0xa00), n = (uint32_t)kin_rng_u64(&rng) % 0x900;
        uint32_t lo = a, hi = a + n > 0x10ffff ? 0x10ffff : a + n, at = lo, count = 0;
        kin_utf8_piece piece;
        if (hi >= 0xd800 && lo <= 0xdfff) continue;
        while (kin_utf8_ranges_next(&at, hi, &piece)) {
            uint32_t product = 1;
            for (int i = 0; i < piece.n; i++) product *= (uint32_t)(piece.hi[i] - piece.lo[i] + 1);
            count += product;
            assert_true(kin_utf8_get((char *)piece.lo, piece.n) >= lo);
            assert_true(kin_utf8_get((char *)piece.hi, piece.n) <= hi);
        }
        assert_int_equal(count, hi - lo + 1);
    }
}

static void repetitions_have_bounds(void **state) {
    (void)state;
    static const struct {
        const char *repeat;
        int min, max;
    } cases[] = {{"*", 0, 99},
                 {"+", 1, 99},
                 {"?", 0, 1},
                 {"{3}", 3, 3},
                 {"{2,}", 2, 99},
                 {"{2,4}", 2, 4},
                 {"{,4}", 0, 4},
                 {"{0}", 0, 0},
                 {"{0,0}", 0, 0},
                 {"{ 1 , 2 }", 1, 2},
                 {"{0,90}", 0, 90},
                 {"{70,80}", 70, 80},
                 {"{66,}", 66, 99},
                 {"{70}", 70, 70},
                 {"{2}{3}", 6, 6},
                 {"{0,100000}", 0, 99},
                 {"{0,2147483647}", 0, 99}};
    static const char *const elements[] = {"\"x\"", "[^y]", "(\"x\" | \"xx\"{0})", "x"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int e = 0; e < 4; e++) {
            char gbnf[128], text[101];
            memset(text, 'x', 100);
            snprintf(gbnf, sizeof gbnf, "root ::= %s%s \".\"\nx ::= \"x\" | \"(\" root \")\"", elements[e], cases[i].repeat);
            if (e == 2 && cases[i].min > 0) continue; // matches the empty text
            for (int n = 0; n < 99; n += n < 8 || (n > 60 && n < 95) ? 1 : 10) {
                text[n] = '.';
                size_t n_taken;
                bool is_in = n >= cases[i].min && n <= cases[i].max;
                if (matches_n(gbnf, text, (size_t)n + 1, &n_taken) != is_in) fail_msg("%s with %d", gbnf, n);
                text[n] = 'x';
            }
        }
    }
}

static void recursion_matches_brackets_of_any_depth(void **state) {
    (void)state;
    const char *gbnf = "root ::= pair*\npair ::= \"(\" pair* \")\" | \"[\" pair* \"]\"";
    assert_true(matches(gbnf, ""));
    assert_true(matches(gbnf, "([]())[[[]]]"));
    assert_int_equal(taken(gbnf, "([)]"), 2);
    char deep[2 * 400 + 1] = {0};
    memset(deep, '(', 400);
    memset(deep + 400, ')', 400);
    assert_true(matches(gbnf, deep));
}

static void lists_by_recursion_at_the_end_are_not_deep(void **state) {
    (void)state;
    char *text = calloc(1, 20001);
    assert_non_null(text);
    for (int i = 0; i < 10000; i++) memcpy(text + 2 * i, "a,", 2);
    text[19999] = '\0';
    assert_true(matches("root ::= \"a\" | \"a\" \",\" root", text));
    free(text);
}

static void bad_grammars_are_refused_with_the_line(void **state) {
    (void)state;
    assert_refused("", "the rule 'root' is missing");
    assert_refused("other ::= \"a\"", "the rule 'root' is missing");
    assert_refused("root ::= nowhere", "'nowhere' is used, but not defined");
    assert_refused("root ::= \"a\"\nroot ::= \"b\"", "line 2: the rule 'root' is defined twice");
    assert_refused("root ::= \"a", "closing");
    assert_refused("root ::= [a", "closing");
    assert_refused("root ::= (\"a\"", "')' is missing");
    assert_refused("root ::= \"a\")", "without '('");
    assert_refused("root ::= \"a\"\n\n%", "line 3");
    assert_refused("root = \"a\"", "expected '::='");
    assert_refused("root ::= [b-a]", "ends before it begins");
    assert_refused("root ::= \"a\"{2,1}", "the upper bound");
    assert_refused("root ::= \"a\"{99999999999}", "2147483647");
    assert_refused("root ::= \"a\"{x}", "a number is missing");
    assert_refused("root ::= \"\xff\"", "invalid UTF-8");
    assert_refused("root ::= [\xc3\x28]", "invalid UTF-8");
    assert_refused("root ::= \"\xed\xa0\x80\"", "invalid UTF-8");
    assert_refused("root ::= <think> \"a\"", "referenced by name");
    assert_refused("root ::= !<[5]>", "cannot negate");
    assert_refused("root ::= <[5>", "after a token id");
    assert_refused("root ::= <[]>", "number is missing");
    assert_refused("root ::= <[4194304]>", "the token id is too large");
    assert_refused("root ::= \"a\"?????", "more than 4 repetitions");
}

static void left_recursion_is_refused(void **state) {
    (void)state;
    assert_refused("root ::= root \"+\" \"1\" | \"1\"", "left recursion: the rule 'root'");
    assert_refused("root ::= a\na ::= b \"x\"\nb ::= \"y\"? a | \"z\"", "left recursion");
    assert_refused("root ::= e root | \"x\"\ne ::= \"\" | \"a\" root", "left recursion");
    assert_refused("root ::= (root \"a\"){0,100000} \"b\"", "left recursion");
    assert_refused("root ::= root", "");
}

static void parts_that_never_end_are_cut_off(void **state) {
    (void)state;
    assert_refused("root ::= \"a\" root", "matches no text");
    assert_refused("root ::= \"a\" []", "matches no text");
    assert_int_equal(taken("root ::= \"a\" | \"b\" x\nx ::= \"c\" x", "b"), 0);
    assert_int_equal(taken("root ::= \"a\" | \"b\" [] | \"c\" ([]){5} | \"d\"[]*", "b"), 0);
    assert_true(matches("root ::= \"a\" | \"b\" [] | \"c\" ([]){5} | \"d\"[]*", "d"));
}

static void large_grammars_end_with_a_sentence_or_in_a_moment(void **state) {
    (void)state;
    assert_refused("root ::= [ab]* \"a\" [ab]{20} \"x\" | [ab]* \"b\" [ab]{20} \"y\" | x\nx ::= ([ab] [ab]?)* \"a\" [ab] [ab] "
                   "[ab] [ab] [ab] "
                   "[ab] [ab] [ab] [ab] [ab] [ab] [ab] [ab] [ab] [ab] [ab] [ab] [ab]",
                   "too complex");
    char nested[1000] = "root ::= ", *at = nested + strlen(nested);
    for (int i = 0; i < 60; i++) *at++ = '(';
    at += sprintf(at, "\"a\"");
    for (int i = 0; i < 60; i++) at += sprintf(at, "+)");
    assert_true(matches(nested, "aaa"));
    assert_true(matches("root ::= ((((\"a\"{1000}){0,1000}){0,1000}){0,1000}){0,1000}", ""));
    assert_int_equal(taken("root ::= ((((\"a\"{0,1000}){0,1000}){0,1000}){0,1000}){0,1000}", "aaaa"), 4);
}

static void nesting_stops_at_its_limit_and_goes_on_from_there(void **state) {
    (void)state;
    enum { N = KIN_MATCHER_MAX_DEPTH + 100 };
    static char text[N + 1];
    memset(text, '(', N);
    const char *gbnf = "root ::= p\np ::= \"(\" p \")\" | \"x\"";
    size_t n = taken(gbnf, text);
    assert_in_range(n, KIN_MATCHER_MAX_DEPTH - 2, KIN_MATCHER_MAX_DEPTH + 2);
    text[n] = 'x';
    text[n + 1] = ')';
    assert_int_equal(taken(gbnf, text), n + 2);
}

// Separate stacks would double at every byte.
static void ambiguous_grammars_stay_small(void **state) {
    (void)state;
    static const char *const grammars[] = {"root ::= (\"a\" | \"a\")* \"b\"",
                                           "root ::= x*\nx ::= y | z\ny ::= \"a\" x? \"b\"?\nz ::= \"a\" x? \"c\"?",
                                           "root ::= s\ns ::= \"a\" s s | \"a\"", // items grow with the length squared
                                           "root ::= (\"a\"{0,1000}){0,1000}", "root ::= (\"a\"{1,3}){0,100000}"};
    char text[151] = {0};
    memset(text, 'a', 150);
    for (size_t i = 0; i < sizeof grammars / sizeof *grammars; i++) assert_int_equal(taken(grammars[i], text), 150);
}

// ---- random grammars against a slow, simple tree matcher

enum { MAX_TEXT = 15, MAX_NODES = 2000 };

typedef struct oracle {
    const kin_gbnf *g;
    const char *text;
    int len;
    uint32_t memo[MAX_NODES][MAX_TEXT + 1];
    bool known[MAX_NODES][MAX_TEXT + 1];
} oracle;

// Returns the positions at which the node can end if it begins at `at`, as bits.
static uint32_t ends_of(oracle *o, uint32_t node, int at);

static uint32_t ends_of_all(oracle *o, uint32_t node, uint32_t starts) {
    uint32_t ends = 0;
    for (int at = 0; at <= o->len; at++) {
        if (starts >> at & 1) ends |= ends_of(o, node, at);
    }
    return ends;
}

// Beyond the minimum, at most MAX_TEXT more repetitions can reach a new position.
static uint32_t ends_of_repeat(oracle *o, const kin_gbnf_node *n, int at) {
    uint32_t here = 1u << at, ends = 0;
    for (uint32_t i = 0; i <= n->max && i <= n->min + MAX_TEXT; i++) {
        if (i >= n->min) ends |= here;
        here = ends_of_all(o, n->child, here);
    }
    return ends;
}

static uint32_t compute_ends(oracle *o, uint32_t node, int at) {
    const kin_gbnf_node *n = &o->g->nodes[node];
    uint32_t ends = 0, len;
    switch ((kin_gbnf_kind)n->kind) {
    case KIN_GBNF_BYTES:
        len = n->end - n->begin;
        if (len == 0) return 1u << at;
        return at + (int)len <= o->len && memcmp(o->text + at, o->g->bytes + n->begin, len) == 0 ? 1u << (at + (int)len) : 0;
    case KIN_GBNF_CLASS:
        for (uint32_t i = n->begin; i < n->end && at < o->len; i++)
            if ((uint8_t)o->text[at] >= o->g->ranges[i].lo && (uint8_t)o->text[at] <= o->g->ranges[i].hi) ends = 1u << (at + 1);
        return ends;
    case KIN_GBNF_SEQUENCE:
        ends = 1u << at;
        for (uint32_t child = n->child; child; child = o->g->nodes[child].next) ends = ends_of_all(o, child, ends);
        return ends;
    case KIN_GBNF_CHOICE:
        for (uint32_t child = n->child; child; child = o->g->nodes[child].next) ends |= ends_of(o, child, at);
        return ends;
    case KIN_GBNF_REPEAT: return ends_of_repeat(o, n, at);
    case KIN_GBNF_RULE: return ends_of(o, o->g->rules[n->rule], at);
    case KIN_GBNF_AHEAD: return (ends_of(o, n->child, at) != 0) != (n->negated != 0) ? 1u << at : 0; // only in the rule `root`
    case KIN_GBNF_END: return at == o->len ? 1u << at : 0;
    case KIN_GBNF_MULTIPLE: fail_msg("none is made");
    }
    return 0;
}

static uint32_t ends_of(oracle *o, uint32_t node, int at) {
    if (!o->known[node][at]) {
        o->known[node][at] = true; // left recursion was removed: it never ends
        o->memo[node][at] = 0;
        o->memo[node][at] = compute_ends(o, node, at);
    }
    return o->memo[node][at];
}

static int below(kin_rng *rng, int n) {
    return (int)(kin_rng_u64(rng) % (uint64_t)n);
}

static char *put_random(kin_rng *rng, char *at, int depth) {
    static const char *const repeats[] = {"*", "+", "?", "{2}", "{1,3}", "{0,70}", "{2,}", "{3,90}", "{66,}"};
    static const char *const leaves[] = {"\"a\"", "\"b\"", "\"ab\"", "[ab]", "[^a]", "\"ba\"", "\"\""};
    switch (depth == 0 ? 9 : below(rng, 9)) {
    case 0:
    case 1:
        at = put_random(rng, at + sprintf(at, "("), depth - 1);
        at = put_random(rng, at + sprintf(at, " | "), depth - 1);
        return at + sprintf(at, ")");
    case 2:
    case 3: at = put_random(rng, at + sprintf(at, "("), depth - 1); return at + sprintf(at, ")%s", repeats[below(rng, 9)]);
    case 4: return at + sprintf(at, "r%d", below(rng, 4));
    case 5:
    case 6: at = put_random(rng, at, depth - 1); return put_random(rng, at + sprintf(at, " "), depth - 1);
    default: return at + sprintf(at, "%s", leaves[below(rng, 7)]);
    }
}

// The same, but each group may begin with look-ahead.
static char *put_random_regular(kin_rng *rng, char *at, int depth) {
    at = put_random(rng, at + sprintf(at, "("), depth);
    if (depth > 0 && below(rng, 3) == 0) {
        at = put_random(rng, at + sprintf(at, below(rng, 2) ? " | &(" : " | !("), depth - 1);
        at = put_random(rng, at + sprintf(at, ") "), depth - 1);
    }
    return at + sprintf(at, ")");
}

static void put_random_grammar(kin_rng *rng, char *at) {
    at = put_random(rng, at + sprintf(at, "root ::= "), 5);
    for (int i = 0; i < 4; i++) at = put_random(rng, at + sprintf(at, "\nr%d ::= ", i), 3);
}

// True if the grammar matches the first len bytes of o->text.
static bool matches_by_oracle(oracle *o, int len) {
    o->len = len;
    memset(o->known, 0, sizeof o->known);
    return ends_of(o, o->g->rules[o->g->root], 0) >> len & 1;
}

// Compares the matcher with the oracle on random texts of a's and b's. A prefix that the grammar matches is always allowed.
static void compare_texts(kin_rng *rng, const char *text_of_grammar, const kin_grammar *grammar) {
    kin_matcher *m;
    kin_gbnf gbnf;
    static oracle o;
    o.g = &gbnf;
    assert_int_equal(kin_matcher_new(&m, grammar, NULL, NULL), 0);
    assert_int_equal(kin_gbnf_parse(&gbnf, text_of_grammar, strlen(text_of_grammar), NULL), 0);
    assert_in_range(gbnf.n_nodes, 1, MAX_NODES);
    for (int round = 0; round < 30; round++) {
        char text[MAX_TEXT];
        size_t n_taken;
        const int len = below(rng, MAX_TEXT + 1), n_prefix = below(rng, len + 1);
        for (int i = 0; i < len; i++) text[i] = below(rng, 3) ? 'a' : 'b';
        o.text = text;
        bool expected = matches_by_oracle(&o, len);
        if (matches_with(m, text, (size_t)len, &n_taken) != expected)
            fail_msg("%.*s is %s the grammar's:\n%s", len, text, expected ? "" : "not", text_of_grammar);
        const size_t n_least = expected ? (size_t)len : matches_by_oracle(&o, n_prefix) ? (size_t)n_prefix : 0;
        if (n_taken < n_least)
            fail_msg("of %.*s %zu bytes are taken, not %zu, by:\n%s", len, text, n_taken, n_least, text_of_grammar);
    }
    kin_gbnf_fini(&gbnf);
    kin_matcher_free(m);
}
#define compare_texts(...) FROM_TEST(compare_texts(__VA_ARGS__))

static void random_grammars_match_what_a_simple_matcher_does(void **state) {
    (void)state;
    enum { N = KIN_SANITIZED ? 500 : 3000 };
    kin_rng rng;
    int n_compiled = 0;
    kin_rng_seed(&rng, 16);
    for (int i = 0; i < N; i++) {
        static char text[1 << 16];
        kin_grammar *grammar;
        put_random_grammar(&rng, text);
        if (kin_grammar_compile(&grammar, text, strlen(text), NULL) != 0) continue; // mostly left recursion
        n_compiled++;
        compare_texts(&rng, text, grammar);
        kin_grammar_free(grammar);
    }
    assert_in_range(n_compiled, N / 3, N);
}

// ---- look-ahead

static void look_ahead_is_about_the_rest_of_its_rule(void **state) {
    (void)state;
    const char *pin = "root ::= pin \"7x\"\npin ::= &(\"0\" [0-9]* $ | \"7\") [0-9]{2,3}";
    assert_true(matches(pin, "007x"));
    assert_true(matches(pin, "7177x"));
    assert_int_equal(taken(pin, "10"), 0);
    const char *word = "root ::= word \".\"\nword ::= !(\"the\" $ | [a-z]* \"x\") [a-z]+";
    assert_true(matches(word, "then."));
    assert_true(matches(word, "th."));
    assert_int_equal(taken(word, "the."), 3);
    assert_int_equal(taken(word, "ax"), 1);
    const char *within = "root ::= (\"a\" &(\"b\" !(\"c\")))? [a-c]*";
    assert_true(matches(within, "ab"));
    assert_true(matches(within, "abc")); // without the optional part
    const char *counted = "root ::= &(.{3,5} $) (\"ab\" | \"c\")*";
    assert_true(matches(counted, "abc"));
    assert_true(matches(counted, "ababc"));
    assert_int_equal(taken(counted, "cccccc"), 5);
    assert_int_equal(taken("root ::= \"x\" | &(.{3,3} $) (\"ab\")*", "ab"), 0); // could not end
}

static void rules_with_look_ahead_know_what_they_can_do(void **state) {
    (void)state;
    assert_true(matches("root ::= \"x\" maybe \"y\"\nmaybe ::= &(\"a\"{0,2} $) \"aa\"*", "xy"));
    assert_int_equal(taken("root ::= \"x\" some \"y\"\nsome ::= &(. ) \"a\"*", "xy"), 1);
    assert_true(matches("root ::= never | \"x\"\nnever ::= &(\"a\") \"b\"", "x"));
    assert_int_equal(taken("root ::= never | \"x\"\nnever ::= &(\"a\") \"b\"", "b"), 0);
    assert_refused("root ::= &(\"a\") \"b\"", "matches no text");
    assert_refused("root ::= &(\"a\" | root) \"b\"", "part of another rule");
    assert_refused("root ::= &(\"a\") x\nx ::= \"a\" x | \"b\"", "recurs");
    assert_refused("root ::= &(x) \"b\"\nx ::= !(\"a\") .", "part of another rule");
    assert_refused("root ::= &\"a\" .", "'(' is missing after");
    assert_refused("root ::= &([ab]* \"a\" [ab]{30} $) [ab]*", "too large");
}

static void multiples_are_those_of_decimal_numbers(void **state) {
    (void)state;
    static const char *const numbers[] = {"7", "12", "10", "300", "0.05", "2.5", "1", "0.001", "0.30"};
    static const int thousandths[] = {7000, 12000, 10000, 300000, 50, 2500, 1000, 1, 300};
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
        char gbnf[64], text[32];
        snprintf(gbnf, sizeof gbnf, "root ::= %%%s", numbers[k]);
        kin_grammar *grammar = compile(gbnf);
        kin_matcher *m;
        assert_int_equal(kin_matcher_new(&m, grammar, NULL, NULL), 0);
        for (int n = 0; n < 60000; n += n < 2000 ? 1 : 17) {
            size_t n_taken;
            int len = n % 1000 == 0  ? snprintf(text, sizeof text, "%d", n / 1000)
                      : n % 100 == 0 ? snprintf(text, sizeof text, "%d.%d", n / 1000, n % 1000 / 100)
                      : n % 10 == 0  ? snprintf(text, sizeof text, "%d.%02d", n / 1000, n % 1000 / 10)
                                     : snprintf(text, sizeof text, "%d.%03d", n / 1000, n % 1000);
            if (matches_with(m, text, (size_t)len, &n_taken) != (n % thousandths[k] == 0)) fail_msg("%s of %s", text, numbers[k]);
        }
        kin_matcher_free(m);
        kin_grammar_free(grammar);
    }
    assert_refused("root ::= %0", "above 0");
    assert_refused("root ::= %10001", "above 10000");
    assert_refused("root ::= %99999999999", "%N");
    assert_true(matches("root ::= %86400", "172800"));
    assert_false(matches("root ::= %86400", "172900"));
}

static char *put_random_ahead(kin_rng *rng, char *at, int depth) {
    at += sprintf(at, below(rng, 2) ? " &(" : " !(");
    at = put_random_regular(rng, at, depth);
    if (below(rng, 2)) at += sprintf(at, " $");
    return at + sprintf(at, ") ");
}

static void look_ahead_matches_what_a_simple_matcher_does(void **state) {
    (void)state;
    enum { N = KIN_SANITIZED ? 150 : 500 }; // compiling them takes 4 ms each
    kin_rng rng;
    int n_compiled = 0;
    kin_rng_seed(&rng, 37);
    for (int i = 0; i < N; i++) {
        static char text[1 << 16];
        char *at = text + sprintf(text, "root ::= ");
        kin_grammar *grammar;
        for (int k = below(&rng, 3); k >= 0; k--) at = put_random_regular(&rng, put_random_ahead(&rng, at, 2), 2);
        at = put_random_regular(&rng, at + sprintf(at, " "), 2);
        for (int k = 0; k < 4; k++) at += sprintf(at, "\nr%d ::= \"a\"{%d} | \"b\"", k, k);
        if (kin_grammar_compile(&grammar, text, strlen(text), NULL) != 0) continue; // mostly because nothing matches
        n_compiled++;
        compare_texts(&rng, text, grammar);
        kin_grammar_free(grammar);
    }
    assert_in_range(n_compiled, N / 3, N);
}

// ---- tokens

// 256 bytes, some words, a control token, one that ends the generation, two with the same text, one without text.
static kin_vocab *words_vocab(void) {
    static const char *const words[] = {"ab",       "aba",
                                        "abab",     "ba",
                                        "bb",       "aaa",
                                        "\"a",      "a\"",
                                        "\"\"",     "ab\"b",
                                        "\xc3\xa9", "a\xc3",
                                        "\xa9z",    "\xe2\x82\xac\xe2\x82\xac",
                                        "\\n",      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                                        "\n\n",     "{\"",
                                        "\":",      "}}"};
    enum { N_WORDS = sizeof words / sizeof *words };
    static kin_str tokens[SMALL_SPM_N + N_WORDS];
    static int32_t types[SMALL_SPM_N + N_WORDS];
    static float scores[SMALL_SPM_N + N_WORDS];
    kin_vocab_spec spec = small_spm_spec();
    memcpy(tokens, spec.tokens, SMALL_SPM_N * sizeof *tokens);
    memcpy(types, spec.types, SMALL_SPM_N * sizeof *types);
    for (int i = 0; i < N_WORDS; i++) {
        tokens[SMALL_SPM_N + i] = small_piece(words[i]);
        types[SMALL_SPM_N + i] = KIN_TOKEN_NORMAL;
    }
    // The small vocabulary also has "ab" and "aa", and letters as well as their bytes, that is, tokens with the same text.
    tokens[SMALL_SPM_N] = small_piece("abba");
    spec.tokens = tokens;
    spec.types = types;
    spec.scores = scores;
    spec.n_tokens = SMALL_SPM_N + N_WORDS;
    spec.eos = 2;
    return small_vocab(spec);
}

typedef struct tokens {
    kin_vocab *vocab;
    kin_token_trie *trie;
    kin_grammar *grammar;
    kin_matcher *m;
    kin_place place;
} tokens;

static tokens open_tokens(const char *gbnf) {
    tokens t = {.vocab = words_vocab(), .grammar = compile(gbnf)};
    assert_int_equal(kin_token_trie_new(&t.trie, t.vocab, NULL), 0);
    assert_int_equal(kin_matcher_new(&t.m, t.grammar, t.trie, NULL), 0);
    assert_int_equal(kin_matcher_begin(t.m, &t.place), 0);
    return t;
}
#define open_tokens(...) FROM_TEST(open_tokens(__VA_ARGS__))

static void close_tokens(tokens *t) {
    kin_place_fini(&t->place);
    kin_matcher_free(t->m);
    kin_token_trie_free(t->trie);
    kin_grammar_free(t->grammar);
    kin_vocab_free(t->vocab);
}

static bool accept_token(tokens *t, int32_t id) {
    bool allowed;
    assert_int_equal(kin_matcher_accept(t->m, &t->place, id, &allowed), 0);
    return allowed;
}
#define accept_token(...) FROM_TEST(accept_token(__VA_ARGS__))

static int32_t token(const tokens *t, const char *text) {
    int32_t id = kin_vocab_find(t->vocab, text, strlen(text));
    assert_true(id >= 0);
    return id;
}
#define token(...) FROM_TEST(token(__VA_ARGS__))

static void special_tokens_match_no_text(void **state) {
    (void)state;
    tokens t = open_tokens("root ::= .*");
    assert_false(kin_matcher_allows(t.m, &t.place, SMALL_SPM_CONTROL));
    assert_false(kin_matcher_allows(t.m, &t.place, 0)); // unknown
    assert_false(kin_matcher_allows(t.m, &t.place, 1));
    assert_true(kin_matcher_allows(t.m, &t.place, SMALL_SPM_USER));
    close_tokens(&t);
}

static void the_end_is_allowed_exactly_where_the_grammar_ends(void **state) {
    (void)state;
    tokens t = open_tokens("root ::= \"ab\"+");
    assert_false(accept_token(&t, 2));
    assert_true(accept_token(&t, token(&t, "aba")));
    assert_false(kin_matcher_allows(t.m, &t.place, 2));
    assert_true(accept_token(&t, token(&t, "b")));
    assert_true(kin_matcher_allows(t.m, &t.place, 2));
    assert_true(accept_token(&t, 2));
    assert_true(kin_place_may_go_on(&t.place));
    close_tokens(&t);
    t = open_tokens("root ::= \"a\"");
    assert_true(kin_place_may_go_on(&t.place));
    assert_true(accept_token(&t, token(&t, "a")));
    assert_false(kin_place_may_go_on(&t.place));
    assert_true(kin_place_may_end(&t.place));
    close_tokens(&t);
}

static void tokens_of_half_a_character_are_followed(void **state) {
    (void)state;
    tokens t = open_tokens("root ::= [\xc3\xa9\xe2\x82\xac]+");
    assert_false(kin_matcher_allows(t.m, &t.place, token(&t, "a\xc3")));
    assert_true(accept_token(&t, SMALL_SPM_BYTES + 0xc3));
    assert_false(kin_matcher_allows(t.m, &t.place, token(&t, "\xa9z")));
    assert_false(accept_token(&t, SMALL_SPM_BYTES + 0xaa));
    assert_true(accept_token(&t, SMALL_SPM_BYTES + 0xa9));
    assert_true(accept_token(&t, token(&t, "\xe2\x82\xac\xe2\x82\xac")));
    close_tokens(&t);
}

static void a_refused_token_changes_nothing_and_a_copy_goes_its_own_way(void **state) {
    (void)state;
    tokens t = open_tokens("root ::= \"ab\" | \"ac\"");
    kin_place saved = {0};
    assert_true(accept_token(&t, token(&t, "a")));
    assert_false(accept_token(&t, token(&t, "a")));
    assert_int_equal(kin_place_copy(&saved, &t.place), 0);
    assert_true(accept_token(&t, token(&t, "b")));
    assert_int_equal(kin_place_copy(&t.place, &saved), 0);
    assert_true(accept_token(&t, token(&t, "c")));
    kin_place_fini(&saved);
    close_tokens(&t);
}

// Compares the mask with testing every token. The mask is computed with whatever the cache contains.
static void assert_mask_is_right(tokens *t, uint64_t *set) {
    kin_matcher_mask(t->m, &t->place, set);
    for (int32_t id = 0; id < t->trie->n_tokens; id++) {
        if (kin_token_set_has(set, id) != kin_matcher_allows(t->m, &t->place, id)) fail_msg("token %d", id);
    }
}
#define assert_mask_is_right(...) FROM_TEST(assert_mask_is_right(__VA_ARGS__))

static void a_reference_matches_its_control_token_and_nothing_else(void **state) {
    (void)state;
    uint64_t set[8];
    char gbnf[128];
    snprintf(gbnf, sizeof gbnf, "root ::= <[%d]> \"ab\" (<[%d]> [^a]* | \"\")", SMALL_SPM_CONTROL, SMALL_SPM_LONG);
    tokens t = open_tokens(gbnf);
    assert_true(t.trie->n_words <= 8);
    assert_mask_is_right(&t, set);
    for (int32_t id = 0; id < t.trie->n_tokens; id++) assert_int_equal(kin_token_set_has(set, id), id == SMALL_SPM_CONTROL);
    assert_true(accept_token(&t, SMALL_SPM_CONTROL));
    assert_mask_is_right(&t, set);
    assert_false(kin_token_set_has(set, SMALL_SPM_CONTROL));
    assert_true(accept_token(&t, token(&t, "ab")));
    assert_mask_is_right(&t, set);
    assert_true(kin_token_set_has(set, SMALL_SPM_LONG) && kin_token_set_has(set, 2)); // or the end
    assert_false(kin_token_set_has(set, SMALL_SPM_BYTES + 0xff));
    assert_true(accept_token(&t, SMALL_SPM_LONG));
    assert_mask_is_right(&t, set);
    assert_false(kin_token_set_has(set, SMALL_SPM_LONG));
    close_tokens(&t);
}

static void a_reference_to_a_token_that_is_text_matches_nothing(void **state) {
    (void)state;
    uint64_t set[8];
    char gbnf[64];
    snprintf(gbnf, sizeof gbnf, "root ::= <[%d]> | <[4000000]> | \"a\"", SMALL_SPM_USER);
    tokens t = open_tokens(gbnf);
    assert_mask_is_right(&t, set);
    assert_false(kin_token_set_has(set, SMALL_SPM_USER));
    assert_true(kin_token_set_has(set, SMALL_SPM_A));
    close_tokens(&t);
}

static void references_are_to_control_tokens_that_the_vocabulary_has(void **state) {
    (void)state;
    static const struct {
        int id;
        const char *words;
    } bad[] = {{SMALL_SPM_USER, "<|u|>', which is not a control token"},
               {SMALL_SPM_A, "is 'a', which is not a control token"},
               {2, "</s>, which ends the output"},
               {4000000, "the model has"}};
    tokens t = open_tokens("root ::= \"a\"");
    kin_err err;
    char gbnf[96];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int len = snprintf(gbnf, sizeof gbnf, "root ::= \"abcd\" | <[%d]> <[%d]>", SMALL_SPM_CONTROL, bad[i].id);
        assert_int_equal(kin_grammar_tokens_check((kin_str){gbnf, (size_t)len}, t.vocab, &err), KIN_FAIL);
        if (!strstr(err.text, bad[i].words)) fail_msg("'%s' is not in '%s'", bad[i].words, err.text);
    }
    int len = snprintf(gbnf, sizeof gbnf, "root ::= \"abcd\" <[%d]>", SMALL_SPM_CONTROL);
    assert_int_equal(kin_grammar_tokens_check((kin_str){gbnf, (size_t)len}, t.vocab, &err), 0);
    assert_int_equal(kin_grammar_tokens_check((kin_str){"root", 4}, t.vocab, &err), KIN_FAIL);
    close_tokens(&t);
}

static void walk_with_masks(kin_rng *rng, const char *gbnf, int n_steps) {
    tokens t = open_tokens(gbnf);
    uint64_t *set = calloc(t.trie->n_words, sizeof *set);
    assert_non_null(set);
    for (int i = 0; i < n_steps; i++) {
        int32_t ids[1024], n = 0;
        if (below(rng, 3) == 0) {
            kin_matcher_free(t.m);
            assert_int_equal(kin_matcher_new(&t.m, t.grammar, t.trie, NULL), 0);
        }
        assert_mask_is_right(&t, set);
        for (int32_t id = 0; id < t.trie->n_tokens; id++) {
            if (kin_token_set_has(set, id) && !kin_vocab_is_eog(t.vocab, id)) ids[n++] = id;
        }
        if (n == 0) break;
        assert_true(accept_token(&t, ids[below(rng, n)]));
    }
    free(set);
    close_tokens(&t);
}
#define walk_with_masks(...) FROM_TEST(walk_with_masks(__VA_ARGS__))

static void masks_are_what_testing_each_token_gives(void **state) {
    (void)state;
    static const char *const grammars[] = {
        ("root ::= value\nvalue ::= \"{\" (pair (\",\" pair)*)? \"}\" | string\npair ::= string \":\" value\n"
         "string ::= \"\\\"\" ([^\"\\\\\\x00-\\x1F] | \"\\\\\" [\"\\\\n])* \"\\\"\""),
        "root ::= (\"\\\"\" [^\"\\\\\\x00-\\x1F]{0,3} \"\\\"\")*",
        "root ::= (\"\\\"\" [^\"\\\\\\x00-\\x1F]{0,40} \"\\\"\")*",
        "root ::= (\"\\\"\" [^\"\\\\\\x00-\\x1F]{30,40} \"\\\"\")*",
        "root ::= (\"\\\"\" [^\"\\\\\\x00-\\x1F]{0,40} [a-z]* \"\\\"\")*", // more characters after the counted ones
        "root ::= [^\"\\\\\\x00-\\x1F]{0,40} [^\"\\\\\\x00-\\x1F]{0,35}",
        "root ::= [^\"\\\\\\x00-\\x1F]{66,} | [^x]{0,70}",
        "root ::= .*",
        "root ::= [^\\x00-\\x1F\\x7F]*",
    };
    kin_rng rng;
    kin_rng_seed(&rng, 7);
    for (size_t i = 0; i < sizeof grammars / sizeof *grammars; i++) {
        for (int round = 0; round < 12; round++) walk_with_masks(&rng, grammars[i], 40);
    }
}

// Each byte may begin two rules that read the same bytes: thousands of alternatives at every node of the trie. The mask must
// contain no wrong token, and must be computed in bounded time.
static void masks_of_very_ambiguous_grammars_end(void **state) {
    (void)state;
    tokens t = open_tokens("root ::= x*\nx ::= y | z\ny ::= [a-z ]+ x? \"b\"?\nz ::= [a-z]+ x? \"c\"? [a-z]{0,500}");
    uint64_t *set = calloc(t.trie->n_words, sizeof *set);
    assert_non_null(set);
    for (int i = 0; i < 20; i++) {
        kin_matcher_mask(t.m, &t.place, set);
        assert_true(kin_token_set_has(set, token(&t, "a")));
        assert_true(accept_token(&t, token(&t, "a")));
    }
    free(set);
    close_tokens(&t);
}

static void masks_of_random_grammars_are_what_testing_each_token_gives(void **state) {
    (void)state;
    kin_rng rng;
    kin_rng_seed(&rng, 8);
    for (int i = 0; i < 300; i++) {
        static char text[1 << 16];
        kin_grammar *grammar;
        put_random_grammar(&rng, text);
        if (kin_grammar_compile(&grammar, text, strlen(text), NULL) != 0) continue;
        kin_grammar_free(grammar);
        walk_with_masks(&rng, text, 10);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(literals_sequences_and_choices_match),
        cmocka_unit_test(escapes_are_code_points),
        cmocka_unit_test(classes_match_one_code_point),
        cmocka_unit_test(any_character_is_exactly_utf8),
        cmocka_unit_test(pieces_of_a_range_hold_its_code_points_and_no_others),
        cmocka_unit_test(repetitions_have_bounds),
        cmocka_unit_test(recursion_matches_brackets_of_any_depth),
        cmocka_unit_test(lists_by_recursion_at_the_end_are_not_deep),
        cmocka_unit_test(bad_grammars_are_refused_with_the_line),
        cmocka_unit_test(left_recursion_is_refused),
        cmocka_unit_test(parts_that_never_end_are_cut_off),
        cmocka_unit_test(large_grammars_end_with_a_sentence_or_in_a_moment),
        cmocka_unit_test(nesting_stops_at_its_limit_and_goes_on_from_there),
        cmocka_unit_test(ambiguous_grammars_stay_small),
        cmocka_unit_test(random_grammars_match_what_a_simple_matcher_does),
        cmocka_unit_test(look_ahead_is_about_the_rest_of_its_rule),
        cmocka_unit_test(rules_with_look_ahead_know_what_they_can_do),
        cmocka_unit_test(multiples_are_those_of_decimal_numbers),
        cmocka_unit_test(look_ahead_matches_what_a_simple_matcher_does),
        cmocka_unit_test(special_tokens_match_no_text),
        cmocka_unit_test(a_reference_matches_its_control_token_and_nothing_else),
        cmocka_unit_test(a_reference_to_a_token_that_is_text_matches_nothing),
        cmocka_unit_test(references_are_to_control_tokens_that_the_vocabulary_has),
        cmocka_unit_test(the_end_is_allowed_exactly_where_the_grammar_ends),
        cmocka_unit_test(tokens_of_half_a_character_are_followed),
        cmocka_unit_test(a_refused_token_changes_nothing_and_a_copy_goes_its_own_way),
        cmocka_unit_test(masks_are_what_testing_each_token_gives),
        cmocka_unit_test(masks_of_very_ambiguous_grammars_end),
        cmocka_unit_test(masks_of_random_grammars_are_what_testing_each_token_gives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
