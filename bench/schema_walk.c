// Writes a random document for each JSON schema: each line of standard input is a schema, each line of the output is what a model
// choosing random tokens would write under its grammar.
//
//   schema_walk [SEED]       +DOCUMENT, -reason why no document exists, or !DOCUMENT without an end
//   schema_walk --calls FORMAT [SEED]
//                            the schemas are those of a tool's arguments: writes a call of the tool in this format (a number of
//                            kin_chat_known) and prints the arguments that the reply parser finds: +ARGUMENTS; -reason why there
//                            is no grammar, or which keywords it ignores; !REPLY that is not one call; ?REPLY without an end
//   schema_walk --gbnf       the grammar of a single schema, which is the whole input
//
// tests/test_schema_random.sh checks the documents against another implementation of JSON schemas.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "pure/chat/reply_grammar.h"
#include "pure/chat/reply_parser.h"
#include "pure/grammar/grammar_compile.h"
#include "pure/grammar/matcher.h"
#include "pure/grammar/schema.h"
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

// The mark that ends a plain-text value, and how many of its bytes the walk has just written.
typedef struct text_end {
    const char *mark;
    size_t at;
} text_end;

// At first chooses any token; later mostly tokens that close something: where a pattern allows a digit, brackets would go on
// forever.
static int32_t choose(kin_rng *rng, const uint64_t *set, int32_t n_tokens, int length, char last, text_end *end) {
    int32_t n = 0;
    if (length >= FREE_TOKENS && end->mark[end->at] && (end->at > 0 || last != '"')) { // not where a string of JSON begins
        int32_t id = SMALL_SPM_BYTES + (uint8_t)end->mark[end->at++];
        if (kin_token_set_has(set, id)) return id;
    }
    end->at = 0;
    if (length >= FREE_TOKENS && kin_rng_u64(rng) % 8 > 0) {
        if (kin_token_set_has(set, EOS)) return EOS;
        // A quote ends a string, but may also begin another property; a bracket in a string ends nothing.
        for (const char *c = kin_rng_u64(rng) % 4 > 0 ? "}]\"" : "\"}]"; *c; c++) {
            if (kin_token_set_has(set, SMALL_SPM_BYTES + *c)) return SMALL_SPM_BYTES + *c;
        }
    }
    for (int32_t id = 0; id < n_tokens; id++) n += kin_token_set_has(set, id);
    if (n == 0) return KIN_TOKEN_NONE;
    n = (int32_t)(kin_rng_u64(rng) % (uint64_t)n);
    for (int32_t id = 0;; id++) {
        if (kin_token_set_has(set, id) && n-- == 0) return id;
    }
}

// Appends a document; returns false if it does not end within MAX_TOKENS.
static bool walk(kin_matcher *m, const kin_token_trie *trie, kin_rng *rng, const char *mark, kin_text_buffer *document) {
    kin_place place = {0};
    text_end end = {mark, 0};
    uint64_t set[16];
    kin_assert(trie->n_words <= 16 && kin_matcher_begin(m, &place) == 0);
    int32_t id = 0;
    for (int length = 0; length < MAX_TOKENS && id != EOS; length++) {
        bool allowed;
        kin_matcher_mask(m, &place, set);
        id = choose(rng, set, trie->n_tokens, length, document->len > 0 ? document->at[document->len - 1] : 0, &end);
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
        if (document->at[i] == '\n' || document->at[i] == '\r') document->at[i] = ' ';
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
        bool ends = walk(m, trie, &rng, "", &document);
        print_document(ends ? '+' : '!', &document);
    }
    kin_matcher_free(m);
    kin_grammar_free(grammar);
    kin_text_fini(&document);
    kin_text_fini(&gbnf);
}

// ---- calls of a tool

typedef struct found_calls { // what the reply parser made of a reply
    kin_text_buffer arguments;
    int n_begun, n_ended, n_other;
} found_calls;

