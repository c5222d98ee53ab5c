// JSON schemas as grammars: valid texts can be written, invalid ones cannot, and unsupported keywords are named.
// (test_schema_random.sh compares random schemas with another validator.)
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "pure/grammar/grammar_compile.h"
#include "pure/grammar/matcher.h"
#include "pure/grammar/schema.h"
#include "pure/grammar/schema_number.h"
#include "pure/text/json.h"
#include "tests/place.h"

static kin_str str(const char *text) {
    return (kin_str){text, strlen(text)};
}

static bool is_match(kin_matcher *m, const char *text) {
    kin_place place = {0};
    bool allowed;
    assert_int_equal(kin_matcher_begin(m, &place), 0);
    assert_int_equal(kin_matcher_accept_bytes(m, &place, text, strlen(text), &allowed), 0);
    bool ends = allowed && kin_place_may_end(&place);
    kin_place_fini(&place);
    return ends;
}
#define is_match(...) FROM_TEST(is_match(__VA_ARGS__))

static bool takes(kin_grammar *grammar, const char *text) {
    kin_matcher *m;
    assert_int_equal(kin_matcher_new(&m, grammar, NULL, NULL), 0);
    bool result = is_match(m, text);
    kin_matcher_free(m);
    return result;
}
#define takes(...) FROM_TEST(takes(__VA_ARGS__))

static kin_matcher *open_matcher(const char *gbnf, size_t len, kin_grammar **grammar) {
    kin_matcher *m;
    kin_err err = {""};
    kin_grammar_compile(grammar, gbnf, len, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(kin_matcher_new(&m, *grammar, NULL, NULL), 0);
    return m;
}
#define open_matcher(...) FROM_TEST(open_matcher(__VA_ARGS__))

// Replaces ' by ".
static char *quoted(const char *text) {
    char *copy = strdup(text);
    assert_non_null(copy);
    for (char *c = copy; *c; c++) {
        if (*c == '\'') *c = '"';
    }
    return copy;
}
#define quoted(...) FROM_TEST(quoted(__VA_ARGS__))

static bool fits(const char *schema_text, const char *document_text) {
    char *schema = quoted(schema_text), *document = quoted(document_text);
    kin_grammar *grammar;
    kin_err err = {""};
    kin_schema_compile(&grammar, str(schema), NULL, NULL, &err);
    assert_string_equal(err.text, "");
    bool result = takes(grammar, document);
    kin_grammar_free(grammar);
    free(document);
    free(schema);
    return result;
}

// Assert that all documents match the schema, or that none does.
#define assert_fit(schema, ...) assert_all(schema, true, (const char *const[]){__VA_ARGS__, NULL})
#define assert_no_fit(schema, ...) assert_all(schema, false, (const char *const[]){__VA_ARGS__, NULL})

static void assert_all(const char *schema, bool expected, const char *const *documents) {
    for (; *documents; documents++) {
        if (fits(schema, *documents) != expected) fail_msg("%s %s %s", *documents, expected ? "does not fit" : "fits", schema);
    }
}
#define assert_all(...) FROM_TEST(assert_all(__VA_ARGS__))

static void assert_refused(const char *schema_text, const char *words) {
    char *schema = quoted(schema_text);
    kin_grammar *grammar;
    kin_err err = {""};
    assert_int_equal(kin_schema_compile(&grammar, str(schema), NULL, NULL, &err), KIN_FAIL);
    if (!strstr(err.text, words)) fail_msg("'%s' is not in '%s'", words, err.text);
    free(schema);
}
#define assert_refused(...) FROM_TEST(assert_refused(__VA_ARGS__))

// ---- JSON

static void json_is_read_as_the_standard_has_it(void **state) {
    (void)state;
    static const char *const good[] = {
        "0", "-0.5e+10", "[]", " { } ", "\"\\ud83d\\ude00\\u0000\\/\"", "[1,[2,{\"a\":null}],true,false]"};
    static const char *const bad[] = {"",
                                      "01",
                                      "1.",
                                      ".5",
                                      "+1",
                                      "[1,]",
                                      "{\"a\":1,}",
                                      "{a:1}",
                                      "nul",
                                      "1 2",
                                      "\"\n\"",
                                      "\"\\q\"",
                                      "\"\\ud83d\"",
                                      "\"\\ude00\"",
                                      "\"\\ud83dx\"",
                                      "\"\xff\"",
                                      "\"a",
                                      "[1",
                                      "{\"a\"}",
                                      "\"\\u12g4\"",
                                      "-",
                                      "1e",
                                      "{\"a\":1,\"\\u0061\":2}"};
    kin_json json;
    kin_err err;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(kin_json_parse(&json, good[i], strlen(good[i]), &err), 0);
        kin_json_fini(&json);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (kin_json_parse(&json, bad[i], strlen(bad[i]), &err) == 0) fail_msg("%s", bad[i]);
    }
}

static void json_that_nests_too_deep_is_refused(void **state) {
    (void)state;
    char text[2 * 65 + 1] = {0};
    kin_json json;
    kin_err err;
    memset(text, '[', 65);
    memset(text + 65, ']', 65);
    assert_int_equal(kin_json_parse(&json, text, 130, &err), KIN_FAIL);
    assert_int_equal(kin_json_parse(&json, text + 1, 128, &err), 0);
    kin_json_fini(&json);
}

static void json_is_written_as_it_was_read(void **state) {
    (void)state;
    const char *text = "{\"a\":[1.50,-2e3,\"\\\"\\\\\\n\\u0001\xc3\xa9\"],\"b\":{},\"c\":[],\"d\":[true,false,null]}";
    kin_json json;
    kin_text_buffer out = {0};
    assert_int_equal(kin_json_parse(&json, text, strlen(text), NULL), 0);
    kin_json_write(&json, json.values, &out);
    assert_string_equal(out.at, text);
    kin_text_fini(&out);
    kin_json_fini(&json);
}

// ---- types

