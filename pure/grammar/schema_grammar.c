#include "pure/grammar/schema_grammar.h"
#include "pure/grammar/grammar_compile.h"

#include <string.h>

void kin_schema_grammar_fini(kin_schema_grammar *g) {
    kin_text_fini(&g->gbnf);
    kin_text_fini(&g->places);
    kin_grammar_parts_fini(&g->parts);
}

// Returns the place of a rule; empty if it has none.
static kin_str find_place(const kin_schema_grammar *g, const char *rule, size_t n_name) {
    size_t n = g->places.len;
    for (size_t at = 0, end; at < n; at = end + 1) {
        const char *line = g->places.at + at;
        end = at + (size_t)((const char *)memchr(line, '\n', n - at) - line);
        if (end - at > n_name && memcmp(line, rule, n_name) == 0 && line[n_name] == ' ')
            return (kin_str){line + n_name + 1, end - at - n_name - 1};
    }
    return (kin_str){"", 0};
}

int kin_schema_grammar_compile(kin_schema_grammar *g, kin_grammar **out, kin_err *err) {
    const kin_grammar_options options = {.parts = &g->parts, .budget = g->budget};
    kin_grammar_never never;
    *out = NULL;
    if (g->gbnf.failed || g->places.failed) return kin_err_set(err, "the grammar is too large, or out of memory");
    if (kin_grammar_compile_with(out, g->gbnf.at, g->gbnf.len, &options, &never, err) == 0) return 0;
    kin_str place = find_place(g, never.rule, strlen(never.rule));
    if (place.len == 0) place = find_place(g, never.rule, strcspn(never.rule, "-")); // of s7-o and such: that of s7
    if (place.len == 0) return KIN_FAIL;
    return kin_err_set(err, "schema: %.*s: it matches no text: %s", (int)place.len, place.at,
                       never.goes_on ? "it recurs without end" : "its keywords contradict each other");
}