static void add_events(found_calls *found, const kin_reply_event *events, int n) {
    for (int i = 0; i < n; i++) {
        found->n_begun += events[i].kind == KIN_REPLY_TOOL_BEGIN;
        found->n_ended += events[i].kind == KIN_REPLY_TOOL_END;
        found->n_other += events[i].kind == KIN_REPLY_TEXT || events[i].kind == KIN_REPLY_REASONING;
        if (events[i].kind == KIN_REPLY_TOOL_ARGUMENTS) kin_text_put(&found->arguments, events[i].text.at, events[i].text.len);
    }
}

static void print_call(const kin_reply_rules *rules, kin_text_buffer *reply) {
    kin_reply_options o = {.format = rules->format, .tools = rules->tools, .n_tools = rules->n_tools};
    const kin_reply_event *events;
    found_calls found = {0};
    kin_reply_parser *parser;
    int n;
    kin_assert(kin_reply_parser_new(&parser, &o, NULL) == 0);
    kin_assert(kin_reply_parser_push(parser, reply->at, reply->len, &events, &n) == 0);
    add_events(&found, events, n);
    kin_assert(kin_reply_parser_flush(parser, false, &events, &n) == 0);
    add_events(&found, events, n);
    bool is_call = found.n_begun == 1 && found.n_ended == 1;
    is_call &= found.n_other == 0 || rules->format->syntax == KIN_CALL_CHANNELS; // where a preamble may come first
    print_document(is_call ? '+' : '!', is_call ? &found.arguments : reply);
    kin_text_fini(&found.arguments);
    kin_reply_parser_free(parser);
}

static void write_call(kin_str schema, const kin_chat_format *format, const kin_token_trie *trie, uint64_t seed) {
    kin_reply_tool tool = {.name = {"act", 3}, .parameters = schema};
    kin_text_buffer relaxed = {0}, reply = {0};
    kin_reply_rules rules = {.format = format, .tools = &tool, .n_tools = 1, .required = true, .relaxed = &relaxed};
    kin_grammar *grammar = NULL;
    kin_matcher *m = NULL;
    kin_rng rng;
    kin_err err;
    kin_rng_seed(&rng, seed);
    if (kin_reply_grammar_new(&grammar, &rules, NULL, &err) != 0) {
        printf("-%s\n", err.text);
    } else if (relaxed.len > 0) {
        print_document('-', &relaxed);
    } else {
        kin_assert(kin_matcher_new(&m, grammar, trie, NULL) == 0);
        char end[KIN_CHAT_MAX_MARK + 1]; // a value that is padded needs the line end first
        snprintf(end, sizeof end, "%s%s", format->pads_values ? "\n" : "",
                 format->value_end[0]                  ? format->value_end
                 : format->quote[0]                    ? format->quote
                 : format->syntax == KIN_CALL_CHANNELS ? "<|end|><|start|>assistant"
                                                       : "'");
        if (walk(m, trie, &rng, end, &reply))
            print_call(&rules, &reply);
        else
            print_document('?', &reply);
    }
    kin_matcher_free(m);
    kin_grammar_free(grammar);
    kin_text_fini(&reply);
    kin_text_fini(&relaxed);
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
    const kin_chat_format *format = NULL;
    if (argc > 2 && strcmp(argv[1], "--calls") == 0) {
        long number = strtol(argv[2], NULL, 10);
        if (number <= KIN_CHAT_PLAIN || number >= KIN_CHAT_N_KNOWN) return 2;
        format = kin_chat_format_known((kin_chat_known)number);
        argc -= 2, argv += 2;
    }
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    kin_token_trie *trie = make_trie();
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;
    while ((len = getline(&line, &cap, stdin)) > 0) {
        if (line[len - 1] == '\n') len--;
        if (format)
            write_call((kin_str){line, (size_t)len}, format, trie, ++seed);
        else
            write_one((kin_str){line, (size_t)len}, trie, ++seed);
    }
    free(line);
    free_trie(trie);
    return 0;
}