static void types_are_told_apart(void **state) {
    (void)state;
    assert_fit("true", "null", "1", "'x'", "[1,{}]", "{'a':[]}");
    assert_fit("{}", "null", "-1.5e10");
    assert_fit("{'type':'null'}", "null");
    assert_no_fit("{'type':'null'}", "1", "'null'", "");
    assert_fit("{'type':['string','null']}", "null", "''");
    assert_no_fit("{'type':['string','null']}", "1");
    assert_fit("{'type':'integer'}", "0", "-12", "9007199254740993");
    assert_no_fit("{'type':'integer'}", "1.5", "01", "1e3", "--1");
    assert_fit("{'type':'number'}", "1.5", "-0.25e-7", "3");
    assert_fit("{'type':'boolean'}", "true", "false");
    assert_fit(KIN_SCHEMA_ANY_OBJECT, "{}", "{'a':{'b':[1,2]}}", "{ 'a' : 1 , 'b' : 2 }");
    assert_no_fit(KIN_SCHEMA_ANY_OBJECT, "[]", "{'a'}", "{'a':1,}", "{,}");
    assert_refused("{'type':'int'}", "#/type: unknown type");
    assert_refused("false", "matches no text");
}

static void white_space_is_short(void **state) {
    (void)state;
    assert_fit("{'type':'array'}", "[ 1 , 2 ]", "[\n  1,\n  2\n]", "[\n\n\t1]");
    assert_no_fit("{'type':'array'}", "[  1]", "[\n\n\n1]", " []", "[] ");
}

static void strings_are_valid_json(void **state) {
    (void)state;
    assert_fit("{'type':'string'}", "'\\u00e9\\n\\\\'", "'\xf0\x9f\x98\x80'", "'\\ud83d\\uDE00'", "'/'");
    assert_no_fit("{'type':'string'}", "'\\ud83d'", "'\\ude00'", "'\\x41'", "'\t'", "'\xff'", "'\\ud83dx'");
}

static void lengths_count_characters(void **state) {
    (void)state;
    const char *schema = "{'type':'string','minLength':2,'maxLength':3}";
    assert_fit(schema, "'ab'", "'\xf0\x9f\x98\x80\xc3\xa9z'", "'\\ud83d\\ude00\\n'", "'\\\\\\\\\\\\'");
    assert_no_fit(schema, "'a'", "'abcd'", "'\\ud83d\\ude00'");
    assert_fit("{'type':'string','maxLength':100000}", "''", "'abc'");
    assert_fit("{'type':'string','maxLength':99999999999999999999}", "'abc'");
    assert_refused("{'type':'string','minLength':3,'maxLength':2}", "matches no text");
    assert_refused("{'minLength':-1}", "#/minLength: must be a whole number");
}

static void patterns_match_as_regular_expressions_do(void **state) {
    (void)state;
    assert_fit("{'type':'string','pattern':'^[a-c]+\\\\d{2}$'}", "'ab12'", "'c00'");
    assert_no_fit("{'type':'string','pattern':'^[a-c]+\\\\d{2}$'}", "'12'", "'ab1'", "'ab123'", "'xab12'");
    assert_fit("{'type':'string','pattern':'b'}", "'abc'", "'b'");
    assert_no_fit("{'type':'string','pattern':'b'}", "'ac'");
    assert_fit("{'type':'string','pattern':'^a|b$'}", "'axx'", "'xxb'");
    assert_fit("{'type':'string','pattern':'^(?:x|(?<n>yz)*)?$'}", "''", "'yzyz'", "'x'");
    assert_fit("{'type':'string','pattern':'^.[^a]\\\\.$'}", "'ab.'", "'\xc3\xa9\\n.'");
    assert_no_fit("{'type':'string','pattern':'^.[^a]\\\\.$'}", "'aa.'", "'abx'", "'\\nb.'");
    assert_fit("{'type':'string','pattern':'^[\\\\w-]{1,}?\\\\/$'}", "'a-_9/'");
    static const char *const bad[] = {"(?<=a)", "(?<!a)b",  "(a)\\\\1", "\\\\bx", "a^b", "(^a)", "a(b",
                                      "a)",     "[a",       "[z-a]",    "*a",     "a**", "a{x}", "\\\\pL",
                                      "a{4,1}", "a{1,2,3}", "a{1,,}",   "a{,2}",  "a{2"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char schema[100];
        snprintf(schema, sizeof schema, "{'type':'string','pattern':'%s'}", bad[i]);
        assert_refused(schema, "the pattern '");
    }
}

static void formats_are_dates_times_and_uuids(void **state) {
    (void)state;
    assert_fit("{'type':'string','format':'date'}", "'2024-02-28'", "'1999-12-31'");
    assert_no_fit("{'type':'string','format':'date'}", "'2024-02-30'", "'2024-13-01'", "'2024-04-31'", "'x'");
    assert_fit("{'type':'string','format':'date-time'}", "'2024-02-28T23:59:59.5+01:00'", "'2024-02-28T00:00:00Z'");
    assert_no_fit("{'type':'string','format':'time'}", "'24:00:00Z'", "'12:00:00'");
    assert_fit("{'type':'string','format':'uuid'}", "'123e4567-e89b-12d3-a456-426614174000'");
    assert_fit("{'type':'string','format':'ipv4'}", "'255.0.10.199'");
    assert_no_fit("{'type':'string','format':'ipv4'}", "'256.0.0.1'");
    assert_fit("{'type':'string','format':'anything'}", "'x'");
}

// ---- numbers

static void bounds_hold_for_every_number_near_them(void **state) {
    (void)state;
    static const char *const bounds[] = {"0",  "1",   "7",     "10",   "99",    "100",  "101", "-1",    "-10",  "-100",
                                         "12", "0.5", "-0.25", "9.99", "10.01", "-1.5", "1e2", "25e-1", "-0.0", "1000"};
    enum { N = sizeof bounds / sizeof *bounds };
    kin_rng rng;
    kin_rng_seed(&rng, 3);
    for (int round = 0; round < 300; round++) {
        uint64_t r = kin_rng_u64(&rng);
        const char *low = bounds[r % N], *high = bounds[r / N % N];
        bool above = r >> 40 & 1, below = r >> 41 & 1, integer = r >> 42 & 1;
        kin_decimal min, max;
        kin_number_range range = {0};
        kin_text_buffer gbnf = {0};
        if (!(r >> 43 & 3)) high = NULL;
        assert_int_equal(kin_decimal_parse(&min, str(low)), 0);
        kin_number_range_min(&range, &min, above);
        if (high) assert_int_equal(kin_decimal_parse(&max, str(high)), 0);
        if (high) kin_number_range_max(&range, &max, below);
        kin_text_print(&gbnf, "root ::= \"\" | ");
        kin_number_range_put(&range, integer, &gbnf);
        kin_grammar *grammar;
        kin_matcher *m = open_matcher(gbnf.at, gbnf.len, &grammar);
        for (int k = -220; k <= 220; k++) {
            char text[32];
            double x = integer ? k : k * (k % 3 ? 0.05 : 0.25);
            snprintf(text, sizeof text, integer ? "%.0f" : "%.6g", x);
            if (x == 0 && text[0] == '-') continue;
            bool inside = (above ? x > atof(low) : x >= atof(low)) && (!high || (below ? x < atof(high) : x <= atof(high)));
            if (is_match(m, text) != inside)
                fail_msg("%s in %s %s, %s %s: %s", text, above ? "above" : "from", low, below ? "below" : "to", high ? high : "-",
                         gbnf.at);
        }
        kin_matcher_free(m);
        kin_grammar_free(grammar);
        kin_text_fini(&gbnf);
    }
}

