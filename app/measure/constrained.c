#include "app/measure/constrained.h"

#include <stdlib.h>
#include <string.h>

#include "pure/grammar/gbnf.h"
#include "pure/grammar/grammar_compile.h"
#include "pure/grammar/grammar_tokens.h"
#include "pure/grammar/schema.h"
#include "sys/whole_file.h"

static int compile_grammar(kin_constrained *c, const char *path, const kin_vocab *vocab, kin_err *err) {
    uint8_t *text;
    size_t len;
    if (kin_whole_input_read(path, KIN_GBNF_MAX_BYTES, &text, &len, err) != 0) return KIN_FAIL;
    int rc = kin_grammar_tokens_check((kin_str){(const char *)text, len}, vocab, err);
    if (rc == 0) rc = kin_grammar_compile(&c->grammar, (const char *)text, len, err);
    free(text);
    return rc == 0 ? 0 : kin_err_prefix(err, "%s", path);
}

static int compile_schema(kin_constrained *c, const char *schema, kin_err *err) {
    bool is_text = schema[strspn(schema, " \t\r\n")] == '{';
    kin_str json = {schema, strlen(schema)};
    uint8_t *read = NULL;
    if (!is_text) {
        if (kin_whole_input_read(schema, KIN_GBNF_MAX_BYTES, &read, &json.len, err) != 0) return KIN_FAIL;
        json.at = (const char *)read;
    }
    int rc = kin_schema_compile(&c->grammar, json, NULL, NULL, err);
    free(read);
    return rc == 0 ? 0 : kin_err_prefix(err, "%s", is_text ? "--json-schema" : schema);
}

int kin_constrained_open(kin_constrained *c, const char *grammar, const char *schema, const kin_vocab *vocab, kin_err *err) {
    if (!grammar && !schema) return 0;
    if (grammar ? compile_grammar(c, grammar, vocab, err) : compile_schema(c, schema, err)) return KIN_FAIL;
    if (kin_token_trie_new(&c->trie, vocab, err) != 0) return KIN_FAIL;
    if (kin_matcher_new(&c->matcher, c->grammar, c->trie, err) != 0) return KIN_FAIL;
    return kin_constraint_new(&c->constraint, c->matcher, (kin_str){NULL, 0}, err);
}

void kin_constrained_close(kin_constrained *c) {
    kin_constraint_free(c->constraint);
    kin_matcher_free(c->matcher);
    kin_token_trie_free(c->trie);
    kin_grammar_free(c->grammar);
    *c = (kin_constrained){0};
}
