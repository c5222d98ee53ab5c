// Text modules with failing allocations (failing_malloc.h): vocabularies, tokenizers, grammars, schemas, templates, replies,
// samplers.
#include "failing_malloc.h"

#include "pure/chat/reply_grammar.h"
#include "pure/chat/reply_parser.h"
#include "pure/chat/stop_words.h"
#include "pure/chat/thinking_budget.h"
#include "pure/chat/tool_format.h"
#include "pure/grammar/grammar_compile.h"
#include "pure/grammar/schema.h"
#include "pure/jinja/jinja.h"
#include "pure/sampling/constraint.h"
#include "pure/sampling/ngram_draft.h"
#include "pure/sampling/sampler.h"
#include "pure/tokenizer/detok.h"
#include "pure/tokenizer/tokenizer.h"
#include "testkit/json_value.h"
#include "testkit/small_vocab.h"
#include "tests/place.h"

static const char text[] = "hello world <|u|> ab abc aa a\n\n  12 \xc3\xa9";

// A vocabulary and its trie, made before allocations fail.
typedef struct tools {
    kin_vocab *vocab;
    kin_token_trie *trie;
} tools;

static tools tools_of(const kin_vocab_spec *spec) {
    tools t;
    assert_int_equal(kin_vocab_new(&t.vocab, spec, NULL), 0);
    assert_int_equal(kin_token_trie_new(&t.trie, t.vocab, NULL), 0);
    return t;
}
#define tools_of(...) FROM_TEST(tools_of(__VA_ARGS__))

static void tools_fini(tools *t) {
    kin_token_trie_free(t->trie);
    kin_vocab_free(t->vocab);
}

// ---- vocabulary, tokenizer

static int make_vocab(void *arg, kin_err *err) {
    kin_vocab *vocab;
    kin_token_trie *trie;
    if (kin_vocab_new(&vocab, arg, err) != 0) return KIN_FAIL;
    int rc = kin_token_trie_new(&trie, vocab, err);
    if (rc == 0) kin_token_trie_free(trie);
    kin_vocab_free(vocab);
    return rc;
}

static int encode(void *arg, kin_err *err) {
    kin_tokenizer *tokenizer;
    kin_detok *detok;
    int32_t ids[256];
    if (kin_tokenizer_new(&tokenizer, arg, err) != 0) return KIN_FAIL;
    int64_t n =
        kin_tokenizer_encode(tokenizer, text, strlen(text), KIN_ENCODE_ADD_SPECIAL | KIN_ENCODE_PARSE_SPECIAL, ids, 256, err);
    int rc = n < 0 ? KIN_FAIL : kin_detok_new(&detok, arg, KIN_DETOK_REPLACE, err);
    if (rc == 0) {
        for (int64_t i = 0; i < n; i++) kin_detok_push(detok, ids[i]);
        kin_detok_flush(detok);
        kin_detok_free(detok);
    }
    kin_tokenizer_free(tokenizer);
    return rc;
}

static void vocabularies_and_tokenizers(void **state) {
    (void)state;
    const kin_vocab_spec specs[] = {small_spm_spec(), small_spaced_spec(), small_bpe_spec("llama-bpe")};
    for (int i = 0; i < 3; i++) {
        kin_vocab_spec spec = specs[i];
        kin_vocab *vocab;
        without_memory(make_vocab, &spec);
        assert_int_equal(kin_vocab_new(&vocab, &spec, NULL), 0);
        without_memory(encode, vocab);
        kin_vocab_free(vocab);
    }
}

// ---- grammars

static const char gbnf[] =
    "root ::= item (\",\" ws item){0,3}\nitem ::= \"a\" | \"b\"+ | [c-e]* \"x\" | \"(\" root \")\"\nws ::= \" \"?\n";
static const char schema[] =
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"pattern\":\"^[a-z]+$\"},"
    "\"n\":{\"type\":\"integer\",\"minimum\":3,\"maximum\":120},\"kind\":{\"enum\":[\"a\",\"b\",null]},"
    "\"list\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/x\"},\"maxItems\":3}},\"required\":[\"name\"],"
    "\"allOf\":[{\"properties\":{\"n\":{\"type\":\"number\"}}}],\"$defs\":{\"x\":{\"anyOf\":[{\"type\":\"boolean\"},"
    "{\"const\":\"y\\u00e9\"}]}}}";

static int compile(void *arg, kin_err *err) {
    kin_grammar *grammar;
    (void)arg;
    if (kin_grammar_compile(&grammar, gbnf, strlen(gbnf), err) != 0) return KIN_FAIL;
    kin_grammar_free(grammar);
    return 0;
}

static int translate(void *arg, kin_err *err) {
    kin_text_buffer out = {0};
    kin_grammar *grammar = NULL;
    (void)arg;
    int rc = kin_schema_to_gbnf((kin_str){schema, strlen(schema)}, NULL, &out, err);
    if (rc == 0) rc = kin_grammar_compile(&grammar, out.at, out.len, err);
    if (rc == 0) kin_grammar_free(grammar);
    kin_text_fini(&out);
    return rc;
}

