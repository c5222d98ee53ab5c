// Deterministic automata by subset construction; a call of a machine is a letter like a byte. Subsets contain only states that
// read, call or end, so equal positions in a loop give equal subsets.
#include "pure/grammar/grammar_dfa.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "pure/text/grow.h"
#include "pure/text/utf8_ranges.h"

typedef struct subset {
    uint32_t begin, n; // members in the arena, ascending
    uint64_t hash;
} subset;

typedef struct letter { // a byte class or machine that a member of a subset reads, and the state after it
    uint32_t key, out;
} letter;

typedef struct dfa {
    kin_grammar_build *b;
    uint32_t machine;
    uint32_t first; // the machine's first state; state i is subset i - first
    subset *subsets;
    uint32_t n_subsets, cap_subsets;
    uint32_t *members;
    uint32_t n_members, cap_members;
    uint32_t *slots; // [n_slots] number of a subset + 1
    uint32_t n_slots;

    uint32_t *seen; // [n_nfa] the last closure that visited the state
    uint32_t n_closures;
    uint32_t *stack; // [n_nfa]
    letter *letters;
    uint32_t n_letters, cap_letters;
} dfa;

static const char *rule_name(const kin_grammar_build *b, uint32_t machine, int *len) {
    uint32_t rule = b->grammar->machines[machine].rule;
    *len = (int)kin_string_table_len(&b->gbnf->names, rule);
    return kin_string_table_at(&b->gbnf->names, rule);
}

static int too_complex(const dfa *d) {
    int len;
    const char *name = rule_name(d->b, d->machine, &len);
    return kin_err_set(d->b->err, "grammar: the rule '%.*s' is too complex: its automaton is too large", len, name);
}

// ---- subsets

