// Builds rules with look-ahead as deterministic automata.
//
// A look-ahead is a separate automaton that reads the same bytes from its position on. A **thread** is a state of the rule's
// automaton together with the states of all look-aheads that are open on the way there; all of them must accept. A state of the
// result is a set of threads. Look-aheads are made deterministic first, nested ones before the outer ones, so that negating one
// only changes its accepting states.
#include "pure/grammar/grammar_ahead.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "pure/grammar/grammar_nfa.h"
#include "pure/grammar/grammar_parts.h"
#include "pure/text/grow.h"

enum {
    DEAD = 0, // in every automaton: nothing matches
    ALL = 1,  // in every automaton: anything matches
    FIRST = 2,
    NOT_KNOWN = UINT32_MAX,
    NO_OPEN = 0,          // number of the empty set of look-aheads
    MAX_OPEN = 32,        // open look-aheads in one thread
    WORDS_OF_A_STEP = 16, // words of memory that are read or written in a row in about the time of one step
    SMALL_TABLE = 1024,   // entries; clearing fewer takes less time than the work after it
};

typedef struct automaton {
    uint32_t n, start;
    uint32_t *next; // [n][n_classes]
    bool *ends;     // [n]
} automaton;

typedef struct list { // numbers sequences of items by content: sets of threads, sets of open look-aheads
    uint64_t *items;
    uint32_t n_items, cap_items;
    uint32_t *begin, cap_begin; // [n + 1]
    uint32_t n;
    uint32_t *slots, n_slots; // [n_slots] number + 1
} list;

typedef struct builder {
    kin_grammar_build *b;
    uint32_t n_classes;
    bool begins[257]; // [n_classes] the rule distinguishes this class from the one before it
    automaton aheads[KIN_BUILD_MAX_AHEADS];
    list open;       // sets of open look-aheads: automaton << 32 | state, sorted
    uint32_t *moves; // [open.n][n_classes] the set after a byte; or DEAD_SET, NOT_KNOWN
    uint32_t cap_moves;

    list subsets; // of threads: state << 32 | number of its open set, sorted
    uint64_t *threads, *stack, *seen;
    uint32_t n_threads, cap_threads, n_stack, cap_stack, n_seen;
    uint32_t cap_seen; // size of the hash table, a power of 2
    uint32_t cap_next, cap_ends;
} builder;

#define DEAD_SET (UINT32_MAX - 1)

static int too_complex(const builder *p) {
    return kin_err_set(p->b->err, "grammar: too many look-aheads overlap: the automaton is too large");
}

// ---- numbered lists

static void fini_list(list *l) {
    free(l->items);
    free(l->begin);
    free(l->slots);
    *l = (list){0};
}

static int grow_list_slots(list *l) {
    if (l->n * 2 < l->n_slots) return 0;
    uint32_t n_slots = l->n_slots ? 2 * l->n_slots : 64, *slots = calloc(n_slots, sizeof *slots);
    if (!slots) return KIN_FAIL;
    for (uint32_t i = 0; i < l->n; i++) {
        uint32_t n = l->begin[i + 1] - l->begin[i];
        uint32_t at = (uint32_t)kin_hash64(l->items + l->begin[i], n * sizeof *l->items, 0) & (n_slots - 1);
        while (slots[at]) at = (at + 1) & (n_slots - 1);
        slots[at] = i + 1;
    }
    free(l->slots);
    l->slots = slots;
    l->n_slots = n_slots;
    return 0;
}

