// Nondeterministic automata: every part of the tree is built in front of what follows it, so nothing is patched afterwards.
#include "pure/text/grammar_build.h"
#include "pure/text/grow.h"
#include "pure/text/utf8_ranges.h"

static int add_state(kin_grammar_build *b, kin_nfa_state state, uint32_t *out) {
    if (kin_build_work(b, 1) != 0) return KIN_FAIL;
    if (kin_grow((void **)&b->nfa, &b->cap_nfa, (uint64_t)b->n_nfa + 1, KIN_BUILD_MAX_NFA, sizeof *b->nfa) != 0)
        return kin_err_set(b->err, "grammar: a rule is too large, or there is no memory for it");
    *out = b->n_nfa++;
    b->nfa[*out] = state;
    return 0;
}

static int add_byte_range(kin_grammar_build *b, uint8_t lo, uint8_t hi, uint32_t *at) {
    return add_state(b, (kin_nfa_state){.kind = KIN_NFA_RANGE, .lo = lo, .hi = hi, .out = *at}, at);
}

static int add_split(kin_grammar_build *b, uint32_t one, uint32_t other, uint32_t *at) {
    return add_state(b, (kin_nfa_state){.kind = KIN_NFA_SPLIT, .out = one, .other = other}, at);
}

// Each of these takes what follows in *at and leaves there where the node begins.

static int build_bytes(kin_grammar_build *b, const kin_gbnf_node *node, uint32_t *at) {
    for (uint32_t i = node->end; i > node->begin; i--) {
        uint8_t byte = b->gbnf->bytes[i - 1];
        if (add_byte_range(b, byte, byte, at) != 0) return KIN_FAIL;
    }
    return 0;
}

static int build_class(kin_grammar_build *b, const kin_gbnf_node *node, uint32_t *at) {
    uint32_t after = *at;
    if (add_state(b, (kin_nfa_state){.kind = KIN_NFA_FAIL}, at) != 0) return KIN_FAIL;
    for (uint32_t i = node->begin; i < node->end; i++) {
        uint32_t lo = b->gbnf->ranges[i].lo, hi = b->gbnf->ranges[i].hi;
        kin_utf8_piece piece;
        while (kin_utf8_ranges_next(&lo, hi, &piece)) {
            uint32_t entry = after;
            for (int k = piece.n - 1; k >= 0; k--) {
                if (add_byte_range(b, piece.lo[k], piece.hi[k], &entry) != 0) return KIN_FAIL;
            }
            if (add_split(b, entry, *at, at) != 0) return KIN_FAIL;
        }
    }
    return 0;
}

static int build(kin_grammar_build *b, uint32_t node, uint32_t rule, uint32_t *at);

// From the last child to the first.
static int build_sequence(kin_grammar_build *b, const kin_gbnf_node *node, uint32_t rule, uint32_t *at) {
    uint32_t n = b->n_children;
    for (uint32_t child = node->child; child; child = b->gbnf->nodes[child].next) {
        if (kin_grow((void **)&b->children, &b->cap_children, (uint64_t)b->n_children + 1, KIN_GBNF_MAX_NODES * 2u,
                     sizeof *b->children) != 0)
            return kin_build_out_of_memory(b);
        b->children[b->n_children++] = child;
    }
    while (b->n_children > n) {
        uint32_t child = b->children[--b->n_children];
        if (build(b, child, rule, at) != 0) return KIN_FAIL;
    }
    return 0;
}

static int build_choice(kin_grammar_build *b, const kin_gbnf_node *node, uint32_t rule, uint32_t *at) {
    uint32_t after = *at;
    for (uint32_t child = node->child; child; child = b->gbnf->nodes[child].next) {
        uint32_t entry = after;
        if (build(b, child, rule, &entry) != 0) return KIN_FAIL;
        if (child == node->child)
            *at = entry;
        else if (add_split(b, *at, entry, at) != 0)
            return KIN_FAIL;
    }
    return 0;
}

static int build_call(kin_grammar_build *b, uint32_t machine, bool nullable, uint32_t *at) {
    uint32_t after = *at;
    if (add_state(b, (kin_nfa_state){.kind = KIN_NFA_CALL, .out = after, .other = machine}, at) != 0) return KIN_FAIL;
    return nullable ? add_split(b, *at, after, at) : 0;
}

static int build_repeat(kin_grammar_build *b, uint32_t at_node, uint32_t rule, uint32_t *at) {
    const kin_gbnf_node *node = &b->gbnf->nodes[at_node];
    uint32_t after = *at, machine;
    if (node->max == 0) return 0;
    if (!kin_build_is_productive(b, node->child))
        return node->min == 0 ? 0 : add_state(b, (kin_nfa_state){.kind = KIN_NFA_FAIL}, at);
    if (kin_build_is_counted(b, node)) {
        if (kin_build_machine_of_repeat(b, at_node, rule, &machine) != 0) return KIN_FAIL;
        return build_call(b, machine, kin_build_is_nullable(b, at_node), at);
    }
    uint32_t n_needed = node->min;
    if (node->max == KIN_GBNF_UNBOUNDED) {
        uint32_t loop;
        if (add_split(b, 0, after, &loop) != 0) return KIN_FAIL;
        *at = loop;
        if (build(b, node->child, rule, at) != 0) return KIN_FAIL;
        b->nfa[loop].out = *at;
        if (n_needed == 0)
            *at = loop;
        else
            n_needed--;
    }
    for (uint32_t i = node->min; node->max != KIN_GBNF_UNBOUNDED && i < node->max; i++) {
        if (build(b, node->child, rule, at) != 0 || add_split(b, *at, after, at) != 0) return KIN_FAIL;
    }
    for (; n_needed > 0; n_needed--) {
        if (build(b, node->child, rule, at) != 0) return KIN_FAIL;
    }
    return 0;
}

static int build_rule(kin_grammar_build *b, uint32_t rule, uint32_t *at) {
    const kin_rule_facts *facts = &b->rules[rule];
    uint32_t machine;
    if (!facts->productive) return add_state(b, (kin_nfa_state){.kind = KIN_NFA_FAIL}, at);
    if (facts->inlined) return build(b, b->gbnf->rules[rule], rule, at);
    if (kin_build_machine_of_rule(b, rule, &machine) != 0) return KIN_FAIL;
    return build_call(b, machine, facts->nullable, at);
}

static int build(kin_grammar_build *b, uint32_t at_node, uint32_t rule, uint32_t *at) {
    const kin_gbnf_node *node = &b->gbnf->nodes[at_node];
    if (kin_build_work(b, 1) != 0) return KIN_FAIL;
    switch ((kin_gbnf_kind)node->kind) {
    case KIN_GBNF_BYTES: return build_bytes(b, node, at);
    case KIN_GBNF_CLASS: return build_class(b, node, at);
    case KIN_GBNF_SEQUENCE: return build_sequence(b, node, rule, at);
    case KIN_GBNF_CHOICE: return build_choice(b, node, rule, at);
    case KIN_GBNF_REPEAT: return build_repeat(b, at_node, rule, at);
    case KIN_GBNF_RULE: return build_rule(b, node->rule, at);
    }
    return KIN_FAIL;
}

int kin_build_nfa(kin_grammar_build *b, uint32_t machine, uint32_t *entry) {
    b->n_nfa = b->n_children = 0;
    if (add_state(b, (kin_nfa_state){.kind = KIN_NFA_END}, entry) != 0) return KIN_FAIL;
    return build(b, b->machine_node[machine], b->grammar->machines[machine].rule, entry);
}