static int by_number(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

// Appends the states that are reachable from `from` without a byte to the arena.
static int add_closure(dfa *d, uint32_t from) {
    const kin_nfa_state *nfa = d->b->nfa;
    uint32_t n_stack = 0;
    if (d->seen[from] == d->n_closures) return 0;
    d->seen[from] = d->n_closures;
    d->stack[n_stack++] = from;
    while (n_stack > 0) {
        uint32_t at = d->stack[--n_stack];
        if (kin_build_work(d->b, 1) != 0) return KIN_FAIL;
        if (nfa[at].kind == KIN_NFA_SPLIT) {
            const uint32_t outs[] = {nfa[at].out, nfa[at].other};
            for (int i = 0; i < 2; i++) {
                if (d->seen[outs[i]] == d->n_closures) continue;
                d->seen[outs[i]] = d->n_closures;
                d->stack[n_stack++] = outs[i];
            }
        } else if (nfa[at].kind != KIN_NFA_FAIL) {
            if (kin_grow((void **)&d->members, &d->cap_members, (uint64_t)d->n_members + 1, KIN_BUILD_MAX_SUBSETS,
                         sizeof *d->members) != 0)
                return too_complex(d);
            d->members[d->n_members++] = at;
        }
    }
    return 0;
}

static int grow_slots(dfa *d) {
    if (d->n_subsets * 2 < d->n_slots) return 0;
    uint32_t n_slots = d->n_slots ? 2 * d->n_slots : 256;
    uint32_t *slots = calloc(n_slots, sizeof *slots);
    if (!slots) return kin_build_out_of_memory(d->b);
    for (uint32_t i = 0; i < d->n_subsets; i++) {
        uint32_t at = (uint32_t)d->subsets[i].hash & (n_slots - 1);
        while (slots[at]) at = (at + 1) & (n_slots - 1);
        slots[at] = i + 1;
    }
    free(d->slots);
    d->slots = slots;
    d->n_slots = n_slots;
    return 0;
}

static int add_state(dfa *d) {
    kin_grammar *g = d->b->grammar;
    if (kin_grow((void **)&g->states, &g->cap_states, (uint64_t)g->n_states + 1, KIN_GRAMMAR_MAX_STATES, sizeof *g->states) != 0)
        return too_complex(d);
    uint64_t n_cells = ((uint64_t)g->n_states + 1) * g->n_classes;
    if (kin_grow((void **)&g->next, &g->cap_next, n_cells, KIN_GRAMMAR_MAX_CELLS, sizeof *g->next) != 0) return too_complex(d);
    memset(g->next + n_cells - g->n_classes, 0, g->n_classes * sizeof *g->next);
    g->states[g->n_states++] = (kin_grammar_state_row){.machine = (uint16_t)d->machine};
    return 0;
}

// Finds or adds the state of the subset at the end of the arena, from `begin` on; a known subset is removed from the arena. 0:
// the subset is empty.
static int find_state(dfa *d, uint32_t begin, uint16_t *state) {
    uint32_t n = d->n_members - begin;
    *state = 0;
    if (n == 0) return 0;
    if (kin_build_work(d->b, n) != 0 || grow_slots(d) != 0) return KIN_FAIL;
    qsort(d->members + begin, n, sizeof *d->members, by_number);
    uint64_t hash = kin_hash64(d->members + begin, n * sizeof *d->members, 0);
    uint32_t at = (uint32_t)hash & (d->n_slots - 1);
    for (; d->slots[at]; at = (at + 1) & (d->n_slots - 1)) {
        const subset *s = &d->subsets[d->slots[at] - 1];
        if (s->hash != hash || s->n != n || memcmp(d->members + s->begin, d->members + begin, n * sizeof *d->members) != 0)
            continue;
        d->n_members = begin;
        *state = (uint16_t)(d->first + d->slots[at] - 1);
        return 0;
    }
    if (add_state(d) != 0) return KIN_FAIL;
    if (kin_grow((void **)&d->subsets, &d->cap_subsets, (uint64_t)d->n_subsets + 1, KIN_GRAMMAR_MAX_STATES, sizeof *d->subsets) !=
        0)
        return too_complex(d);
    d->subsets[d->n_subsets] = (subset){.begin = begin, .n = n, .hash = hash};
    d->slots[at] = ++d->n_subsets;
    *state = (uint16_t)(d->first + d->n_subsets - 1);
    return 0;
}

// Finds the state for the union of these outs.
static int state_of_outs(dfa *d, const letter *letters, uint32_t n, uint16_t *state) {
    uint32_t begin = d->n_members;
    d->n_closures++;
    for (uint32_t i = 0; i < n; i++) {
        if (add_closure(d, letters[i].out) != 0) return KIN_FAIL;
    }
    return find_state(d, begin, state);
}

// ---- transitions

static int add_letter(dfa *d, uint32_t key, uint32_t out) {
    if (kin_grow((void **)&d->letters, &d->cap_letters, (uint64_t)d->n_letters + 1, KIN_BUILD_MAX_SUBSETS, sizeof *d->letters) !=
        0)
        return too_complex(d);
    d->letters[d->n_letters++] = (letter){key, out};
    return kin_build_work(d->b, 1);
}

static int by_key(const void *a, const void *b) {
    const letter *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->out < y->out ? -1 : x->out > y->out;
}

// Reads all letters of one kind in subset i, sorted.
static int read_letters(dfa *d, uint32_t i, kin_nfa_kind kind) {
    const uint8_t *class_of = d->b->grammar->class_of;
    d->n_letters = 0;
    for (uint32_t k = 0; k < d->subsets[i].n; k++) {
        const kin_nfa_state *nfa = &d->b->nfa[d->members[d->subsets[i].begin + k]];
        if (nfa->kind != kind) continue;
        if (kind == KIN_NFA_CALL && add_letter(d, nfa->other, nfa->out) != 0) return KIN_FAIL;
        for (uint32_t c = class_of[nfa->lo]; kind == KIN_NFA_RANGE && c <= class_of[nfa->hi]; c++) {
            if (add_letter(d, c, nfa->out) != 0) return KIN_FAIL;
        }
    }
    if (d->n_letters > 0) qsort(d->letters, d->n_letters, sizeof *d->letters, by_key);
    return 0;
}

static int add_call(dfa *d, uint32_t state, uint32_t machine, uint16_t next) {
    kin_grammar *g = d->b->grammar;
    if (kin_grow((void **)&g->calls, &g->cap_calls, (uint64_t)g->n_calls + 1, KIN_GRAMMAR_MAX_CELLS, sizeof *g->calls) != 0)
        return too_complex(d);
    if (g->states[state].n_calls == UINT16_MAX) return too_complex(d);
    if (g->states[state].n_calls++ == 0) g->states[state].calls = g->n_calls;
    g->calls[g->n_calls++] = (kin_grammar_call){.machine = (uint16_t)machine, .next = next};
    return 0;
}

static bool same_outs(const letter *a, const letter *b, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (a[i].out != b[i].out) return false;
    }
    return true;
}

// Adds the transitions of subset i for one kind of letter. Adjacent classes mostly lead to the same state, which is reused.
static int connect(dfa *d, uint32_t i, kin_nfa_kind kind) {
    kin_grammar *g = d->b->grammar;
    uint32_t state = d->first + i, last = 0, n_last = 0;
    uint16_t next = 0;
    if (read_letters(d, i, kind) != 0) return KIN_FAIL;
    for (uint32_t at = 0, n; at < d->n_letters; at += n) {
        for (n = 1; at + n < d->n_letters && d->letters[at + n].key == d->letters[at].key;) n++;
        if (n != n_last || !same_outs(d->letters + last, d->letters + at, n)) {
            if (state_of_outs(d, d->letters + at, n, &next) != 0) return KIN_FAIL;
        }
        last = at;
        n_last = n;
        if (next == 0) continue;
        if (kind == KIN_NFA_RANGE)
            g->next[(size_t)state * g->n_classes + d->letters[at].key] = next;
        else if (add_call(d, state, d->letters[at].key, next) != 0)
            return KIN_FAIL;
    }
    return 0;
}

static bool has_end(const dfa *d, uint32_t i) {
    for (uint32_t k = 0; k < d->subsets[i].n; k++) {
        if (d->b->nfa[d->members[d->subsets[i].begin + k]].kind == KIN_NFA_END) return true;
    }
    return false;
}