// Finds or adds items [n]; *number: their number. KIN_FAIL beyond the limits or if memory runs out.
static int find_in_list(list *l, const uint64_t *items, uint32_t n, uint32_t *number) {
    if (grow_list_slots(l) != 0) return KIN_FAIL;
    uint32_t at = (uint32_t)kin_hash64(items, n * sizeof *items, 0) & (l->n_slots - 1);
    for (; l->slots[at]; at = (at + 1) & (l->n_slots - 1)) {
        *number = l->slots[at] - 1;
        uint32_t begin = l->begin[*number];
        if (l->begin[*number + 1] - begin == n && (n == 0 || memcmp(l->items + begin, items, n * sizeof *items) == 0)) return 0;
    }
    if (kin_grow((void **)&l->begin, &l->cap_begin, (uint64_t)l->n + 2, KIN_BUILD_MAX_SUBSETS, sizeof *l->begin) != 0 ||
        kin_grow((void **)&l->items, &l->cap_items, (uint64_t)l->n_items + n, KIN_BUILD_MAX_SUBSETS, sizeof *l->items) != 0)
        return KIN_FAIL;
    if (n > 0) memcpy(l->items + l->n_items, items, n * sizeof *items);
    l->begin[l->n] = l->n_items;
    l->n_items += n;
    l->begin[l->n + 1] = l->n_items;
    *number = l->n++;
    l->slots[at] = *number + 1;
    return 0;
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static uint32_t sort_and_unite(uint64_t *items, uint32_t n) {
    uint32_t n_kept = 0;
    if (n > 1) qsort(items, n, sizeof *items, by_value);
    for (uint32_t i = 0; i < n; i++) {
        if (n_kept == 0 || items[n_kept - 1] != items[i]) items[n_kept++] = items[i];
    }
    return n_kept;
}

// ---- sets of open look-aheads

// Finds or adds the set of items [n], which are modified; *set is DEAD_SET if one of them is dead.
static int number_of_open(builder *p, uint64_t *items, uint32_t n, uint32_t *set) {
    uint32_t n_kept = 0, n_before = p->open.n;
    for (uint32_t i = 0; i < n; i++) {
        if ((uint32_t)items[i] == DEAD) return *set = DEAD_SET, 0;
        if ((uint32_t)items[i] != ALL) items[n_kept++] = items[i];
    }
    n_kept = sort_and_unite(items, n_kept);
    if (n_kept > MAX_OPEN || find_in_list(&p->open, items, n_kept, set) != 0) return too_complex(p);
    if (p->open.n == n_before) return 0;
    if (kin_grow((void **)&p->moves, &p->cap_moves, (uint64_t)p->open.n * p->n_classes, KIN_BUILD_MAX_SUBSETS,
                 sizeof *p->moves) != 0)
        return too_complex(p);
    for (uint32_t c = 0; c < p->n_classes; c++) p->moves[(size_t)*set * p->n_classes + c] = NOT_KNOWN;
    return kin_build_work(p->b, p->n_classes);
}

static int open_one(builder *p, uint32_t set, uint32_t ahead, uint32_t *out) {
    uint64_t items[MAX_OPEN + 1];
    uint32_t n = p->open.begin[set + 1] - p->open.begin[set];
    if (n > 0) memcpy(items, p->open.items + p->open.begin[set], n * sizeof *items);
    items[n] = (uint64_t)ahead << 32 | p->aheads[ahead].start;
    return number_of_open(p, items, n + 1, out);
}

static int move_open(builder *p, uint32_t set, uint32_t byte_class, uint32_t *out) {
    uint64_t items[MAX_OPEN];
    uint32_t n = p->open.begin[set + 1] - p->open.begin[set];
    *out = p->moves[(size_t)set * p->n_classes + byte_class];
    if (*out != NOT_KNOWN) return 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t item = p->open.items[p->open.begin[set] + i];
        const automaton *a = &p->aheads[item >> 32];
        items[i] = item >> 32 << 32 | a->next[(size_t)(uint32_t)item * p->n_classes + byte_class];
    }
    if (number_of_open(p, items, n, out) != 0) return KIN_FAIL;
    p->moves[(size_t)set * p->n_classes + byte_class] = *out;
    return 0;
}

static bool open_may_end(const builder *p, uint32_t set) {
    for (uint32_t i = p->open.begin[set]; i < p->open.begin[set + 1]; i++) {
        uint64_t item = p->open.items[i];
        if (!p->aheads[item >> 32].ends[(uint32_t)item]) return false;
    }
    return true;
}

// ---- sets of threads

static int push_thread(builder *p, uint32_t state, uint32_t set) {
    uint64_t thread = (uint64_t)state << 32 | set;
    if (set == DEAD_SET) return 0;
    if (kin_grow((void **)&p->stack, &p->cap_stack, (uint64_t)p->n_stack + 1, KIN_BUILD_MAX_SUBSETS, sizeof *p->stack) != 0)
        return too_complex(p);
    p->stack[p->n_stack++] = thread;
    return kin_build_work(p->b, 1);
}

// Marks the thread as seen in this closure; *met: it already was.
static int mark_seen(builder *p, uint64_t thread, bool *met) {
    if (2 * p->n_seen >= p->cap_seen) {
        uint32_t cap = p->cap_seen ? 2 * p->cap_seen : 64;
        uint64_t *before = p->seen;
        if (cap > KIN_BUILD_MAX_SUBSETS || !(p->seen = calloc(cap, sizeof *p->seen))) return p->seen = before, too_complex(p);
        uint32_t n_before = p->cap_seen;
        p->cap_seen = cap;
        p->n_seen = 0;
        for (uint32_t i = 0; i < n_before; i++) {
            if (before[i] && mark_seen(p, before[i] - 1, met) != 0) return free(before), KIN_FAIL;
        }
        free(before);
    }
    uint32_t at = (uint32_t)(thread * 0x9e3779b97f4a7c15u >> 32) & (p->cap_seen - 1); // cheap, for many short-lived sets
    for (; p->seen[at]; at = (at + 1) & (p->cap_seen - 1)) {
        if (p->seen[at] == thread + 1) return *met = true, 0;
    }
    p->seen[at] = thread + 1;
    p->n_seen++;
    *met = false;
    return 0;
}