static void large_bounds_are_exact(void **state) {
    (void)state;
    const char *schema = "{'type':'integer','minimum':-9223372036854775808,'maximum':9223372036854775807}";
    assert_fit(schema, "9223372036854775807", "-9223372036854775808", "0", "-1");
    assert_no_fit(schema, "9223372036854775808", "-9223372036854775809");
    assert_fit("{'type':'number','exclusiveMinimum':0,'exclusiveMaximum':1}", "0.5", "0.999999");
    assert_no_fit("{'type':'number','exclusiveMinimum':0,'exclusiveMaximum':1}", "0", "0.0", "1", "1.0", "0.00", "-0");
    assert_fit("{'type':'integer','minimum':1.5}", "2");
    assert_no_fit("{'type':'integer','minimum':1.5}", "1");
    assert_refused("{'type':'integer','minimum':1,'maximum':0}", "matches no text");
    assert_refused("{'minimum':1e999}", "#/minimum: a number has more than 40 digits");
}

// ---- objects and arrays

static void properties_come_in_order_and_commas_between_them(void **state) {
    (void)state;
    const char *schema =
        "{'type':'object','properties':{'a':{'type':'integer'},'b':{'type':'null'},'c':{'type':'string'}},'required':['b']}";
    assert_fit(schema, "{'b':null}", "{'a':1,'b':null,'c':'x'}", "{'b':null,'c':''}", "{ 'a': 1, 'b': null }");
    assert_no_fit(schema, "{}", "{'a':1}", "{'b':null,'a':1}", "{'b':null,'d':1}", "{'b':null,'b':null}", "{,'b':null}",
                  "{'a':'x','b':null}");
    assert_fit("{'properties':{'a':{},'b':{}}}", "{}", "{'b':1}", "3", "'x'");
    assert_fit("{'type':'object','required':['z'],'properties':{'a':true}}", "{'z':[]}", "{'a':1,'z':2}");
    assert_no_fit("{'type':'object','required':['z'],'properties':{'a':false}}", "{'a':1,'z':2}");
}

static void additional_properties_have_other_names(void **state) {
    (void)state;
    const char *schema = "{'type':'object','properties':{'ab':{'type':'integer'},'a':{'type':'integer'}},'additionalProperties':{"
                         "'type':'string'}}";
    assert_fit(schema, "{}", "{'ab':1,'a':2,'abc':'x','b':'y','':'z'}", "{'x':'1','y':'2'}", "{'\xc3\xa9':'e'}");
    assert_no_fit(schema, "{'ab':'x'}", "{'a':'x'}", "{'b':1}", "{'abc':1}", "{'\\u0061':'x'}", "{'x':'1','a':2}");
    assert_fit("{'type':'object','additionalProperties':{'type':'null'}}", "{'q':null,'r':null}");
    assert_no_fit("{'type':'object','additionalProperties':false}", "{'q':null}");
}

static void arrays_have_items_and_counts(void **state) {
    (void)state;
    assert_fit("{'type':'array','items':{'type':'integer'},'minItems':1,'maxItems':3}", "[1]", "[1,2,3]");
    assert_no_fit("{'type':'array','items':{'type':'integer'},'minItems':1,'maxItems':3}", "[]", "[1,2,3,4]", "['x']");
    const char *prefix =
        "{'type':'array','prefixItems':[{'type':'integer'},{'type':'string'}],'items':{'type':'null'},'minItems':1}";
    assert_fit(prefix, "[1]", "[1,'a']", "[1,'a',null,null]");
    assert_no_fit(prefix, "[]", "['a']", "[1,2]", "[1,'a',3]");
    assert_fit("{'type':'array','prefixItems':[{'type':'integer'}],'items':false}", "[]", "[1]");
    assert_no_fit("{'type':'array','prefixItems':[{'type':'integer'}],'items':false}", "[1,2]");
    assert_fit("{'type':'array','items':[{'type':'integer'}],'additionalItems':false}", "[1]");
    assert_fit("{'type':'array','maxItems':0}", "[]");
    assert_fit("{'type':'array','maxItems':100000,'items':{'type':'object'}}", "[{},{}]");
    assert_refused("{'type':'array','minItems':2,'maxItems':1}", "matches no text");
}

// ---- combinations

static void enums_are_those_values_that_the_rest_allows(void **state) {
    (void)state;
    assert_fit("{'enum':['a',1,null,{'k':[1]}]}", "'a'", "1", "null", "{'k':[1]}");
    assert_no_fit("{'enum':['a',1]}", "'b'", "2");
    assert_fit("{'const':'quo\\\\te'}", "'quo\\\\te'");
    assert_no_fit("{'type':'string','enum':['a',1]}", "1");
    assert_no_fit("{'enum':[1,5,10],'minimum':4}", "1");
    assert_fit("{'enum':[1,5,10],'minimum':4}", "5");
    assert_refused("{'type':'object','enum':[{'a':1}],'required':['a']}", "cannot be combined with other keywords");
}

static void alternatives_and_conjunctions_combine(void **state) {
    (void)state;
    assert_fit("{'anyOf':[{'type':'integer'},{'type':'string'}]}", "1", "'x'");
    assert_no_fit("{'anyOf':[{'type':'integer'},{'type':'string'}]}", "null");
    const char *all = "{'allOf':[{'type':'object','properties':{'a':{'type':'integer'}},'required':['a']},"
                      "{'properties':{'a':{'minimum':5},'b':true},'required':['b']}]}";
    assert_fit(all, "{'a':5,'b':1}");
    assert_no_fit(all, "{'a':4,'b':1}", "{'a':5}");
    const char *either = "{'type':'object','properties':{'a':true,'b':true},'anyOf':[{'required':['a']},{'required':['b']}]}";
    assert_fit(either, "{'a':1}", "{'b':1}", "{'a':1,'b':1}");
    assert_no_fit(either, "{}");
    assert_fit("{'anyOf':[{'type':'integer'},{'type':'string'}],'oneOf':[{'type':'integer','minimum':3},{'type':'null'}]}", "3");
    assert_no_fit("{'anyOf':[{'type':'integer'},{'type':'string'}],'oneOf':[{'type':'integer','minimum':3},{'type':'null'}]}",
                  "null", "'x'", "2");
}

