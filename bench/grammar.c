// Grammar masks: measures how long it takes to find the tokens that a grammar allows next.
//
//   grammar VOCAB.gguf...          the grammars and JSON schemas below; tokens of all these vocabularies, at most 151,936
//   grammar -g FILE VOCAB.gguf...  a GBNF grammar
//
// Generates documents for each grammar: at every token the mask is computed, and one of the allowed tokens is chosen at random.
// "in use": with the matcher's cache from earlier tokens; "cold": with an empty cache at every token.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/rng.h"
#include "model/vocab_load.h"
#include "pure/grammar/grammar_compile.h"
#include "pure/grammar/matcher.h"
#include "pure/grammar/schema.h"
#include "sys/whole_file.h"

enum { MAX_TOKENS = 151936, MAX_TIMES = 4000, MAX_LENGTH = 400 };

static const struct {
    const char *name, *gbnf, *schema; // one of gbnf and schema
} grammars[] = {
    {"JSON, llama.cpp's grammar",
     "root ::= object\n"
     "value ::= object | array | string | number | (\"true\" | \"false\" | \"null\") ws\n"
     "object ::= \"{\" ws ( string \":\" ws value (\",\" ws string \":\" ws value)* )? \"}\" ws\n"
     "array ::= \"[\" ws ( value (\",\" ws value)* )? \"]\" ws\n"
     "string ::= \"\\\"\" ( [^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" ([\"\\\\bfnrt] | \"u\" [0-9a-fA-F]{4}) )* \"\\\"\" ws\n"
     "number ::= (\"-\"? ([0-9] | [1-9] [0-9]{0,15})) (\".\" [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws\n"
     "ws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n",
     NULL},
    {"any JSON object", NULL, "{\"type\":\"object\"}"},
    {"person", NULL,
     "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":\"integer\",\"minimum\":0,"
     "\"maximum\":150},"
     "\"email\":{\"type\":\"string\",\"pattern\":\"^\\\\S+@\\\\S+\\\\.[a-z]{2,}$\"},\"born\":{\"type\":\"string\",\"format\":"
     "\"date\"},"
     "\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":20},\"maxItems\":8},"
     "\"bio\":{\"type\":\"string\",\"maxLength\":500}},\"required\":[\"name\",\"age\"],\"additionalProperties\":false}"},
    {"tree", NULL,
     "{\"$ref\":\"#/$defs/"
     "n\",\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"label\":{\"type\":\"string\",\"minLength\":1},"
     "\"kind\":{\"enum\":[\"leaf\",\"branch\",\"root\"]},\"weight\":{\"type\":\"number\",\"minimum\":0,\"maximum\":1},"
     "\"children\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/n\"}}},\"required\":[\"label\",\"kind\"],"
     "\"additionalProperties\":{\"type\":\"string\"}}}}"},
    {"strings of at most 12", NULL, "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":12}}"},
    {"words, [a-zA-Z ]*", "root ::= [a-zA-Z ]* \"\\n\"\n", NULL},
};

static _Noreturn void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static kin_vocab *load(const char *path) {
    kin_gguf *gguf;
    kin_vocab *vocab;
    kin_err err;
    if (kin_gguf_open(&gguf, path, &err) != 0 || kin_vocab_load(&vocab, gguf, &err) != 0) fail(err.text);
    kin_gguf_close(gguf);
    return vocab;
}

// Returns the first vocabulary, extended by tokens of the others up to MAX_TOKENS.
static kin_vocab *join(char **paths, int n) {
    kin_vocab *vocabs[16], *joined;
    static kin_str tokens[MAX_TOKENS];
    static int32_t types[MAX_TOKENS];
    int32_t n_tokens = 0;
    kin_err err;
    for (int i = 0; i < n && i < 16; i++) {
        vocabs[i] = load(paths[i]);
        for (int32_t id = 0; id < kin_vocab_n_tokens(vocabs[i]) && n_tokens < MAX_TOKENS; id++) {
            bool is_there = false;
            kin_str text = kin_vocab_text(vocabs[i], id);
            for (int k = 0; k < i && !is_there; k++) is_there = kin_vocab_find(vocabs[k], text.at, text.len) >= 0;
            if (is_there) continue;
            types[n_tokens] = (int32_t)kin_vocab_type(vocabs[i], id);
            tokens[n_tokens++] = text;
        }
    }
    kin_vocab_spec spec = kin_vocab_spec_defaults(kin_vocab_get_kind(vocabs[0]), "llama-bpe");
    spec.tokens = tokens;
    spec.types = types;
    spec.n_tokens = n_tokens;
    spec.eos = kin_vocab_eos(vocabs[0]);
    spec.add_bos = spec.add_eos = false;
    if (kin_vocab_new(&joined, &spec, &err) != 0) fail(err.text);
    return joined;
}