static int follow_thread(builder *p, uint64_t thread) {
    const kin_nfa_state *state = &p->b->nfa[thread >> 32];
    uint32_t set = (uint32_t)thread, opened;
    switch ((kin_nfa_kind)state->kind) {
    case KIN_NFA_FAIL: return 0;
    case KIN_NFA_SPLIT: return push_thread(p, state->out, set) == 0 ? push_thread(p, state->other, set) : KIN_FAIL;
    case KIN_NFA_AHEAD: return open_one(p, set, state->other, &opened) == 0 ? push_thread(p, state->out, opened) : KIN_FAIL;
    default: break;
    }
    if (kin_grow((void **)&p->threads, &p->cap_threads, (uint64_t)p->n_threads + 1, KIN_BUILD_MAX_SUBSETS, sizeof *p->threads) !=
        0)
        return too_complex(p);
    p->threads[p->n_threads++] = thread;
    return 0;
}

// Computes the state of all threads that are reachable from the stack without a byte.
static int close_threads(builder *p, uint32_t *state) {
    uint32_t n_kept = 0;
    p->n_threads = p->n_seen = 0;
    if (p->seen) memset(p->seen, 0, p->cap_seen * sizeof *p->seen);
    if (p->cap_seen > SMALL_TABLE && kin_build_work(p->b, p->cap_seen / WORDS_OF_A_STEP) != 0) return KIN_FAIL;
    while (p->n_stack > 0) {
        uint64_t thread = p->stack[--p->n_stack];
        bool met;
        if (mark_seen(p, thread, &met) != 0 || (!met && follow_thread(p, thread) != 0)) return KIN_FAIL;
    }
    p->n_threads = sort_and_unite(p->threads, p->n_threads);
    for (uint32_t i = 0; i < p->n_threads; i++) {
        uint64_t thread = p->threads[i];
        if (p->b->nfa[thread >> 32].kind == KIN_NFA_ANY && (uint32_t)thread == NO_OPEN) return *state = ALL, 0;
        bool is_weaker = n_kept > 0 && p->threads[n_kept - 1] == (thread >> 32 << 32 | NO_OPEN);
        if (!is_weaker) p->threads[n_kept++] = thread;
    }
    if (n_kept == 0) return *state = DEAD, 0;
    if (find_in_list(&p->subsets, p->threads, n_kept, state) != 0 || p->subsets.n > KIN_GRAMMAR_MAX_STATES) return too_complex(p);
    *state += FIRST;
    return 0;
}

// ---- one automaton

// Pushes the threads that a subset reaches by one byte class, sorted.
static int step_threads(builder *p, uint32_t subset, uint32_t byte_class) {
    const uint8_t *class_of = p->b->grammar->class_of;
    for (uint32_t i = p->subsets.begin[subset]; i < p->subsets.begin[subset + 1]; i++) {
        uint64_t thread = p->subsets.items[i];
        const kin_nfa_state *state = &p->b->nfa[thread >> 32];
        uint32_t set, to = state->kind == KIN_NFA_ANY ? (uint32_t)(thread >> 32) : state->out;
        bool reads = state->kind == KIN_NFA_ANY ||
                     (state->kind == KIN_NFA_RANGE && byte_class >= class_of[state->lo] && byte_class <= class_of[state->hi]);
        if (kin_build_work(p->b, 1) != 0) return KIN_FAIL;
        if (!reads) continue;
        if (move_open(p, (uint32_t)thread, byte_class, &set) != 0 || push_thread(p, to, set) != 0) return KIN_FAIL;
    }
    p->n_stack = sort_and_unite(p->stack, p->n_stack);
    return 0;
}

static bool subset_may_end(const builder *p, uint32_t subset) {
    for (uint32_t i = p->subsets.begin[subset]; i < p->subsets.begin[subset + 1]; i++) {
        uint64_t thread = p->subsets.items[i];
        uint8_t kind = p->b->nfa[thread >> 32].kind;
        if ((kind == KIN_NFA_END || kind == KIN_NFA_ANY) && open_may_end(p, (uint32_t)thread)) return true;
    }
    return false;
}