static void one_of_wants_alternatives_that_exclude_each_other(void **state) {
    (void)state;
    const char *tagged = "{'oneOf':[{'type':'object','properties':{'t':{'const':'a'},'x':true},'required':['t']},"
                         "{'type':'object','properties':{'t':{'const':'b'}},'required':['t']}]}";
    assert_fit(tagged, "{'t':'a','x':1}", "{'t':'b'}");
    assert_fit("{'oneOf':[{'type':'object','properties':{'a':true},'required':['a']},{'type':'object','properties':{'b':true},'"
               "required':['b']}]}",
               "{'a':1}");
    assert_fit("{'oneOf':[{'type':'integer','maximum':0},{'type':'integer','exclusiveMinimum':0}]}", "0", "1");
    assert_refused("{'oneOf':[{'type':'integer'},{'type':'number'}]}", "oneOf: alternatives");
    assert_refused("{'oneOf':[{'type':'object','properties':{'a':true}},{'type':'object','properties':{'b':true}}]}", "oneOf");
}

static void references_are_followed_and_may_recur(void **state) {
    (void)state;
    const char *tree = "{'$ref':'#/$defs/node','$defs':{'node':{'type':'object','properties':{'v':{'type':'integer'},"
                       "'next':{'anyOf':[{'$ref':'#/$defs/node'},{'type':'null'}]}},'required':['v','next']}}}";
    assert_fit(tree, "{'v':1,'next':null}", "{'v':1,'next':{'v':2,'next':{'v':3,'next':null}}}");
    assert_no_fit(tree, "{'v':1}");
    assert_fit("{'type':'array','items':{'$ref':'#'}}", "[[],[[]]]");
    assert_fit("{'properties':{'a/b':{'type':'null'},'c':{'$ref':'#/properties/a~1b'}},'type':'object'}", "{'c':null}");
    assert_refused("{'$ref':'#/nowhere'}", "#/$ref: the reference does not exist");
    assert_refused("{'$ref':'other.json'}", "the reference does not exist");
    assert_refused("{'$ref':'#'}", "refers to itself");
    assert_refused("{'$ref':'#/$defs/a','$defs':{'a':{'allOf':[{'$ref':'#/$defs/b'}]},'b':{'$ref':'#/$defs/a'}}}",
                   "refers to itself");
    assert_refused("{'anyOf':[{'type':'null'},{'$ref':'#'}]}", "refers to itself");
    assert_refused("{'type':'object','properties':{'a':{'$ref':'#'}},'required':['a']}", "matches no text");
}

static void keywords_that_are_not_understood_are_named(void **state) {
    (void)state;
    assert_refused("{'not':{'type':'string'}}", "#/not: this keyword is only supported with a schema that accepts everything");
    assert_refused("{'not':{}}", "matches no text");
    assert_refused("{'type':'object','properties':{'a':{'contains':{}}}}", "#/properties/a/contains");
    assert_refused("{'items':[{},{'if':{}}]}", "#/items/1/if");
    assert_refused("{'minLenght':3}", "#/minLenght");
    assert_refused("{'uniqueItems':true}", "#/uniqueItems");
    assert_refused("{'minProperties':1}", "minProperties");
    assert_refused("{'properties':3}", "#/properties: the value has the wrong type");
    assert_refused("{'anyOf':[]}", "#/anyOf");
    assert_refused("3", "#: a schema must be an object");
    assert_refused("{'type':", "schema: JSON: line 1");
    assert_fit("{'title':'t','description':'d','default':1,'examples':[],'$schema':'x','$id':'y','x-order':1,'uniqueItems':false,"
               "'type':'null'}",
               "null");
    assert_fit("{'type':'object','properties':{'a':true},'required':['a'],'minProperties':1,'maxProperties':1}", "{'a':1}");
}

static void annotations_of_editors_and_generators_say_nothing(void **state) {
    (void)state;
    assert_fit("{'type':'integer','markdownDescription':'a','enumDescriptions':['a'],'errorMessage':'a','propertyOrdering':['a'],"
               "'tsType':'A','ui:widget':'a','$vocabulary':{},'x-a':1}",
               "1");
    assert_no_fit("{'type':'integer','markdownDescription':'a'}", "'x'");
}

static void an_alternative_that_nothing_is_valid_for_is_dropped(void **state) {
    (void)state;
    assert_fit("{'anyOf':[{'not':{}},{'type':'integer'}]}", "1");
    assert_no_fit("{'anyOf':[{'not':true},{'type':'integer'}]}", "'x'");
    const char *never = "{'type':'object','properties':{'a':{'not':{}},'b':{'type':'null'}},'additionalProperties':false}";
    assert_fit(never, "{}", "{'b':null}");
    assert_no_fit(never, "{'a':1}");
}

#define ZOD_DATE                                                                                                                 \
    "(?:(?:\\\\d\\\\d[2468][048]|\\\\d\\\\d[13579][26]|\\\\d\\\\d0[48]|[02468][048]00|[13579][26]00)-02-29|\\\\d{4}-(?:(?:0["    \
    "13578]|1[02])-(?:0["                                                                                                        \
    "1-9]|[12]\\\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\\\d|30)|(?:02)-(?:0[1-9]|1\\\\d|2[0-8])))"

