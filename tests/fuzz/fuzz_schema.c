// Translates any bytes as a JSON schema into a grammar; the result is an error sentence or GBNF. The GBNF compiles unless no text
// matches it or it is too large, and a random walk through the grammar writes JSON.
#include <string.h>

#include "base/rng.h"
#include "pure/grammar/matcher.h"
#include "pure/grammar/schema.h"
#include "pure/text/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

enum { MAX_BYTES = 400 };

// Appends random allowed bytes until the text ends or MAX_BYTES are written.
static void walk(const kin_grammar *grammar, uint64_t seed) {
    kin_matcher *m;
    kin_place place = {0};
    kin_rng rng;
    char text[MAX_BYTES];
    size_t n = 0;
    kin_json json;
    kin_err err;
    kin_rng_seed(&rng, seed);
    kin_assert(kin_matcher_new(&m, grammar, NULL, NULL) == 0 && kin_matcher_begin(m, &place) == 0);
    while (n < MAX_BYTES && kin_place_may_go_on(&place)) {
        bool allowed = false;
        uint8_t first = (uint8_t)kin_rng_u64(&rng);
        for (int i = 0; i < 256 && !allowed; i++) {
            text[n] = (char)(first + i);
            kin_assert(kin_matcher_accept_bytes(m, &place, text + n, 1, &allowed) == 0);
        }
        kin_assert(allowed || kin_place_may_end(&place)); // no dead end
        if (!allowed) break;
        n++;
        if (!kin_place_may_end(&place)) continue;
        int rc = kin_json_parse(&json, text, n, &err);
        kin_assert(rc == 0 || strstr(err.text, "appears twice"));
        if (rc == 0) kin_json_fini(&json);
    }
    kin_place_fini(&place);
    kin_matcher_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    kin_text_buffer gbnf = {0};
    kin_grammar *grammar;
    kin_err err = {""};
    if (size > 4096) return 0;
    const kin_str schema = {(const char *)bytes, size};
    if (kin_schema_compile(&grammar, schema, NULL, NULL, &err) == 0) {
        walk(grammar, size);
        kin_grammar_free(grammar);
    } else if (kin_schema_to_gbnf(schema, NULL, &gbnf, NULL) == 0) {
        kin_assert(strstr(err.text, "matches no text") || strstr(err.text, "too ") || strstr(err.text, "more "));
    }
    kin_text_fini(&gbnf);
    return 0;
}