static const kin_reply_tool weather = {{"weather", 7}, {schema, sizeof schema - 1}, true};

static int make_reply_grammar(void *arg, kin_err *err) {
    const tools *t = arg;
    static const kin_chat_known formats[] = {KIN_CHAT_HERMES, KIN_CHAT_XML, KIN_CHAT_LLAMA, KIN_CHAT_MISTRAL,
                                             KIN_CHAT_MISTRAL_LABELS};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        const kin_reply_tool plain = {{"f", 1}, {"{}", 2}, false};
        const kin_reply_rules rules = {
            .format = kin_chat_format_known(formats[i]), .tools = &plain, .n_tools = 1, .parallel = true};
        kin_grammar *grammar;
        if (kin_reply_grammar_new(&grammar, &rules, t->vocab, err) != 0) return KIN_FAIL;
        kin_grammar_free(grammar);
    }
    return 0;
}

typedef struct matching {
    tools t;
    kin_grammar *grammar;
} matching;

// Samples six tokens under the grammar.
static int follow(kin_constraint *constraint, kin_sampler *sampler, int n_vocab, kin_err *err) {
    float logits[SMALL_SPM_N];
    for (int i = 0; i < 6; i++) {
        for (int k = 0; k < n_vocab; k++) logits[k] = (float)(k * 37 % 101);
        int32_t id = kin_sampler_sample_constrained(sampler, logits, constraint);
        if (id < 0) return kin_err_set(err, "no token");
        if (kin_constraint_accept(constraint, id, err) != 0) return KIN_FAIL;
        kin_sampler_accept(sampler, id);
    }
    return kin_constraint_reset(constraint, err);
}

static int match(void *arg, kin_err *err) {
    const matching *m = arg;
    const kin_logit_bias bias = {5, 1};
    kin_sampler_options o = kin_sampler_options_defaults();
    kin_matcher *matcher = NULL;
    kin_constraint *constraint = NULL;
    kin_sampler *sampler = NULL;
    int n_vocab = kin_vocab_n_tokens(m->t.vocab), rc = KIN_FAIL;
    o.bias = &bias;
    o.n_bias = 1;
    o.penalty_last_n = 4;
    if (kin_matcher_new(&matcher, m->grammar, m->t.trie, err) != 0) return KIN_FAIL;
    if (kin_constraint_new(&constraint, matcher, (kin_str){0}, err) == 0 && kin_sampler_new(&sampler, n_vocab, &o, err) == 0) {
        rc = follow(constraint, sampler, n_vocab, err);
        kin_sampler_free(sampler);
    }
    if (constraint) kin_constraint_free(constraint);
    kin_matcher_free(matcher);
    return rc;
}

static void grammars_and_schemas(void **state) {
    (void)state;
    kin_vocab_spec spec = small_spm_spec();
    matching m = {.t = tools_of(&spec)};
    without_memory(compile, NULL);
    without_memory(translate, NULL);
    without_memory(make_reply_grammar, &m.t);
    assert_int_equal(kin_grammar_compile(&m.grammar, gbnf, strlen(gbnf), NULL), 0);
    without_memory(match, &m);
    kin_grammar_free(m.grammar);
    tools_fini(&m.t);
}

// ---- chat templates

static const char template[] =
    "{% macro say(m) %}<|{{ m.role }}|>{{ m.content | trim }}{% endmacro %}{% set ns = namespace(n=0) %}"
    "{% for m in messages if m.content %}{{ say(m) }}{% set ns.n = ns.n + 1 %}{% else %}none{% endfor %}"
    "{{ ns.n }} {{ messages | length }} {{ tools | tojson(indent=2) }} {{ messages[0].content.split(' ') | join(', ') }}"
    "{% if tools %}{% for t in tools %}<tool_call>{{ t.function.name ~ '!' }}</tool_call>{% endfor %}{% endif %}"
    "{{ strftime_now('%Y-%m-%d') }}{{ messages[::-1][0].role | upper }}{{ '%d' % 5 if false else 'x' * 3 }}";