static void a_format_and_patterns_hold_together(void **state) {
    (void)state;
    const char *v4 = "{'type':'string','format':'uuid','pattern':'^[0-9a-f-]+$','allOf':[{'pattern':'^.{14}4'}]}";
    assert_fit(v4, "'01234567-0123-4123-8123-0123456789ab'");
    assert_no_fit(v4, "'01234567-4'", "'01234567-0123-1123-8123-0123456789ab'", "'01234567-0123-4123-8123-0123456789AB'");
    const char *start = "{'type':'string','format':'date','pattern':'^20(?!00)','maxLength':10}";
    assert_fit(start, "'2024-02-28'", "'2099-12-31'");
    assert_no_fit(start, "'2024-02-30'", "'2000-12-31'", "'1999-12-31'", "'2024'");
    // As the library zod writes them: of its date the 29th of February is left out.
    const char *time = "{'type':'string','format':'date-time','pattern':'^" ZOD_DATE "T(?:(?:[01]\\\\d|2[0-3]):[0-5]\\\\d"
                       "(?::[0-5]\\\\d(?:\\\\.\\\\d+)?)?(?:Z))$'}";
    assert_fit(time, "'2024-02-28T23:59:59Z'", "'2024-12-31T00:00:00.123Z'");
    assert_no_fit(time, "'2024-02-28T23:59Z'", "'2024-02-28T23:59:59+01:00'", "'2024-02-30T23:59:59Z'");
    const char *either = "{'anyOf':[{'type':'string','format':'date','pattern':'^a$'},{'type':'null'}]}";
    assert_fit(either, "null");
    assert_no_fit(either, "'a'", "'2024-02-28'");
    assert_refused("{'allOf':[{'format':'date'},{'pattern':'^a$'}],'type':'string'}", "matches no text");
    // Its times have no offset, so they are no `time`, and are meant.
    const char *local =
        "{'type':'string','format':'time','pattern':'^(?:[01]\\\\d|2[0-3]):[0-5]\\\\d(?::[0-5]\\\\d(?:\\\\.\\\\d+)?)?$'}";
    assert_fit(local, "'23:59'", "'23:59:59.5'");
    assert_no_fit(local, "'23:59Z'", "'24:00'");
    assert_fit("{'type':'string','format':'date-time','pattern':'^[0-9-]+T[0-9:]{5}Z$'}", "'2024-02-28T23:59Z'");
    assert_refused("{'type':'string','format':'time','pattern':'^[a-z]+$'}", "matches no text");
    assert_refused("{'type':'string','format':'time','pattern':'^[^x]{5}$'}", "matches no text");
    assert_refused("{'type':'string','format':'time','pattern':'^[0-9:Z]+$','maxLength':5}", "matches no text");
    // The format keeps the automaton small: the pattern alone has 2^40 states.
    assert_fit("{'type':'string','pattern':'2.{40}$|2.{9}$','format':'date'}", "'2024-02-28'");
}

static void names_of_properties_may_be_listed_or_have_a_pattern(void **state) {
    (void)state;
    const char *some =
        "{'type':'object','propertyNames':{'type':'string','enum':['a','b']},'additionalProperties':{'type':'integer'}}";
    assert_fit(some, "{}", "{'a':1}", "{'a':1,'b':2}");
    assert_no_fit(some, "{'c':1}", "{'a':'x'}");
    const char *all = "{'type':'object','propertyNames':{'type':'string','enum':['a','b']},'required':['a','b']}";
    assert_fit(all, "{'a':1,'b':2}");
    assert_no_fit(all, "{'a':1}");
    assert_no_fit("{'type':'object','properties':{'c':true},'propertyNames':{'enum':['a']}}", "{'c':1}");
    const char *any = "{'type':'object','propertyNames':{'type':'string'},'additionalProperties':{'type':'integer'}}";
    assert_fit(any, "{'x y':1}");
    const char *letter = "{'type':'object','propertyNames':{'type':'string','pattern':'^[a-z]$'}}";
    assert_fit(letter, "{}", "{'a':1,'b':'x'}");
    assert_no_fit(letter, "{'ab':1}", "{'A':1}", "{1:1}");
    assert_fit("{'type':'object','propertyNames':false}", "{}");
    assert_no_fit("{'type':'object','propertyNames':false}", "{'a':1}");
    assert_refused("{'type':'object','propertyNames':{'pattern':'a'}}", "#/propertyNames");
    assert_refused("{'type':'object','properties':{'a':true},'propertyNames':{'type':'string','pattern':'a'}}",
                   "#/propertyNames");
}

static void what_patterns_cannot_have_is_called_by_its_name(void **state) {
    (void)state;
    assert_refused("{'type':'string','pattern':'(?i)abc'}", "flags such as (?i)");
    assert_refused("{'type':'string','pattern':'(?i:a)'}", "flags such as (?i)");
    assert_refused("{'type':'string','pattern':'(?<=a)b'}", "look-behind");
    assert_refused("{'type':'string','pattern':'(?P<a>b)'}", "Python syntax");
}

static void patterns_lengths_and_formats_hold_together(void **state) {
    (void)state;
    const char *five = "{'type':'string','pattern':'^[a-z]+$','minLength':2,'maxLength':5}";
    assert_fit(five, "'ab'", "'abcde'");
    assert_no_fit(five, "'a'", "'abcdef'", "'ab1'", "''");
    const char *two = "{'type':'string','allOf':[{'pattern':'a'},{'pattern':'^.*b$'}]}";
    assert_fit(two, "'ab'", "'xxayyb'",
               "'\xc3\xa9"
               "ab'");
    assert_no_fit(two, "'b'", "'a'", "'ba'");
    assert_fit("{'anyOf':[{'type':'null'},{'type':'string','allOf':[{'pattern':'a'},{'pattern':'^[^a]*$'}]}]}", "null");
    assert_refused("{'type':'string','allOf':[{'pattern':'a'},{'pattern':'^[^a]*$'}]}", "matches no text");
    const char *date = "{'type':'string','format':'date','minLength':10}";
    assert_fit(date, "'2024-02-28'");
    assert_refused("{'type':'string','format':'date','minLength':11}", "matches no text");
    assert_fit("{'type':'string','pattern':'^.*$','maxLength':3}", "'\xf0\x9f\x98\x80\\\\\xc3\xa9'", "'\\u0001ab'");
    assert_no_fit("{'type':'string','pattern':'^.*$','maxLength':3}", "'abcd'", "'\\u0061'"); // a letter must not be escaped
    assert_fit("{'type':'object','properties':{'a':{'type':'string','pattern':'^a+$','maxLength':9},"
               "'b':{'type':'string','pattern':'^a+$','maxLength':9}},'required':['a','b']}",
               "{'a':'aaaaaaaaa','b':'a'}");
}

