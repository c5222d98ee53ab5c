#include "pure/grammar/grammar_compile.h"

#include <stdio.h>
#include <stdlib.h>

#include "pure/grammar/grammar_ahead.h"
#include "pure/grammar/grammar_dfa.h"
#include "pure/grammar/grammar_nfa.h"
#include "pure/grammar/grammar_plain.h"

// ---- properties of rules

// Iterates to a fixed point.
static int find_nullable_and_productive(kin_grammar_build *b) {
    for (bool changed = true; changed;) {
        changed = false;
        if (kin_build_work(b, 2 * (uint64_t)b->gbnf->n_nodes) != 0) return KIN_FAIL;
        for (uint32_t i = b->gbnf->n_rules; i-- > 0;) {
            kin_rule_facts *facts = &b->rules[i];
            uint32_t node = b->gbnf->rules[i];
            if (facts->has_ahead) continue;
            if (!facts->nullable && kin_build_is_nullable(b, node)) facts->nullable = changed = true;
            if (!facts->productive && kin_build_is_productive(b, node)) facts->productive = changed = true;
        }
    }
    return 0;
}

// Returns the first rule in the node that keeps it from matching anything, or -1 if the node itself does.
static int64_t find_unproductive_rule(const kin_grammar_build *b, uint32_t at) {
    const kin_gbnf_node *nodes = b->gbnf->nodes;
    int64_t found = -1;
    if (nodes[at].kind == KIN_GBNF_RULE) return nodes[at].rule;
    for (uint32_t child = nodes[at].child; child && found < 0; child = nodes[child].next) {
        if (!kin_build_is_productive(b, child)) found = find_unproductive_rule(b, child);
    }
    return found;
}

static int check_root(kin_grammar_build *b, kin_grammar_never *never) {
    uint32_t rule = b->gbnf->root;
    if (b->rules[rule].productive) return 0;
    bool *met = calloc(b->gbnf->n_rules, sizeof *met);
    if (!met) return kin_build_out_of_memory(b);
    int64_t inner = rule;
    while (inner >= 0 && !met[inner]) {
        rule = (uint32_t)inner;
        met[rule] = true;
        inner = b->rules[rule].has_ahead ? -1 : find_unproductive_rule(b, b->gbnf->rules[rule]);
    }
    free(met);
    int len = (int)kin_string_table_len(&b->gbnf->names, rule);
    const char *name = kin_string_table_at(&b->gbnf->names, rule);
    never->goes_on = inner >= 0;
    snprintf(never->rule, sizeof never->rule, "%.*s", len, name);
    return kin_err_set(b->err, "grammar: it matches no text: the rule '%.*s' %s", len, name,
                       inner >= 0 ? "recurs without end" : "contradicts itself");
}

// Calls `use` for every rule that the node mentions.
static void each_rule(const kin_gbnf *gbnf, uint32_t at, void (*use)(uint32_t rule, void *user), void *user) {
    const kin_gbnf_node *node = &gbnf->nodes[at];
    if (node->kind == KIN_GBNF_RULE) use(node->rule, user);
    for (uint32_t child = node->child; child; child = gbnf->nodes[child].next) each_rule(gbnf, child, use, user);
}

typedef struct callers { // for each rule the rules that mention it, and the number of its own mentions that are not settled yet
    uint32_t *n_open;    // [n_rules]
    uint32_t *first;     // [n_rules] first mention of the rule, plus 1
    uint32_t *next, *of; // [n_nodes] next mention of the same rule, plus 1; the rule that contains the mention
    uint32_t n, rule;
} callers;

static void add_mention(uint32_t rule, void *user) {
    callers *c = user;
    c->of[c->n] = c->rule;
    c->next[c->n] = c->first[rule];
    c->first[rule] = ++c->n;
    c->n_open[c->rule]++;
}

static void highest(uint32_t rule, void *user) {
    void **pair = user;
    const kin_grammar_build *b = pair[0];
    uint8_t *height = pair[1];
    if (b->rules[rule].inlined && b->rules[rule].height >= *height) *height = (uint8_t)(b->rules[rule].height + 1);
}

// Settles a rule whose mentions are all settled: it is not recursive, and is inlined if it is small.
static void settle(kin_grammar_build *b, uint32_t rule) {
    kin_rule_facts *facts = &b->rules[rule];
    void *pair[2] = {b, &facts->height};
    each_rule(b->gbnf, b->gbnf->rules[rule], highest, pair);
    facts->cost = kin_build_cost(b, b->gbnf->rules[rule]);
    facts->inlined = !facts->has_ahead && facts->cost <= KIN_BUILD_MAX_INLINE && facts->height <= KIN_BUILD_MAX_INLINE_HEIGHT;
}

// Settles rules bottom-up (Kahn's algorithm); recursive rules, and rules that mention one, are never settled.
static int choose_inlined(kin_grammar_build *b) {
    uint32_t n_rules = b->gbnf->n_rules, n_ready = 0, *ready = malloc(n_rules * sizeof *ready);
    callers c = {.n_open = calloc(n_rules, sizeof *c.n_open),
                 .first = calloc(n_rules, sizeof *c.first),
                 .next = malloc(b->gbnf->n_nodes * sizeof *c.next),
                 .of = malloc(b->gbnf->n_nodes * sizeof *c.of)};
    int rc = 0;
    if (!ready || !c.n_open || !c.first || !c.next || !c.of) {
        rc = kin_build_out_of_memory(b);
        goto done;
    }
    for (c.rule = 0; c.rule < n_rules; c.rule++) each_rule(b->gbnf, b->gbnf->rules[c.rule], add_mention, &c);
    for (uint32_t i = 0; i < n_rules; i++) {
        if (c.n_open[i] == 0) ready[n_ready++] = i;
    }
    for (uint32_t i = 0; i < n_ready; i++) {
        settle(b, ready[i]);
        for (uint32_t m = c.first[ready[i]]; m; m = c.next[m - 1]) {
            if (--c.n_open[c.of[m - 1]] == 0) ready[n_ready++] = c.of[m - 1];
        }
    }

done:
    free(c.of);
    free(c.next);
    free(c.first);
    free(c.n_open);
    free(ready);
    return rc;
}