static const char variables[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"a b c\"},{\"role\":\"assistant\",\"content\":\" d \"}],"
    "\"tools\":[{\"function\":{\"name\":\"f\"}}]}";

static int render(void *arg, kin_err *err) {
    kin_jinja *jinja = NULL;
    kin_jinja_text out;
    int rc = KIN_FAIL;
    kin_values *values = kin_values_new(1 << 20);
    if (!values) return kin_err_set(err, "out of memory");
    if (kin_jinja_new(&jinja, template, strlen(template), err) == 0) {
        kin_value *dict = json_variables(values, arg);
        rc = kin_values_check(values, err);
        if (rc == 0) rc = kin_jinja_render(jinja, values, dict, 1760000000, &out, err);
    }
    kin_jinja_free(jinja);
    kin_values_free(values);
    return rc;
}

static int find_tool_format(void *arg, kin_err *err) {
    kin_tool_format format;
    kin_text_buffer out = {0};
    kin_jinja *jinja;
    (void)arg;
    if (kin_jinja_new(&jinja, template, strlen(template), err) != 0) return KIN_FAIL;
    int rc = kin_tool_format_of(&format, jinja, template, strlen(template), err);
    kin_tool_format_put_instructions(&weather.parameters, 1, &out);
    kin_jinja_free(jinja);
    if (rc == 0 && out.failed) rc = kin_err_set(err, "out of memory");
    kin_text_fini(&out);
    return rc;
}

static void chat_templates(void **state) {
    (void)state;
    json_t *json = json_loads(variables, 0, NULL);
    assert_non_null(json);
    without_memory(render, json);
    without_memory(find_tool_format, NULL);
    json_decref(json);
}

// ---- replies

static const char *const replies[][2] = {
    [KIN_CHAT_PLAIN] = {"just ", "text"},
    [KIN_CHAT_HERMES] = {"<think>so</think>a <tool_call>\n{\"name\": \"weather\", \"argum",
                         "ents\": {\"n\": [1, 2]}}\n</tool_call>"},
    [KIN_CHAT_XML] = {"<tool_call>\n<function=weather>\n<parameter=name>\nab", "c\n</parameter>\n</function>\n</tool_call>"},
    [KIN_CHAT_LLAMA] = {"{\"name\": \"weather\", \"param", "eters\": {\"n\": 4}}"},
    [KIN_CHAT_MISTRAL] = {"[TOOL_CALLS][{\"name\": \"weather\", \"argu", "ments\": {\"n\": 4}, \"id\": \"123456789\"}]"},
    [KIN_CHAT_MISTRAL_LABELS] = {"[TOOL_CALLS]weather[CALL_ID]12[ARGS]{\"n\"", ": 4}"},
    [KIN_CHAT_GLM] = {"<tool_call>weather\n<arg_key>name</arg_key>\n<arg_val", "ue>b</arg_value>\n</tool_call>"},
    [KIN_CHAT_GEMMA] = {"<|tool_call>call:weather{name:<|\"|>a", "b<|\"|>}<tool_call|>"},
    [KIN_CHAT_HARMONY] = {"<|channel|>analysis<|message|>so<|end|><|start|>assistant to=functions.weather<|channel|>",
                          "commentary json<|message|>{\"n\": 4}"},
    [KIN_CHAT_LFM] = {"<|tool_call_start|>[weather(name='a\\u00e4", "b', n=4)]<|tool_call_end|>"},
};

static int parse_reply(void *arg, kin_err *err) {
    kin_chat_known which = *(const kin_chat_known *)arg;
    const kin_reply_options o = {.format = kin_chat_format_known(which), .tools = &weather, .n_tools = 1, .reasoning = true};
    const kin_reply_event *events;
    kin_reply_parser *parser;
    int n, rc = 0;
    if (kin_reply_parser_new(&parser, &o, err) != 0) return KIN_FAIL;
    for (int i = 0; i < 2 && rc == 0 && replies[which][0]; i++)
        rc = kin_reply_parser_push(parser, replies[which][i], strlen(replies[which][i]), &events, &n);
    if (rc == 0) rc = kin_reply_parser_flush(parser, false, &events, &n);
    if (rc != 0) kin_err_set(err, "out of memory");
    kin_reply_parser_free(parser);
    return rc;
}

static int stop_at_words(void *arg, kin_err *err) {
    const kin_str words[] = {{"world", 5}, {"xyz", 3}};
    kin_stop_words *stop;
    kin_str before;
    int found;
    (void)arg;
    if (kin_stop_words_new(&stop, words, 2, err) != 0) return KIN_FAIL;
    int rc = kin_stop_words_push(stop, "hello wor", 9, &before, &found);
    if (rc == 0) rc = kin_stop_words_push(stop, "d and more", 10, &before, &found);
    if (rc != 0) kin_err_set(err, "out of memory");
    kin_stop_words_flush(stop);
    kin_stop_words_free(stop);
    return rc;
}

static int think_and_draft(void *arg, kin_err *err) {
    static const int32_t end[] = {4, 5}, tokens[] = {1, 2, 3, 4, 5, 6, 1, 2, 3, 4};
    kin_thinking_budget *budget;
    kin_ngram_draft *draft;
    kin_draft out;
    (void)arg;
    if (kin_thinking_budget_new(&budget, kin_chat_format_known(KIN_CHAT_HERMES), 3, true, end, 2, err) != 0) return KIN_FAIL;
    kin_thinking_budget_free(budget);
    if (kin_ngram_draft_open(&draft, err) != 0) return KIN_FAIL;
    kin_ngram_draft_propose(draft, tokens, 10, 4, &out);
    kin_ngram_draft_close(draft);
    return 0;
}

static void replies_and_their_ends(void **state) {
    (void)state;
    for (kin_chat_known f = KIN_CHAT_PLAIN; f < sizeof replies / sizeof *replies; f++) without_memory(parse_reply, &f);
    without_memory(stop_at_words, NULL);
    without_memory(think_and_draft, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vocabularies_and_tokenizers),
        cmocka_unit_test(grammars_and_schemas),
        cmocka_unit_test(chat_templates),
        cmocka_unit_test(replies_and_their_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