static void patterns_may_look_ahead(void **state) {
    (void)state;
    const char *password = "{'type':'string','pattern':'^(?=.*[A-Z])(?=.*\\\\d)(?!.*\\\\s).{4,8}$'}";
    assert_fit(password, "'aB3d'", "'xxxxxx9Z'", "'B\xc3\xa9!1'");
    assert_no_fit(password, "'ab3d'", "'aBcd'", "'aB3'", "'aB3 d'", "'aB3456789'", "'aB3\xc2\xa0x'");
    const char *no_dots = "{'type':'string','pattern':'^(?!\\\\.)(?!.*\\\\.\\\\.)[a-z.]+@b$'}";
    assert_fit(no_dots, "'a@b'", "'a.b.c@b'");
    assert_no_fit(no_dots, "'.a@b'", "'a..b@b'");
    const char *duration = "{'type':'string','pattern':'^P(?:(\\\\d+W)|(?!.*W)(?=\\\\d|T\\\\d)(\\\\d+Y)?(\\\\d+M)?(\\\\d+D)?"
                           "(T(?=\\\\d)(\\\\d+H)?(\\\\d+M)?(\\\\d+([.,]\\\\d+)?S)?)?)$'}";
    assert_fit(duration, "'P1W'", "'P3Y6M4DT12H30M5S'", "'PT0.5S'", "'P1M'", "'PT5M'");
    assert_no_fit(duration, "'P'", "'PT'", "'P1YT'", "'P1Y1W'", "'1Y'", "'P1S'");
    const char *hostname = "{'type':'string','pattern':'^(?=.{1,253}\\\\.?$)[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
                           "(?:\\\\.[a-zA-Z0-9](?:[-0-9a-zA-Z]{0,61}[0-9a-zA-Z])?)*\\\\.?$'}";
    assert_fit(hostname, "'example.com'", "'a-b.c.'", "'localhost'");
    assert_no_fit(hostname, "'-a.b'", "'a..b'", "'a-'", "'a_b'");
    const char *emoji =
        "{'type':'string','pattern':'^(?=[\\\\s\\\\S]*[\\\\p{Extended_Pictographic}\\\\p{Regional_Indicator}\\\\u20E3])"
        "[\\\\p{Extended_Pictographic}\\\\p{Emoji_Component}]+$'}";
    assert_fit(emoji, "'\xf0\x9f\x98\x80'", "'1\xef\xb8\x8f\xe2\x83\xa3'");
    assert_no_fit(emoji, "'1'", "'a'", "''");
    assert_fit("{'type':'string','pattern':'(?=ab)a'}", "'xaby'");
    assert_no_fit("{'type':'string','pattern':'(?=ab)a'}", "'xay'");
    assert_no_fit("{'type':'string','pattern':'^(?!.*abc)'}", "'xabc'", "'x\\u0061bc'", "'xab\\u0063'");
    assert_refused("{'type':'string','pattern':'^(?!\\\\p{Emoji_Component})a'}", "outside negative look-aheads");
}

static void what_is_too_complex_together_is_refused_by_name(void **state) {
    (void)state;
    assert_refused("{'type':'object','properties':{'a':{'type':'string','pattern':'a.{40}$','maxLength':400}}}",
                   "#/properties/a/pattern: too complex");
    assert_fit("{'type':'string','pattern':'^[a-z]{1,400}$','maxLength':300}", "'abc'");
}

#define HOST_NAME                                                                                                                \
    "{'type':'string','pattern':'^(?=.{1,253}\\\\.?$)[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"                              \
    "(?:\\\\.[a-zA-Z0-9](?:[-0-9a-zA-Z]{0,61}[0-9a-zA-Z])?)*\\\\.?$'}"

static kin_grammar *compile_within(const char *schema_text, kin_grammar_budget *budget, kin_text_buffer *relaxed) {
    char *schema = quoted(schema_text);
    kin_grammar *grammar;
    kin_err err = {""};
    if (kin_schema_compile(&grammar, str(schema), relaxed, budget, &err) != 0) assert_non_null(strstr(err.text, "too "));
    free(schema);
    return grammar;
}
#define compile_within(...) FROM_TEST(compile_within(__VA_ARGS__))

static void the_steps_of_one_schema_have_a_limit_however_many_parts_it_has(void **state) {
    (void)state;
    kin_text_buffer schema = {0}, relaxed = {0};
    kin_text_print(&schema, "{'type':'object','properties':{");
    for (int i = 0; i < 10; i++)
        kin_text_print(&schema, "%s'%c':{'type':'string','pattern':'%c.{40}$','maxLength':400}", i ? "," : "", 'a' + i, 'a' + i);
    kin_text_print(&schema, "}}");
    kin_grammar_budget budget = kin_grammar_budget_of(1 << 22);
    kin_grammar *grammar = compile_within(schema.at, &budget, &relaxed);
    assert_non_null(grammar); // what is too expensive says nothing, and the rest holds
    assert_true(takes(grammar, "{\"b\": \"x\"}"));
    assert_false(takes(grammar, "{\"b\": 1}"));
    for (int i = 0; i < 5; i++) {
        char place[40];
        snprintf(place, sizeof place, "#/properties/%c/pattern (too complex", 'a' + i);
        assert_non_null(strstr(relaxed.at, place));
    }
    assert_true(budget.is_spent);
    assert_in_range(budget.steps, 1 << 18, 1 << 20); // those that are kept for the whole
    kin_grammar_free(grammar);
    budget = kin_grammar_budget_of(1 << 10);
    assert_null(compile_within("{'type':'object','properties':{'a':{'type':'integer','minimum':3}}}", &budget, NULL));
    assert_true(budget.is_spent);
    kin_text_fini(&relaxed);
    kin_text_fini(&schema);
}

static void a_part_that_was_compiled_to_see_its_size_is_not_compiled_again(void **state) {
    (void)state;
    kin_grammar_budget budget = kin_grammar_budget_of(KIN_GRAMMAR_MAX_STEPS);
    kin_grammar *grammar = compile_within(HOST_NAME, &budget, NULL);
    assert_non_null(grammar);
    uint64_t n_steps = KIN_GRAMMAR_MAX_STEPS - budget.steps;
    kin_grammar_free(grammar);
    budget = kin_grammar_budget_of(n_steps * 3 / 2); // two of them would not do
    grammar = compile_within(HOST_NAME, &budget, NULL);
    assert_non_null(grammar);
    assert_false(budget.is_spent);
    kin_grammar_free(grammar);
}