// CPU time of this thread, because the machine may be busy.
static double cpu_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int32_t random_token(kin_rng *rng, const uint64_t *set, int32_t n_tokens) {
    int32_t n = 0, id = 0;
    for (int32_t i = 0; i < n_tokens; i++) n += kin_token_set_has(set, i);
    if (n == 0) return -1;
    int32_t wanted = (int32_t)(kin_rng_u64(rng) % (uint64_t)n);
    for (;; id++) {
        if (kin_token_set_has(set, id) && wanted-- == 0) return id;
    }
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void print_times(const char *name, double *us, int n) {
    qsort(us, (size_t)n, sizeof *us, by_value);
    printf("  %-10s p50 %7.1f  p90 %7.1f  p99 %7.1f  max %7.1f us  (%d masks)\n", name, us[n / 2], us[n * 9 / 10],
           us[n * 99 / 100], us[n - 1], n);
}

static int measure(const kin_grammar *grammar, const kin_token_trie *trie, bool cold, double *us) {
    kin_matcher *m, *fresh;
    kin_place place = {0};
    kin_rng rng;
    kin_err err;
    int n = 0;
    uint64_t *set = malloc(trie->n_words * sizeof *set);
    kin_rng_seed(&rng, 1);
    if (!set || kin_matcher_new(&m, grammar, trie, &err) != 0) fail("out of memory");
    while (n < (cold ? MAX_TIMES / 4 : MAX_TIMES)) {
        bool allowed;
        if (kin_matcher_begin(m, &place) != 0) fail("out of memory");
        for (int length = 0; length < MAX_LENGTH && n < MAX_TIMES && kin_place_may_go_on(&place); length++) {
            if (cold && kin_matcher_new(&fresh, grammar, trie, &err) != 0) fail("out of memory");
            double begun = cpu_us();
            kin_matcher_mask(cold ? fresh : m, &place, set);
            us[n++] = cpu_us() - begun;
            if (cold) kin_matcher_free(fresh);
            int32_t id = random_token(&rng, set, trie->n_tokens);
            if (id < 0 || kin_vocab_is_eog(trie->vocab, id)) break;
            if (kin_matcher_accept(m, &place, id, &allowed) != 0 || !allowed) fail("a token of the mask was refused");
        }
    }
    kin_place_fini(&place);
    kin_matcher_free(m);
    free(set);
    return n;
}

static void bench(const char *name, const char *text, size_t len, const kin_token_trie *trie) {
    static double us[MAX_TIMES + MAX_LENGTH];
    kin_grammar *grammar;
    kin_err err;
    kin_time begun = kin_clock_now();
    if (kin_grammar_compile(&grammar, text, len, &err) != 0) fail(err.text);
    kin_grammar_size size = kin_grammar_get_size(grammar);
    printf("%s: %" PRIu32 " machines, %" PRIu32 " states, %" PRIu32 " classes, %zu KiB, compiled in %.2f ms\n", name,
           size.n_machines, size.n_states, size.n_classes, size.bytes >> 10, kin_clock_ms(begun, kin_clock_now()));
    print_times("in use", us, measure(grammar, trie, false, us));
    print_times("cold", us, measure(grammar, trie, true, us));
    kin_grammar_free(grammar);
}

static void bench_schema(const char *name, const char *schema, const kin_token_trie *trie) {
    kin_text_buffer gbnf = {0};
    kin_err err;
    if (kin_schema_to_gbnf((kin_str){schema, strlen(schema)}, NULL, &gbnf, &err) != 0) fail(err.text);
    bench(name, gbnf.at, gbnf.len, trie);
    kin_text_fini(&gbnf);
}

int main(int argc, char **argv) {
    kin_token_trie *trie;
    uint8_t *text = NULL;
    size_t len;
    kin_err err;
    if (argc > 2 && strcmp(argv[1], "-g") == 0) {
        if (kin_whole_file_read(argv[2], 1 << 22, &text, &len, &err) != 0) fail(err.text);
        argc -= 2;
        argv += 2;
    }
    if (argc < 2) fail("usage: grammar [-g FILE] VOCAB.gguf...");
    kin_vocab *vocab = join(argv + 1, argc - 1);
    kin_time begun = kin_clock_now();
    if (kin_token_trie_new(&trie, vocab, &err) != 0) fail(err.text);
    printf("%d tokens; trie of %" PRIu32 " plain and %" PRIu32 " other nodes, made in %.0f ms\n", trie->n_tokens,
           trie->plain.n_nodes, trie->other.n_nodes, kin_clock_ms(begun, kin_clock_now()));
    if (text) bench(argv[0], (const char *)text, len, trie);
    for (size_t i = 0; !text && i < sizeof grammars / sizeof *grammars; i++) {
        if (grammars[i].schema)
            bench_schema(grammars[i].name, grammars[i].schema, trie);
        else
            bench(grammars[i].name, grammars[i].gbnf, strlen(grammars[i].gbnf), trie);
    }
    return 0;
}
