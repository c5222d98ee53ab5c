// Writes a random document for each JSON schema: each line of standard input is a schema, each line of the output is what a model
// choosing random tokens would write under its grammar.
//
//   schema_walk [SEED]       +DOCUMENT, -reason why no document exists, or !DOCUMENT without an end
//   schema_walk --gbnf       the grammar of a single schema, which is the whole input
//
// tests/test_schema_random.sh checks the documents against another implementation of JSON schemas.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "pure/text/matcher.h"
#include "pure/text/schema.h"
#include "testkit/small_vocab.h"

enum { MAX_TOKENS = 3000, FREE_TOKENS = 60 };

// Tokens besides the 256 bytes, typical of real vocabularies when JSON is written.
static const char *const words[] = {
    "{\"",
    "\":",
    "\": ",
    "\", \"",
    "\",\"",
    "\"}",
    "]}",
    "}]",
    "\"]",
    "[\"",
    "[[",
    "},{",
    " \"",
    "\n  ",
    "\n    ",
    "  ",
    "true",
    "false",
    "null",
    "12",
    "123",
    "0.5",
    "-1",
    "e-",
    "10",
    "2024",
    "-0",
    "\\n",
    "\\\"",
    "\\u00",
    "\\u",
    "d83d",
    "\\ude",
    "name",
    "value",
    "the",
    " the",
    "items",
    "id",
    "a",
    "b",
    "ab",
    "abc",
    "\xc3\xa9",
    "\xe2\x82\xac",
    "\xf0\x9f\x98\x80",
    "\xf0\x9f",
    "\xc3",
    "\xa9t",
    "\xe2\x82\xac\xe2\x82\xac",
    "hello world",
    "T00:",
    "-02-",
    ".1",
    "99",
    "x\"",
    "\":{\"",
    "\":[",
    "\":\"",
    "-",
};
enum { N_WORDS = sizeof words / sizeof *words, EOS = 2 };

static kin_token_trie *make_trie(void) {
    static kin_str tokens[SMALL_SPM_SPACE + N_WORDS];
    static int32_t types[SMALL_SPM_SPACE + N_WORDS];
    kin_token_trie *trie;
    kin_vocab_spec spec = small_spm_spec();
    memcpy(tokens, spec.tokens, SMALL_SPM_SPACE * sizeof *tokens);
    memcpy(types, spec.types, SMALL_SPM_SPACE * sizeof *types);
    for (int i = 0; i < N_WORDS; i++) {
        tokens[SMALL_SPM_SPACE + i] = small_piece(words[i]);
        types[SMALL_SPM_SPACE + i] = KIN_TOKEN_NORMAL;
    }
    spec.tokens = tokens;
    spec.types = types;
    spec.scores = NULL;
    spec.n_tokens = SMALL_SPM_SPACE + N_WORDS;
    spec.eos = EOS;
    kin_assert(kin_token_trie_new(&trie, small_vocab(spec), NULL) == 0);
    return trie;
}

static void free_trie(kin_token_trie *trie) {
    kin_vocab *vocab = (kin_vocab *)trie->vocab; // created by make_trie
    kin_token_trie_free(trie);
    kin_vocab_free(vocab);
}

// At first chooses any token; later mostly tokens that close something: where a pattern allows a digit, brackets would go on
// forever.
static int32_t choose(kin_rng *rng, const uint64_t *set, int32_t n_tokens, int length) {
    int32_t n = 0;
    if (length >= FREE_TOKENS && kin_rng_u64(rng) % 8 > 0) {
        int32_t closing = SMALL_SPM_BYTES + "\"}]"[kin_rng_u64(rng) % 3];
        if (kin_token_set_has(set, EOS)) return EOS;
        if (kin_token_set_has(set, closing)) return closing;
    }
    for (int32_t id = 0; id < n_tokens; id++) n += kin_token_set_has(set, id);
    if (n == 0) return KIN_TOKEN_NONE;
    n = (int32_t)(kin_rng_u64(rng) % (uint64_t)n);
    for (int32_t id = 0;; id++) {
        if (kin_token_set_has(set, id) && n-- == 0) return id;
    }
}

// Appends a document; returns false if it does not end within MAX_TOKENS.
static bool walk(kin_matcher *m, const kin_token_trie *trie, kin_rng *rng, kin_text_buffer *document) {
    kin_place place = {0};
    uint64_t set[16];
    kin_assert(trie->n_words <= 16 && kin_matcher_begin(m, &place) == 0);
    int32_t id = 0;
    for (int length = 0; length < MAX_TOKENS && id != EOS; length++) {
        bool allowed;
        kin_matcher_mask(m, &place, set);
        id = choose(rng, set, trie->n_tokens, length);
        if (id == KIN_TOKEN_NONE) break;
        kin_assert(kin_matcher_accept(m, &place, id, &allowed) == 0 && allowed);
        kin_str text = kin_token_trie_text(trie, id);
        kin_text_put(document, text.at, text.len);
    }
    kin_place_fini(&place);
    return id == EOS;
}

// Line ends between parts of a document become spaces: one document per line.
static void print_document(char mark, kin_text_buffer *document) {
    for (size_t i = 0; i < document->len; i++) {
        if (document->at[i] == '\n') document->at[i] = ' ';
    }
    printf("%c%.*s\n", mark, (int)document->len, document->len ? document->at : "");
}

static void write_one(kin_str schema, const kin_token_trie *trie, uint64_t seed) {
    kin_text_buffer gbnf = {0}, document = {0};
    kin_grammar *grammar = NULL;
    kin_matcher *m = NULL;
    kin_rng rng;
    kin_err err;
    kin_rng_seed(&rng, seed);
    if (kin_schema_to_gbnf(schema, NULL, &gbnf, &err) != 0 || kin_grammar_compile(&grammar, gbnf.at, gbnf.len, &err) != 0) {
        printf("-%s\n", err.text);
    } else {
        kin_assert(kin_matcher_new(&m, grammar, trie, NULL) == 0);
        bool ends = walk(m, trie, &rng, &document);
        print_document(ends ? '+' : '!', &document);
    }
    kin_matcher_free(m);
    kin_grammar_free(grammar);
    kin_text_fini(&document);
    kin_text_fini(&gbnf);
}

static int print_gbnf(void) {
    static char schema[1 << 22];
    kin_text_buffer gbnf = {0};
    kin_err err;
    size_t len = fread(schema, 1, sizeof schema, stdin);
    if (kin_schema_to_gbnf((kin_str){schema, len}, NULL, &gbnf, &err) != 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    fwrite(gbnf.at, 1, gbnf.len, stdout);
    kin_text_fini(&gbnf);
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--gbnf") == 0) return print_gbnf();
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    kin_token_trie *trie = make_trie();
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;
    while ((len = getline(&line, &cap, stdin)) > 0) {
        if (line[len - 1] == '\n') len--;
        write_one((kin_str){line, (size_t)len}, trie, ++seed);
    }
    free(line);
    free_trie(trie);
    return 0;
}