// The same automaton as one that is made of the whole text.
static void parts_are_the_rules_that_they_stand_for(void **state) {
    (void)state;
    static const char *const schemas[] = {
        "{'type':'object','properties':{'a':{'type':'string','pattern':'^\xc3\xa9[a-z]+$','maxLength':9},"
        "'b':{'type':'integer','multipleOf':7,'minimum':3},'c':{'type':'string','pattern':'^[a-z]+$','maxLength':5},"
        "'d':{'enum':['\xf0\x9f\x98\x80','x']},'e':{'type':'string','format':'date','minLength':3}},'required':['a','c']}",
        "{'anyOf':[{'type':'string','pattern':'^(?!ab)[a-c]*$'},{'type':'string','pattern':'b','maxLength':0}]}",
    };
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
        char *schema = quoted(schemas[i]);
        kin_text_buffer gbnf = {0};
        kin_grammar *whole, *of_parts;
        assert_int_equal(kin_schema_to_gbnf(str(schema), NULL, &gbnf, NULL), 0);
        assert_int_equal(kin_grammar_compile(&whole, gbnf.at, gbnf.len, NULL), 0);
        assert_int_equal(kin_schema_compile(&of_parts, str(schema), NULL, NULL, NULL), 0);
        kin_grammar_size a = kin_grammar_get_size(whole), b = kin_grammar_get_size(of_parts);
        assert_int_equal(a.n_states, b.n_states);
        assert_int_equal(a.n_machines, b.n_machines);
        assert_int_equal(a.n_classes, b.n_classes);
        kin_grammar_free(of_parts);
        kin_grammar_free(whole);
        kin_text_fini(&gbnf);
        free(schema);
    }
}

static bool is_third(void *n_asked) {
    return ++*(int *)n_asked == 3;
}

static void compiling_can_be_stopped(void **state) {
    (void)state;
    int n_asked = 0;
    kin_grammar_budget budget = kin_grammar_budget_of(KIN_GRAMMAR_MAX_STEPS);
    budget.stopped = is_third;
    budget.user = &n_asked;
    assert_null(compile_within(HOST_NAME, &budget, NULL));
    assert_true(budget.is_spent);
    assert_in_range(KIN_GRAMMAR_MAX_STEPS - budget.steps, 0, KIN_GRAMMAR_MAX_STEPS); // and of the trial all are taken
    assert_in_range(n_asked, 3, 10);
}

static void a_schema_that_nothing_is_valid_for_is_refused_by_its_place(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"{'type':'object','properties':{'a':{'type':'integer','multipleOf':7,'minimum':1,'maximum':6}},'required':['a']}",
         "#/properties/a: it matches no text"},
        {"{'type':'object','properties':{'a':{'type':'object','properties':{'b':false},'required':['b']}},'required':['a']}",
         "#/properties/a/properties/b: it matches no text"},
        {"{'type':'array','minItems':1,'items':{'enum':[1],'type':'string'}}", "#/items: it matches no text"},
        {"{'type':'array','minItems':3,'maxItems':2}", "#: it matches no text"},
        {"{'anyOf':[{'type':'object','properties':{'x\\n':{'not':{}}},'required':['x\\n']}]}",
         "#/anyOf/0/properties/x?: it matches no text"},
        {"{'$ref':'#/$defs/n','$defs':{'n':{'type':'string','minLength':4,'maxLength':3}}}", "#: it matches no text"},
        {"{'type':'object','properties':{'a':{'$ref':'#'}},'required':['a']}", "it matches no text: it recurs without end"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) assert_refused(cases[i][0], cases[i][1]);
}

static void multiples_hold_with_bounds(void **state) {
    (void)state;
    assert_fit("{'type':'integer','multipleOf':5}", "0", "5", "-15", "1000");
    assert_no_fit("{'type':'integer','multipleOf':5}", "3", "5.0", "01");
    assert_fit("{'type':'number','multipleOf':5}", "10");
    assert_no_fit("{'type':'number','multipleOf':5}", "12", "5.5", "1e1");
    assert_fit("{'type':'integer','multipleOf':7,'minimum':-20,'maximum':30}", "-14", "0", "28");
    assert_no_fit("{'type':'integer','multipleOf':7,'minimum':-20,'maximum':30}", "-21", "35", "8");
    assert_fit("{'type':'number','multipleOf':0.25}", "0.25", "3.5", "-7", "1.75");
    assert_no_fit("{'type':'number','multipleOf':0.25}", "0.3", "0.125");
    assert_fit("{'allOf':[{'multipleOf':4},{'multipleOf':6}],'type':'integer'}", "12", "24");
    assert_no_fit("{'allOf':[{'multipleOf':4},{'multipleOf':6}],'type':'integer'}", "4", "6");
    assert_fit("{'enum':[1,2,3,4],'multipleOf':2}", "2", "4");
    assert_no_fit("{'enum':[1,2,3,4],'multipleOf':2}", "1", "3");
    assert_refused("{'type':'integer','multipleOf':7,'minimum':1,'maximum':6}", "matches no text");
    assert_refused("{'type':'integer','multipleOf':0}", "above 0");
    assert_refused("{'type':'object','properties':{'a':{'type':'integer','multipleOf':10007}}}", "#/properties/a/multipleOf");
    assert_fit("{'type':'integer','multipleOf':1000000}", "3000000", "0");
    assert_refused("{'type':'integer','multipleOf':1e308}", "#/multipleOf: a multiple of a number with this many digits");
    assert_refused("{'type':'integer','multipleOf':1e-308}", "#/multipleOf: a multiple of a number with this many digits");
    assert_refused("{'type':'integer','multipleOf':-1e308}", "above 0");
    assert_fit("{'type':'string','maxLength':1e308}", "'abc'");
    assert_refused("{'type':'string','minLength':1e308}", "the number is too large");
    assert_refused("{'type':'string','maxLength':1e-308}", "must be a whole number");
    assert_refused("{'type':'string','maxLength':-1e308}", "must be a whole number");
}

