#include "pure/grammar/grammar_tokens.h"

#include "pure/grammar/gbnf.h"
#include "pure/tokenizer/token_reference.h"

static int check_id(uint32_t id, const kin_vocab *vocab, kin_err *err) {
    if (id >= (uint32_t)kin_vocab_n_tokens(vocab))
        return kin_err_set(err, "grammar: <[%u]>: the model has %d tokens", id, (int)kin_vocab_n_tokens(vocab));
    kin_str text = kin_vocab_text(vocab, (int32_t)id);
    int len = text.len < 100 ? (int)text.len : 100;
    if (kin_vocab_is_eog(vocab, (int32_t)id))
        return kin_err_set(err,
                           "grammar: <[%u]> is %.*s, which ends the output; omit it, because the output ends where 'root' does",
                           id, len, text.at);
    if (kin_vocab_type(vocab, (int32_t)id) != KIN_TOKEN_CONTROL)
        return kin_err_set(err, "grammar: <[%u]> is '%.*s', which is not a control token; write its text as a literal", id, len,
                           text.at);
    return 0;
}

int kin_grammar_tokens_check(kin_str grammar, const kin_vocab *vocab, kin_err *err) {
    kin_gbnf gbnf;
    int rc = kin_gbnf_parse(&gbnf, grammar.at, grammar.len, err);
    if (rc != 0) return KIN_FAIL;
    for (uint32_t i = 1; i < gbnf.n_nodes && rc == 0; i++) {
        const kin_gbnf_node *node = &gbnf.nodes[i];
        if (node->kind != KIN_GBNF_BYTES || node->end - node->begin != KIN_TOKEN_REFERENCE_BYTES) continue;
        const uint8_t *at = gbnf.bytes + node->begin;
        if (at[0] != KIN_TOKEN_REFERENCE_FIRST) continue; // a plain literal
        rc = check_id((uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3], vocab, err);
    }
    kin_gbnf_fini(&gbnf);
    return rc;
}
