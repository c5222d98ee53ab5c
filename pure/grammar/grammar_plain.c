// Finds the states that every plain character (token_trie.h) leads back to: a walk through the automaton in step with UTF-8.
#include "pure/grammar/grammar_plain.h"

#include <stdlib.h>

typedef enum expected { // the bytes that UTF-8 requires next (Unicode, table 3-7)
    A_CHAR,
    ONE, // more byte
    TWO,
    THREE,
    AFTER_E0,
    AFTER_ED,
    AFTER_F0,
    AFTER_F4,
    N_EXPECTED,
} expected;

static const struct bytes {
    expected before;
    uint8_t lo, hi;
    expected after; // A_CHAR: the character is complete
} plain_utf8[] = {
    {A_CHAR, 0x20, 0x21, A_CHAR},   {A_CHAR, 0x23, 0x5b, A_CHAR}, {A_CHAR, 0x5d, 0x7e, A_CHAR},   {A_CHAR, 0xc2, 0xdf, ONE},
    {A_CHAR, 0xe0, 0xe0, AFTER_E0}, {A_CHAR, 0xe1, 0xec, TWO},    {A_CHAR, 0xed, 0xed, AFTER_ED}, {A_CHAR, 0xee, 0xef, TWO},
    {A_CHAR, 0xf0, 0xf0, AFTER_F0}, {A_CHAR, 0xf1, 0xf3, THREE},  {A_CHAR, 0xf4, 0xf4, AFTER_F4}, {ONE, 0x80, 0xbf, A_CHAR},
    {TWO, 0x80, 0xbf, ONE},         {THREE, 0x80, 0xbf, TWO},     {AFTER_E0, 0xa0, 0xbf, ONE},    {AFTER_ED, 0x80, 0x9f, ONE},
    {AFTER_F0, 0x90, 0xbf, TWO},    {AFTER_F4, 0x80, 0x8f, TWO},
};
enum { N_PLAIN = sizeof plain_utf8 / sizeof *plain_utf8 };

typedef struct walk {
    kin_grammar_build *b;
    uint32_t home;  // the state that is examined
    uint32_t *seen; // [n_states * N_EXPECTED] the last home for which it was visited
    uint32_t *stack;
    uint32_t n_stack;
} walk;

static bool is_home(const walk *w, uint16_t state) {
    const kin_grammar *g = w->b->grammar;
    if (!g->machines[g->states[w->home].machine].counted) return state == w->home;
    return g->states[state].flags == KIN_STATE_ENDS && g->states[state].n_calls == 0; // the next repetition begins
}

// Returns false if a plain character does not lead home; places that are not examined yet are pushed on the stack.
static bool follow(walk *w, uint32_t state, const struct bytes *bytes) {
    const kin_grammar *g = w->b->grammar;
    int last_class = -1;
    for (uint32_t byte = bytes->lo; byte <= bytes->hi; byte++) {
        if (g->class_of[byte] == last_class) continue;
        last_class = g->class_of[byte];
        uint16_t next = kin_grammar_next(g, state, g->class_of[byte]);
        if (next == 0) return false;
        if (bytes->after == A_CHAR) {
            if (!is_home(w, next)) return false;
            continue;
        }
        uint32_t place = (uint32_t)next * N_EXPECTED + bytes->after;
        if (w->seen[place] == w->home) continue;
        w->seen[place] = w->home;
        w->stack[w->n_stack++] = place;
    }
    return true;
}

static bool reads_plain(const kin_grammar *g, uint32_t state) {
    for (int i = 0; i < N_PLAIN; i++) {
        for (uint32_t byte = plain_utf8[i].lo; byte <= plain_utf8[i].hi && plain_utf8[i].before == A_CHAR; byte++) {
            if (kin_grammar_next(g, state, g->class_of[byte])) return true;
        }
    }
    return false;
}

static int check(walk *w, uint32_t home, bool *is_plain) {
    w->home = home;
    w->n_stack = 0;
    w->stack[w->n_stack++] = home * N_EXPECTED + A_CHAR;
    *is_plain = true;
    while (w->n_stack > 0 && *is_plain) {
        uint32_t place = w->stack[--w->n_stack];
        if (kin_build_work(w->b, 64) != 0) return KIN_FAIL;
        for (int i = 0; i < N_PLAIN && *is_plain; i++) {
            if (plain_utf8[i].before == place % N_EXPECTED) *is_plain = follow(w, place / N_EXPECTED, &plain_utf8[i]);
        }
    }
    return 0;
}

int kin_build_mark_plain(kin_grammar_build *b) {
    kin_grammar *g = b->grammar;
    size_t n_places = (size_t)g->n_states * N_EXPECTED;
    walk w = {.b = b, .seen = calloc(n_places, sizeof *w.seen), .stack = malloc((n_places + 1) * sizeof *w.stack)};
    int rc = w.seen && w.stack ? 0 : kin_build_out_of_memory(b);
    for (uint32_t state = 1; state < g->n_states && rc == 0; state++) {
        const kin_grammar_machine *machine = &g->machines[g->states[state].machine];
        bool is_plain;
        if (!reads_plain(g, state)) continue;
        g->states[state].flags |= KIN_STATE_READS_PLAIN;
        if (machine->counted && state != machine->start) continue;
        rc = check(&w, state, &is_plain);
        if (rc == 0 && is_plain) g->states[state].flags |= KIN_STATE_PLAIN;
    }
    free(w.stack);
    free(w.seen);
    return rc;
}