// A relaxed schema: the unsupported keywords are listed.
static void what_says_nothing_is_named(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"{'type':'object','properties':{'id':{'type':'string','pattern':'(?<=a)b'},'n':{'type':'integer','multipleOf':10007}}}",
         "#/properties/id/pattern (the pattern '(?<=a)b': look-behind, (?<= and (?<!, is not supported); "},
        {"{'type':'array','uniqueItems':true}", "#/uniqueItems (a grammar cannot"},
        {"{'type':'object','contains':{},'minProperties':3}", "#/contains (this keyword is not supported); #/minProperties ("},
        {"{'oneOf':[{'type':'integer'},{'type':'number'}]}", "#/oneOf (alternatives"},
        {"{'$ref':'#/nowhere','not':{'type':'null'}}", "#/not ("},
        {"{'type':'string','pattern':'a.{40}$','maxLength':400}", "#/pattern (too complex"},
        {"{'type':'string','pattern':'^a+$','maxLength':4}", ""},
        {"{'type':'string','format':'uuid','pattern':'^[0-9a-f-]+$'}", ""},
        {"{'type':'string','format':'time','pattern':'^[0-9:]{5}$'}", ""},
        {"{'type':'string','format':'time','pattern':'^[0-9:x]{5}$'}", "#/format (no text has the format and matches the other"},
        {"{'type':'string','allOf':[{'pattern':'(?<=a)b'},{'pattern':'^a$'}]}", "#/allOf/0/pattern (the pattern '(?<=a)b'"},
        {"{'type':'string','format':'date','pattern':'(?<=a)b'}", "#/pattern (the pattern '(?<=a)b'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *schema = quoted(cases[i][0]);
        kin_text_buffer relaxed = {0}, gbnf = {0};
        kin_grammar *grammar = NULL;
        kin_err err = {""};
        kin_schema_to_gbnf(str(schema), &relaxed, &gbnf, &err);
        assert_string_equal(err.text, "");
        if (kin_grammar_compile(&grammar, gbnf.at, gbnf.len, &err) != 0) fail_msg("%s: %s", cases[i][0], err.text);
        const char *text = relaxed.at ? relaxed.at : "";
        if (!strstr(text, cases[i][1]) || (*cases[i][1] == '\0') != (*text == '\0'))
            fail_msg("'%s' is not in '%s'", cases[i][1], text);
        kin_grammar_free(grammar);
        kin_text_fini(&gbnf);
        kin_text_fini(&relaxed);
        free(schema);
    }
}

static void too_much_combination_is_refused(void **state) {
    (void)state;
    kin_text_buffer schema = {0}; // 20 times 3 alternatives: 3^20 rules if they were separate
    kin_text_print(&schema, "{'allOf':[");
    for (int i = 0; i < 20; i++)
        kin_text_print(&schema, "%s{'anyOf':[{'minimum':%d},{'minLength':%d},{'minItems':%d}]}", i ? "," : "", i, i, i);
    kin_text_print(&schema, "]}");
    assert_refused(schema.at, "too large");
    kin_text_fini(&schema);
}

// A schema whose cost is quadratic in its size must be rejected before that takes seconds.
static void long_lists_are_refused_or_fast(void **state) {
    (void)state;
    static const char *const heads[] = {"{'required':[", "{'type':'object','properties':{", "{'prefixItems':[", "{'oneOf':["};
    static const char *const before[] = {"'p", "'p", "{'const':", "{'const':"}, *const after[] = {"'", "':{}", "}", "}"};
    static const char *const tails[] = {"]}", "}}", "]}", "]}"};
    for (int kind = 0; kind < 4; kind++) {
        for (int n = 200; n <= 200000; n *= 1000) {
            kin_text_buffer schema = {0};
            kin_text_buffer gbnf = {0};
            kin_err err = {""};
            kin_text_print(&schema, "%s", heads[kind]);
            for (int i = 0; i < n; i++) kin_text_print(&schema, "%s%s%d%s", i ? "," : "", before[kind], i, after[kind]);
            kin_text_print(&schema, "%s", tails[kind]);
            char *text = quoted(schema.at);
            int rc = kin_schema_to_gbnf(str(text), NULL, &gbnf, &err);
            if (rc != (n == 200 ? 0 : KIN_FAIL)) fail_msg("%s: %s", heads[kind], err.text);
            free(text);
            kin_text_fini(&gbnf);
            kin_text_fini(&schema);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_is_read_as_the_standard_has_it),
        cmocka_unit_test(json_that_nests_too_deep_is_refused),
        cmocka_unit_test(json_is_written_as_it_was_read),
        cmocka_unit_test(types_are_told_apart),
        cmocka_unit_test(white_space_is_short),
        cmocka_unit_test(strings_are_valid_json),
        cmocka_unit_test(lengths_count_characters),
        cmocka_unit_test(patterns_match_as_regular_expressions_do),
        cmocka_unit_test(formats_are_dates_times_and_uuids),
        cmocka_unit_test(bounds_hold_for_every_number_near_them),
        cmocka_unit_test(large_bounds_are_exact),
        cmocka_unit_test(properties_come_in_order_and_commas_between_them),
        cmocka_unit_test(additional_properties_have_other_names),
        cmocka_unit_test(arrays_have_items_and_counts),
        cmocka_unit_test(enums_are_those_values_that_the_rest_allows),
        cmocka_unit_test(alternatives_and_conjunctions_combine),
        cmocka_unit_test(one_of_wants_alternatives_that_exclude_each_other),
        cmocka_unit_test(references_are_followed_and_may_recur),
        cmocka_unit_test(keywords_that_are_not_understood_are_named),
        cmocka_unit_test(annotations_of_editors_and_generators_say_nothing),
        cmocka_unit_test(an_alternative_that_nothing_is_valid_for_is_dropped),
        cmocka_unit_test(a_format_and_patterns_hold_together),
        cmocka_unit_test(names_of_properties_may_be_listed_or_have_a_pattern),
        cmocka_unit_test(what_patterns_cannot_have_is_called_by_its_name),
        cmocka_unit_test(patterns_lengths_and_formats_hold_together),
        cmocka_unit_test(patterns_may_look_ahead),
        cmocka_unit_test(what_is_too_complex_together_is_refused_by_name),
        cmocka_unit_test(the_steps_of_one_schema_have_a_limit_however_many_parts_it_has),
        cmocka_unit_test(a_part_that_was_compiled_to_see_its_size_is_not_compiled_again),
        cmocka_unit_test(parts_are_the_rules_that_they_stand_for),
        cmocka_unit_test(compiling_can_be_stopped),
        cmocka_unit_test(a_schema_that_nothing_is_valid_for_is_refused_by_its_place),
        cmocka_unit_test(multiples_hold_with_bounds),
        cmocka_unit_test(what_says_nothing_is_named),
        cmocka_unit_test(too_much_combination_is_refused),
        cmocka_unit_test(long_lists_are_refused_or_fast),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
