// Text modules with failing allocations: wherever one fails, the call returns an error and leaks nothing.
//
// malloc and its family are replaced by functions that count and can fail on demand. This works with glibc only, and not under a
// sanitizer, which replaces them itself; otherwise the test is skipped.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "pure/chat/reply_grammar.h"
#include "pure/chat/reply_parser.h"
#include "pure/chat/stop_words.h"
#include "pure/grammar/grammar_compile.h"
#include "pure/grammar/schema.h"
#include "pure/sampling/constraint.h"
#include "pure/sampling/sampler.h"
#include "pure/tokenizer/detok.h"
#include "pure/tokenizer/tokenizer.h"
#include "testkit/sanitized.h"
#include "testkit/small_vocab.h"
#include "tests/place.h"

#if defined(__GLIBC__) && !KIN_SANITIZED

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void __libc_free(void *p);

static bool is_armed, has_failed;
static int n_until_failure, n_live;

static bool must_fail(void) {
    if (!is_armed || has_failed || n_until_failure-- > 0) return false;
    has_failed = true;
    return true;
}

static void *counted(void *p) {
    if (is_armed && p) n_live++;
    return p;
}

void *malloc(size_t size) {
    return must_fail() ? NULL : counted(__libc_malloc(size));
}

void *calloc(size_t n, size_t size) {
    return must_fail() ? NULL : counted(__libc_calloc(n, size));
}

void *realloc(void *p, size_t size) {
    if (must_fail()) return NULL;
    return p ? __libc_realloc(p, size) : counted(__libc_malloc(size));
}

void free(void *p) {
    if (is_armed && p) n_live--;
    __libc_free(p);
}

typedef struct job {
    kin_vocab_spec spec;
    const kin_vocab *vocab;
    const kin_tokenizer *tokenizer;
    kin_chat_known format;
} job;

typedef int (*attempt)(const job *job, kin_err *err);

// Lets allocation `first` fail (from 0), then every `step`-th one after it, ... until an attempt needs no more.
static void fail_in_steps(attempt attempt, const job *job, int first, int step, int n_at_least) {
    int n_failed = 0;
    for (int n = first;; n += step) {
        kin_err err = {""};
        n_until_failure = n;
        n_live = 0;
        has_failed = false;
        is_armed = true;
        int rc = attempt(job, &err);
        is_armed = false;
        assert_int_equal(n_live, 0);
        if (rc < 0) assert_true(has_failed && strlen(err.text) > 0);
        n_failed += rc < 0;
        if (!has_failed) break;
    }
    assert_true(n_failed >= n_at_least);
}
#define fail_in_steps(...) FROM_TEST(fail_in_steps(__VA_ARGS__))
#define fail_everywhere(attempt, job, n_at_least) fail_in_steps(attempt, job, 0, 1, n_at_least)

static int make_vocab(const job *job, kin_err *err) {
    kin_vocab *vocab;
    int rc = kin_vocab_new(&vocab, &job->spec, err);
    kin_vocab_free(vocab);
    return rc;
}

static int make_tokenizer(const job *job, kin_err *err) {
    kin_tokenizer *tokenizer;
    int rc = kin_tokenizer_new(&tokenizer, job->vocab, err);
    kin_tokenizer_free(tokenizer);
    return rc;
}

static int encode(const job *job, kin_err *err) {
    static const char text[] = "hello w<|u|> aab\xff<|c|>";
    return (int)kin_tokenizer_encode(job->tokenizer, text, strlen(text), KIN_ENCODE_PARSE_SPECIAL, NULL, 0, err);
}

static int make_detok(const job *job, kin_err *err) {
    kin_detok *detok;
    int rc = kin_detok_new(&detok, job->vocab, 0, err);
    kin_detok_free(detok);
    return rc;
}

static int make_sampler(const job *job, kin_err *err) {
    (void)job;
    kin_sampler_options options = kin_sampler_options_defaults();
    kin_sampler *sampler;
    int rc = kin_sampler_new(&sampler, 100, &options, err);
    kin_sampler_free(sampler);
    return rc;
}