// ---- removal of states that cannot reach an end

// live: of the machine's states, indexed from `first` on.
static bool is_live(const bool *live, uint32_t first, uint16_t state) {
    return state && live[state - first];
}

static bool leads_to_end(const kin_grammar *g, uint32_t state, uint32_t first, const bool *live) {
    const kin_grammar_state_row *row = &g->states[state];
    if (row->flags & KIN_STATE_ENDS) return true;
    for (uint32_t c = 0; c < g->n_classes; c++) {
        if (is_live(live, first, kin_grammar_next(g, state, c))) return true;
    }
    for (uint32_t k = 0; k < row->n_calls; k++) {
        if (is_live(live, first, g->calls[row->calls + k].next)) return true;
    }
    return false;
}

static void cut_dead_edges(kin_grammar *g, uint32_t state, uint32_t first, const bool *live) {
    kin_grammar_state_row *row = &g->states[state];
    uint16_t n_calls = 0, *next = g->next + (size_t)state * g->n_classes;
    for (uint32_t c = 0; c < g->n_classes; c++) {
        if (!is_live(live, first, next[c])) next[c] = 0;
        if (next[c]) row->flags |= KIN_STATE_READS;
    }
    for (uint32_t k = 0; k < row->n_calls; k++) {
        kin_grammar_call call = g->calls[row->calls + k];
        if (is_live(live, first, call.next)) g->calls[row->calls + n_calls++] = call;
    }
    row->n_calls = n_calls;
}

static int cut_dead(dfa *d) {
    kin_grammar *g = d->b->grammar;
    bool *live = calloc(d->n_subsets + 1, sizeof *live), changed = true;
    if (!live) return kin_build_out_of_memory(d->b);
    int rc = 0;
    while (changed && rc == 0) {
        changed = false;
        rc = kin_build_work(d->b, (uint64_t)d->n_subsets * 8);
        for (uint32_t i = d->n_subsets; i-- > 0;) { // backwards, because later states are further from the start
            if (live[i] || !leads_to_end(g, d->first + i, d->first, live)) continue;
            live[i] = changed = true;
        }
    }
    for (uint32_t i = 0; i < d->n_subsets; i++) cut_dead_edges(g, d->first + i, d->first, live);
    free(live);
    return rc;
}

// ---- the whole machine

static int construct(dfa *d, uint32_t entry) {
    kin_grammar *g = d->b->grammar;
    const letter start = {0, entry};
    uint16_t state;
    if (state_of_outs(d, &start, 1, &state) != 0) return KIN_FAIL;
    g->machines[d->machine].start = state;
    for (uint32_t i = 0; i < d->n_subsets; i++) {
        if (connect(d, i, KIN_NFA_RANGE) != 0 || connect(d, i, KIN_NFA_CALL) != 0) return KIN_FAIL;
        if (has_end(d, i)) g->states[d->first + i].flags |= KIN_STATE_ENDS;
    }
    return cut_dead(d);
}

int kin_build_dfa(kin_grammar_build *b, uint32_t machine, uint32_t entry) {
    dfa d = {.b = b, .machine = machine, .first = b->grammar->n_states};
    d.seen = calloc(b->n_nfa, sizeof *d.seen);
    d.stack = malloc(b->n_nfa * sizeof *d.stack);
    int rc = d.seen && d.stack ? construct(&d, entry) : kin_build_out_of_memory(b);
    free(d.letters);
    free(d.stack);
    free(d.seen);
    free(d.slots);
    free(d.members);
    free(d.subsets);
    return rc;
}

// ---- byte classes

static void mark_class_bounds(const kin_gbnf_range *range, bool *begins) {
    uint32_t lo = range->lo;
    kin_utf8_piece piece;
    while (kin_utf8_ranges_next(&lo, range->hi, &piece)) {
        for (int i = 0; i < piece.n; i++) {
            begins[piece.lo[i]] = true;
            begins[piece.hi[i] + 1] = true;
        }
    }
}

static void mark_number_bounds(bool *begins) {
    for (int c = '0'; c <= '9' + 1; c++) begins[c] = true;
    begins['.'] = begins['.' + 1] = true;
}

void kin_build_classes(kin_grammar_build *b) {
    const kin_gbnf *gbnf = b->gbnf;
    bool begins[257] = {false};
    for (uint32_t i = 0; i < gbnf->n_ranges; i++) mark_class_bounds(&gbnf->ranges[i], begins);
    for (uint32_t i = 1; i < gbnf->n_nodes; i++) {
        if (gbnf->nodes[i].kind == KIN_GBNF_MULTIPLE) mark_number_bounds(begins);
    }
    for (uint32_t i = 0; i < gbnf->n_bytes; i++) begins[gbnf->bytes[i]] = begins[gbnf->bytes[i] + 1] = true;
    uint32_t n = 0;
    for (uint32_t byte = 0; byte < 256; byte++) {
        if (byte > 0 && begins[byte]) n++;
        b->grammar->class_of[byte] = (uint8_t)n;
    }
    b->grammar->n_classes = n + 1;
}