static int add_row(builder *p, automaton *a) {
    if (kin_grow((void **)&a->next, &p->cap_next, ((uint64_t)a->n + 1) * p->n_classes, KIN_GRAMMAR_MAX_CELLS, sizeof *a->next) !=
            0 ||
        kin_grow((void **)&a->ends, &p->cap_ends, (uint64_t)a->n + 1, KIN_GRAMMAR_MAX_CELLS, sizeof *a->ends) != 0)
        return too_complex(p);
    for (uint32_t c = 0; c < p->n_classes; c++) a->next[(size_t)a->n * p->n_classes + c] = a->n == ALL ? ALL : DEAD;
    a->ends[a->n] = a->n == ALL;
    a->n++;
    return 0;
}

// Adjacent classes mostly lead to the same threads, so their result is reused.
static int fill_row(builder *p, automaton *a, uint32_t subset) {
    uint64_t *last = NULL;
    uint32_t n_last = 0, cap_last = 0, state = DEAD;
    int rc = add_row(p, a);
    for (uint32_t c = 0; c < p->n_classes && rc == 0; c++) {
        if (c > 0 && !p->begins[c]) {
            a->next[(size_t)(a->n - 1) * p->n_classes + c] = state;
            continue;
        }
        if ((rc = step_threads(p, subset, c)) != 0) break;
        bool is_same = c > 0 && p->n_stack == n_last && (n_last == 0 || memcmp(last, p->stack, n_last * sizeof *last) == 0);
        n_last = p->n_stack;
        if (kin_grow((void **)&last, &cap_last, n_last, KIN_BUILD_MAX_SUBSETS, sizeof *last) != 0) rc = too_complex(p);
        if (rc == 0 && n_last > 0) memcpy(last, p->stack, n_last * sizeof *last);
        if (rc == 0 && is_same)
            p->n_stack = 0;
        else if (rc == 0)
            rc = close_threads(p, &state);
        if (rc == 0) a->next[(size_t)(a->n - 1) * p->n_classes + c] = state;
    }
    a->ends[a->n - 1] = rc == 0 && subset_may_end(p, subset);
    free(last);
    return rc;
}

static void negate(const builder *p, automaton *a) {
    static const uint32_t other[] = {[DEAD] = ALL, [ALL] = DEAD};
    for (uint32_t i = FIRST; i < a->n; i++) {
        uint32_t *row = a->next + (size_t)i * p->n_classes;
        a->ends[i] = !a->ends[i];
        for (uint32_t c = 0; c < p->n_classes; c++) row[c] = row[c] < FIRST ? other[row[c]] : row[c];
    }
    if (a->start < FIRST) a->start = other[a->start];
}

static int make_deterministic(builder *p, uint32_t entry, automaton *a) {
    fini_list(&p->subsets);
    p->n_stack = p->cap_next = p->cap_ends = 0;
    if (add_row(p, a) != 0 || add_row(p, a) != 0) return KIN_FAIL;
    if (push_thread(p, entry, NO_OPEN) != 0 || close_threads(p, &a->start) != 0) return KIN_FAIL;
    for (uint32_t i = 0; i < p->subsets.n; i++) {
        if (fill_row(p, a, i) != 0) return KIN_FAIL;
    }
    return 0;
}

// ---- conversion to a machine

// Numbers the states that can reach an accepting state from 1 on; 0: it cannot.
static int number_live(const builder *p, const automaton *a, uint32_t *number, uint32_t *n_live) {
    *n_live = 0;
    for (bool changed = true; changed;) {
        changed = false;
        if (kin_build_work(p->b, (uint64_t)a->n * p->n_classes / WORDS_OF_A_STEP) != 0) return KIN_FAIL;
        for (uint32_t i = a->n; i-- > FIRST;) { // backwards, because later states are further from the start
            bool lives = a->ends[i];
            for (uint32_t c = 0; c < p->n_classes && !lives; c++) lives = number[a->next[(size_t)i * p->n_classes + c]] > 0;
            if (!lives || number[i]) continue;
            number[i] = 1;
            changed = true;
        }
    }
    for (uint32_t i = FIRST; i < a->n; i++) {
        if (number[i]) number[i] = ++*n_live;
    }
    return 0;
}