// ---- machines

static int build_machines(kin_grammar_build *b) {
    kin_grammar *g = b->grammar;
    if (kin_build_machine_of_rule(b, b->gbnf->root, &g->root) != 0) return KIN_FAIL;
    for (uint32_t i = 0; i < g->n_machines; i++) { // the loop may add machines
        uint32_t entry;
        if (g->machines[i].start != 0) continue;
        if (kin_build_nfa(b, i, &entry) != 0 || kin_build_dfa(b, i, entry) != 0) return KIN_FAIL;
    }
    return 0;
}

// ---- ranks: which machine can call which before a byte is read. A cycle is left recursion

static int refuse_left_recursion(kin_grammar_build *b, const uint32_t *n_open) {
    uint32_t i = 0;
    while (n_open[i] == 0) i++;
    uint32_t rule = b->grammar->machines[i].rule;
    return kin_err_set(b->err,
                       "grammar: left recursion: the rule '%.*s' can begin with itself, directly or through others; write "
                       "e ::= t (\"+\" t)* for e ::= e \"+\" t | t",
                       (int)kin_string_table_len(&b->gbnf->names, rule), kin_string_table_at(&b->gbnf->names, rule));
}

static void count_first_calls(const kin_grammar *g, uint32_t machine, uint32_t *n_open) {
    const kin_grammar_state_row *start = &g->states[g->machines[machine].start];
    for (uint32_t k = 0; k < start->n_calls; k++) n_open[g->calls[start->calls + k].machine]++;
}

static int rank_machines(kin_grammar_build *b) {
    kin_grammar *g = b->grammar;
    uint32_t n = g->n_machines, n_ranked = 0;
    uint32_t *n_open = calloc(n, sizeof *n_open); // unranked machines that can call it before reading a byte
    g->by_rank = malloc(n * sizeof *g->by_rank);
    if (!n_open || !g->by_rank) {
        free(n_open);
        return kin_build_out_of_memory(b);
    }
    for (uint32_t i = 0; i < n; i++) count_first_calls(g, i, n_open);
    for (uint32_t i = 0; i < n; i++) {
        if (n_open[i] == 0) g->by_rank[n_ranked++] = (uint16_t)i;
    }
    for (uint32_t i = 0; i < n_ranked; i++) {
        kin_grammar_machine *machine = &g->machines[g->by_rank[i]];
        const kin_grammar_state_row *start = &g->states[machine->start];
        machine->rank = i;
        for (uint32_t k = 0; k < start->n_calls; k++) {
            uint16_t called = g->calls[start->calls + k].machine;
            if (--n_open[called] == 0) g->by_rank[n_ranked++] = called;
        }
    }
    int rc = n_ranked == n ? 0 : refuse_left_recursion(b, n_open);
    free(n_open);
    return rc;
}

// ---- open and close

static int compile(kin_grammar_build *b, kin_grammar_never *never) {
    kin_grammar *g = b->grammar;
    b->rules = calloc(b->gbnf->n_rules, sizeof *b->rules);
    b->node_machine = calloc(b->gbnf->n_nodes, sizeof *b->node_machine);
    g->states = calloc(1, sizeof *g->states);
    if (!b->rules || !b->node_machine || !g->states) return kin_build_out_of_memory(b);
    kin_build_classes(b);
    g->n_states = g->cap_states = 1;
    g->next = calloc(g->n_classes, sizeof *g->next);
    if (!g->next) return kin_build_out_of_memory(b);
    g->cap_next = g->n_classes;
    if (kin_build_aheads(b) != 0 || find_nullable_and_productive(b) != 0 || check_root(b, never) != 0 || choose_inlined(b) != 0 ||
        build_machines(b) != 0 || rank_machines(b) != 0)
        return KIN_FAIL;
    return kin_build_mark_plain(b);
}

int kin_grammar_compile(kin_grammar **out, const char *text, size_t len, kin_err *err) {
    return kin_grammar_compile_with(out, text, len, &(kin_grammar_options){0}, NULL, err);
}

int kin_grammar_compile_with(kin_grammar **out, const char *text, size_t len, const kin_grammar_options *options,
                             kin_grammar_never *never, kin_err *err) {
    kin_grammar_budget own = kin_grammar_budget_of(KIN_GRAMMAR_MAX_STEPS);
    kin_grammar_never not_wanted;
    kin_gbnf gbnf;
    *out = NULL;
    if (!never) never = &not_wanted;
    *never = (kin_grammar_never){0};
    if (kin_gbnf_parse(&gbnf, text, len, err) != 0) return KIN_FAIL;
    kin_grammar_build b = {.gbnf = &gbnf,
                           .err = err,
                           .budget = options->budget ? options->budget : &own,
                           .parts = options->parts,
                           .grammar = calloc(1, sizeof *b.grammar)};
    int rc = b.grammar ? compile(&b, never) : kin_build_out_of_memory(&b);
    if (rc == 0)
        *out = b.grammar;
    else
        kin_grammar_free(b.grammar);
    free(b.children);
    free(b.nfa);
    free(b.machine_node);
    free(b.node_machine);
    free(b.rules);
    kin_gbnf_fini(&gbnf);
    return rc;
}
