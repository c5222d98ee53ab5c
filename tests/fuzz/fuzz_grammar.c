// Compiles any bytes as a GBNF grammar and matches any bytes against it: no crash, no unbounded growth, and the mask equals the
// result of testing each token.
//
// The input is the grammar, a NUL, and the bytes to match; matching stops at the first byte that the grammar does not allow.
#include <string.h>

#include "pure/grammar/grammar_compile.h"
#include "pure/grammar/matcher.h"
#include "testkit/small_vocab.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static const kin_token_trie *the_trie(void) {
    static kin_token_trie *trie; // kept until the end of the process
    if (!trie) kin_assert(kin_token_trie_new(&trie, small_vocab(small_spm_spec()), NULL) == 0);
    return trie;
}

static void check_mask(kin_matcher *m, const kin_place *place) {
    uint64_t set[8];
    kin_assert(the_trie()->n_words <= 8);
    kin_matcher_mask(m, place, set);
    for (int32_t id = 0; id < the_trie()->n_tokens; id++)
        kin_assert(kin_token_set_has(set, id) == kin_matcher_allows(m, place, id));
}

static void accept(const kin_grammar *grammar, const char *text, size_t len) {
    kin_matcher *m;
    kin_place place = {0}, before = {0};
    bool allowed = true;
    kin_assert(kin_matcher_new(&m, grammar, the_trie(), NULL) == 0 && kin_matcher_begin(m, &place) == 0);
    check_mask(m, &place);
    for (size_t i = 0; i < len && allowed; i++) {
        kin_assert(kin_place_copy(&before, &place) == 0);
        kin_assert(kin_matcher_accept_bytes(m, &place, text + i, 1, &allowed) == 0);
        kin_assert(allowed || (place.n_words == before.n_words && memcmp(place.words, before.words, 4 * place.n_words) == 0));
    }
    check_mask(m, &place);
    kin_place_fini(&before);
    kin_place_fini(&place);
    kin_matcher_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    const uint8_t *end = size > 0 ? memchr(bytes, 0, size) : NULL;
    size_t n_grammar = end ? (size_t)(end - bytes) : size;
    kin_grammar *grammar;
    kin_err err;
    if (size > 4096 || kin_grammar_compile(&grammar, (const char *)bytes, n_grammar, &err) != 0) return 0;
    kin_assert(kin_grammar_get_size(grammar).bytes < 64 << 20);
    accept(grammar, (const char *)bytes + n_grammar + (end != NULL), size - n_grammar - (end != NULL));
    kin_grammar_free(grammar);
    return 0;
}