// Everything from a JSON schema to an accepted token.
static int make_constraint(const job *job, kin_err *err) {
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[\"x\",1]},\"b\":{\"type\":\"string\",\"pattern\":"
        "\"^[a\\\\t]+$\"}},\"additionalProperties\":{\"maxLength\":70},\"required\":[\"c\"]}";
    kin_text_buffer gbnf = {0};
    kin_grammar *grammar = NULL;
    kin_token_trie *trie = NULL;
    kin_matcher *matcher = NULL;
    kin_constraint *constraint = NULL;
    int rc = kin_schema_to_gbnf((kin_str){schema, sizeof schema - 1}, NULL, &gbnf, err);
    if (rc == 0) rc = kin_grammar_compile(&grammar, gbnf.at, gbnf.len, err);
    if (rc == 0) rc = kin_token_trie_new(&trie, job->vocab, err);
    if (rc == 0) rc = kin_matcher_new(&matcher, grammar, trie, err);
    if (rc == 0) rc = kin_constraint_new(&constraint, matcher, (kin_str){NULL, 0}, err);
    if (rc == 0) kin_constraint_mask(constraint);
    if (rc == 0) rc = kin_constraint_accept(constraint, SMALL_SPM_BYTES + '{', err);
    kin_constraint_free(constraint);
    kin_matcher_free(matcher);
    kin_token_trie_free(trie);
    kin_grammar_free(grammar);
    kin_text_fini(&gbnf);
    return rc;
}

// Reads calls whose arguments follow the name, precede the name, or are XML parameters.
static int read_reply(const job *job, kin_err *err) {
    static const char schema[] = "{\"properties\":{\"a\":{\"type\":\"integer\"}}}";
    static const char reply[] = "<think>Hm</think>Yes <tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1}}</tool_call>\n"
                                "<tool_call>{\"arguments\":{\"a\":1},\"name\":\"f\"}</tool_call>\n"
                                "<tool_call><function=f><parameter=a>1</parameter></function></tool_call>";
    const kin_reply_tool tool = {.name = {"f", 1}, .parameters = {schema, sizeof schema - 1}};
    const kin_reply_options options = {
        .format = kin_chat_format_known(KIN_CHAT_XML), .tools = &tool, .n_tools = 1, .reasoning = true};
    kin_reply_parser *parser;
    const kin_reply_event *events;
    int n;
    (void)job;
    int rc = kin_reply_parser_new(&parser, &options, err);
    if (rc != 0) return rc;
    rc = kin_reply_parser_push(parser, reply, sizeof reply - 1, &events, &n);
    if (rc == 0) rc = kin_reply_parser_flush(parser, false, &events, &n);
    if (rc != 0) kin_err_set(err, "reply: out of memory");
    kin_reply_parser_free(parser);
    return rc;
}

static int make_reply_grammar(const job *job, kin_err *err) {
    static const char schema[] = "{\"properties\":{\"a\":{\"type\":\"integer\"}}}";
    const kin_reply_tool tool = {.name = {"f", 1}, .parameters = {schema, sizeof schema - 1}};
    const kin_reply_rules rules = {
        .tools = &tool, .n_tools = 1, .thinking = KIN_THINKING_MAY_BEGIN, .format = kin_chat_format_known(job->format)};
    kin_grammar *grammar;
    int rc = kin_reply_grammar_new(&grammar, &rules, job->vocab, err);
    kin_grammar_free(grammar);
    return rc;
}

static int find_stop_word(const job *job, kin_err *err) {
    const kin_str word = {"stop", 4};
    kin_stop_words *stop;
    kin_str before;
    int found;
    (void)job;
    int rc = kin_stop_words_new(&stop, &word, 1, err);
    if (rc != 0) return rc;
    rc = kin_stop_words_push(stop, "abc st", 6, &before, &found);
    if (rc != 0) kin_err_set(err, "stop: out of memory");
    kin_stop_words_free(stop);
    return rc;
}

static void check_vocabulary(kin_vocab_spec spec) {
    job job = {.spec = spec};
    kin_tokenizer *tokenizer;
    fail_everywhere(make_vocab, &job, 8);
    job.vocab = small_vocab(spec);
    fail_everywhere(make_tokenizer, &job, 3);
    assert_int_equal(kin_tokenizer_new(&tokenizer, job.vocab, NULL), 0);
    job.tokenizer = tokenizer;
    fail_everywhere(encode, &job, 4);
    fail_everywhere(make_detok, &job, 2);
    kin_tokenizer_free(tokenizer);
    kin_vocab_free((kin_vocab *)job.vocab);
}
#define check_vocabulary(...) FROM_TEST(check_vocabulary(__VA_ARGS__))

static void spm_survives_failed_allocations(void **state) {
    (void)state;
    kin_vocab_spec spec = small_spm_spec();
    spec.strip_after_special = true;
    check_vocabulary(spec);
}

static void bpe_survives_failed_allocations(void **state) {
    (void)state;
    check_vocabulary(small_bpe_spec("deepseek-llm"));
}

static void grammars_survive_failed_allocations(void **state) {
    (void)state;
    const job job = {.vocab = small_vocab(small_spm_spec())};
    fail_everywhere(make_constraint, &job, 100);
    kin_vocab_free((kin_vocab *)job.vocab);
}

static void replies_survive_failed_allocations(void **state) {
    (void)state;
    job job = {.vocab = small_vocab(small_spm_spec())};
    fail_everywhere(read_reply, NULL, 10);
    // A failed call tries again inside, and may succeed. Each needs some thousand allocations, most of them in code that all
    // formats share.
    for (int i = KIN_CHAT_HERMES; i < KIN_CHAT_N_KNOWN; i++) {
        job.format = (kin_chat_known)i;
        fail_in_steps(make_reply_grammar, &job, i == KIN_CHAT_HERMES ? 0 : i % 5, i == KIN_CHAT_HERMES ? 1 : 5, 0);
    }
    kin_vocab_free((kin_vocab *)job.vocab);
    fail_everywhere(find_stop_word, NULL, 3);
}

static void sampler_survives_failed_allocations(void **state) {
    (void)state;
    fail_everywhere(make_sampler, NULL, 6);
}

static void sampling_allocates_nothing(void **state) {
    (void)state;
    kin_sampler_options options = kin_sampler_options_defaults();
    kin_sampler *sampler;
    assert_int_equal(kin_sampler_new(&sampler, 100, &options, NULL), 0);
    is_armed = true;
    has_failed = false;
    n_until_failure = 0;
    for (int i = 0; i < 100; i++) {
        float logits[100] = {0};
        kin_sampler_accept(sampler, kin_sampler_sample(sampler, logits));
    }
    is_armed = false;
    assert_false(has_failed);
    kin_sampler_free(sampler);
}

static void decoding_allocates_nothing(void **state) {
    (void)state;
    kin_vocab *vocab = small_vocab(small_bpe_spec("gpt-2"));
    kin_detok *detok;
    assert_int_equal(kin_detok_new(&detok, vocab, 0, NULL), 0);
    is_armed = true;
    has_failed = false;
    n_until_failure = 0;
    for (int32_t id = 0; id < SMALL_BPE_N; id++) kin_detok_push(detok, id);
    kin_detok_flush(detok);
    is_armed = false;
    assert_false(has_failed);
    kin_detok_free(detok);
    kin_vocab_free(vocab);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spm_survives_failed_allocations),     cmocka_unit_test(bpe_survives_failed_allocations),
        cmocka_unit_test(sampler_survives_failed_allocations), cmocka_unit_test(sampling_allocates_nothing),
        cmocka_unit_test(replies_survive_failed_allocations),  cmocka_unit_test(decoding_allocates_nothing),
        cmocka_unit_test(grammars_survive_failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void) {
    return 77;
}

#endif