static int add_machine_states(builder *p, const automaton *a, const uint32_t *number, uint32_t n_live, uint32_t machine) {
    kin_grammar *g = p->b->grammar;
    uint32_t first = g->n_states, n = p->n_classes;
    if (kin_grow((void **)&g->states, &g->cap_states, (uint64_t)first + n_live, KIN_GRAMMAR_MAX_STATES, sizeof *g->states) != 0 ||
        kin_grow((void **)&g->next, &g->cap_next, ((uint64_t)first + n_live) * n, KIN_GRAMMAR_MAX_CELLS, sizeof *g->next) != 0)
        return too_complex(p);
    for (uint32_t i = FIRST; i < a->n; i++) {
        if (!number[i]) continue;
        uint32_t at = first + number[i] - 1;
        g->states[at] = (kin_grammar_state_row){.machine = (uint16_t)machine, .flags = a->ends[i] ? KIN_STATE_ENDS : 0};
        for (uint32_t c = 0; c < n; c++) {
            uint32_t next = number[a->next[(size_t)i * n + c]];
            g->next[(size_t)at * n + c] = next ? (uint16_t)(first + next - 1) : 0;
            if (next) g->states[at].flags |= KIN_STATE_READS;
        }
    }
    g->n_states = first + n_live;
    g->machines[machine].start = (uint16_t)(first + number[a->start] - 1);
    return 0;
}

static int make_machine(builder *p, const automaton *a, uint32_t rule) {
    kin_rule_facts *facts = &p->b->rules[rule];
    uint32_t *number = calloc(a->n, sizeof *number), n_live = 0, machine;
    int rc = number ? number_live(p, a, number, &n_live) : kin_build_out_of_memory(p->b);
    facts->productive = rc == 0 && number[a->start] > 0;
    facts->nullable = facts->productive && a->ends[a->start];
    if (facts->productive) rc = kin_build_machine_of_rule(p->b, rule, &machine);
    if (facts->productive && rc == 0) rc = add_machine_states(p, a, number, n_live, machine);
    free(number);
    return rc;
}

static void mark_begins(builder *p) {
    const uint8_t *class_of = p->b->grammar->class_of;
    for (uint32_t i = 0; i < p->b->n_nfa; i++) {
        const kin_nfa_state *state = &p->b->nfa[i];
        if (state->kind == KIN_NFA_RANGE) p->begins[class_of[state->lo]] = p->begins[class_of[state->hi] + 1] = true;
    }
}

static int build_rule_with_ahead(kin_grammar_build *b, uint32_t rule) {
    builder p = {.b = b, .n_classes = b->grammar->n_classes};
    automaton whole = {0};
    uint32_t entry, none;
    int rc = kin_build_nfa_of_rule(b, rule, &entry);
    mark_begins(&p);
    if (rc == 0) rc = number_of_open(&p, NULL, 0, &none); // gets number NO_OPEN
    for (uint32_t i = 0; i < b->n_aheads && rc == 0; i++) {
        rc = make_deterministic(&p, b->aheads[i].entry, &p.aheads[i]);
        if (rc == 0 && b->aheads[i].negated) negate(&p, &p.aheads[i]);
    }
    if (rc == 0) rc = make_deterministic(&p, entry, &whole);
    if (rc == 0) rc = make_machine(&p, &whole, rule);
    for (uint32_t i = 0; i < b->n_aheads; i++) {
        free(p.aheads[i].next);
        free(p.aheads[i].ends);
    }
    free(whole.next);
    free(whole.ends);
    free(p.seen);
    free(p.stack);
    free(p.threads);
    free(p.moves);
    fini_list(&p.subsets);
    fini_list(&p.open);
    int len = (int)kin_string_table_len(&b->gbnf->names, rule);
    return rc == 0 ? 0 : kin_err_prefix(b->err, "the rule '%.*s'", len, kin_string_table_at(&b->gbnf->names, rule));
}

// ---- all rules with look-ahead

static bool has_lookahead(const kin_gbnf *gbnf, uint32_t at) {
    const kin_gbnf_node *node = &gbnf->nodes[at];
    if (node->kind == KIN_GBNF_AHEAD || node->kind == KIN_GBNF_END) return true;
    for (uint32_t child = node->child; child; child = gbnf->nodes[child].next) {
        if (has_lookahead(gbnf, child)) return true;
    }
    return false;
}

int kin_build_aheads(kin_grammar_build *b) {
    if (kin_build_work(b, b->gbnf->n_nodes) != 0) return KIN_FAIL;
    for (uint32_t i = 0; i < b->gbnf->n_rules; i++) b->rules[i].has_ahead = has_lookahead(b->gbnf, b->gbnf->rules[i]);
    for (uint32_t i = 0; i < b->gbnf->n_rules; i++) {
        const kin_grammar *part = kin_build_find_part(b, i);
        if (!b->rules[i].has_ahead) continue;
        if (part ? kin_build_copy_part(b, part, i) : build_rule_with_ahead(b, i)) return KIN_FAIL;
    }
    return 0;
}
