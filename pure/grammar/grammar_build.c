#include "pure/grammar/grammar_build.h"

#include "pure/text/grow.h"

int kin_build_work(kin_grammar_build *b, uint64_t steps) {
    return kin_grammar_spend(b->budget, steps, b->err);
}

int kin_build_out_of_memory(kin_grammar_build *b) {
    return kin_err_set(b->err, "grammar: out of memory");
}

// ---- properties of nodes. Trees are as deep as parentheses and repetitions nest (gbnf.h), so recursion is safe

bool kin_build_is_nullable(const kin_grammar_build *b, uint32_t at) {
    const kin_gbnf_node *nodes = b->gbnf->nodes, *node = &nodes[at];
    switch ((kin_gbnf_kind)node->kind) {
    case KIN_GBNF_BYTES: return node->begin == node->end;
    case KIN_GBNF_CLASS: return false;
    case KIN_GBNF_SEQUENCE:
        for (uint32_t child = node->child; child; child = nodes[child].next) {
            if (!kin_build_is_nullable(b, child)) return false;
        }
        return true;
    case KIN_GBNF_CHOICE:
        for (uint32_t child = node->child; child; child = nodes[child].next) {
            if (kin_build_is_nullable(b, child)) return true;
        }
        return false;
    case KIN_GBNF_REPEAT: return node->min == 0 || kin_build_is_nullable(b, node->child);
    case KIN_GBNF_RULE: return b->rules[node->rule].nullable;
    case KIN_GBNF_AHEAD:
    case KIN_GBNF_END: return true;
    case KIN_GBNF_MULTIPLE: return false;
    }
    return false;
}

bool kin_build_is_productive(const kin_grammar_build *b, uint32_t at) {
    const kin_gbnf_node *nodes = b->gbnf->nodes, *node = &nodes[at];
    switch ((kin_gbnf_kind)node->kind) {
    case KIN_GBNF_BYTES: return true;
    case KIN_GBNF_CLASS: return node->begin < node->end;
    case KIN_GBNF_SEQUENCE:
        for (uint32_t child = node->child; child; child = nodes[child].next) {
            if (!kin_build_is_productive(b, child)) return false;
        }
        return true;
    case KIN_GBNF_CHOICE:
        for (uint32_t child = node->child; child; child = nodes[child].next) {
            if (kin_build_is_productive(b, child)) return true;
        }
        return false;
    case KIN_GBNF_REPEAT: return node->min == 0 || kin_build_is_productive(b, node->child);
    case KIN_GBNF_RULE: return b->rules[node->rule].productive;
    case KIN_GBNF_AHEAD:
    case KIN_GBNF_END:
    case KIN_GBNF_MULTIPLE: return true;
    }
    return false;
}

static uint32_t saturated(uint64_t n) {
    return n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

static uint64_t class_cost(const kin_gbnf *gbnf, const kin_gbnf_node *node) {
    uint64_t cost = 1;
    for (uint32_t i = node->begin; i < node->end; i++) cost += gbnf->ranges[i].hi < 0x80 ? 1 : 8;
    return cost;
}

static uint64_t unrolled_cost(const kin_grammar_build *b, const kin_gbnf_node *repeat) {
    uint64_t copies = repeat->max != KIN_GBNF_UNBOUNDED ? repeat->max : repeat->min > 0 ? repeat->min : 1;
    return copies * ((uint64_t)kin_build_cost(b, repeat->child) + 1);
}

static bool is_counted(const kin_gbnf_node *repeat, uint64_t unrolled) {
    bool is_one_copy = repeat->max <= 1 || (repeat->max == KIN_GBNF_UNBOUNDED && repeat->min <= 1);
    return !is_one_copy && unrolled > KIN_BUILD_MAX_UNROLL;
}

bool kin_build_is_counted(const kin_grammar_build *b, const kin_gbnf_node *repeat) {
    return is_counted(repeat, unrolled_cost(b, repeat));
}

uint32_t kin_build_cost(const kin_grammar_build *b, uint32_t at) {
    const kin_gbnf_node *nodes = b->gbnf->nodes, *node = &nodes[at];
    uint64_t cost = 1, unrolled;
    switch ((kin_gbnf_kind)node->kind) {
    case KIN_GBNF_BYTES: cost = node->end - node->begin; break;
    case KIN_GBNF_CLASS: cost = class_cost(b->gbnf, node); break;
    case KIN_GBNF_SEQUENCE:
    case KIN_GBNF_CHOICE:
        for (uint32_t child = node->child; child; child = nodes[child].next) cost += kin_build_cost(b, child);
        break;
    case KIN_GBNF_REPEAT:
        unrolled = unrolled_cost(b, node);
        cost = is_counted(node, unrolled) ? 1 : unrolled;
        break;
    case KIN_GBNF_RULE: cost = b->rules[node->rule].inlined ? b->rules[node->rule].cost : 1; break;
    case KIN_GBNF_AHEAD: cost += kin_build_cost(b, node->child); break;
    case KIN_GBNF_END: break;
    case KIN_GBNF_MULTIPLE: cost = 20 * (uint64_t)node->number; break;
    }
    return saturated(cost);
}

// ---- machines

static int add_machine(kin_grammar_build *b, kin_grammar_machine machine, uint32_t node, uint32_t *out) {
    kin_grammar *g = b->grammar;
    uint64_t n = (uint64_t)g->n_machines + 1;
    if (kin_grow((void **)&g->machines, &g->cap_machines, n, KIN_GRAMMAR_MAX_MACHINES, sizeof *g->machines) != 0 ||
        kin_grow((void **)&b->machine_node, &b->cap_machine_node, n, KIN_GRAMMAR_MAX_MACHINES, sizeof *b->machine_node) != 0)
        return kin_err_set(b->err, "grammar: too many rules and repetitions, or out of memory");
    *out = g->n_machines++;
    g->machines[*out] = machine;
    b->machine_node[*out] = node;
    return 0;
}

int kin_build_machine_of_rule(kin_grammar_build *b, uint32_t rule, uint32_t *machine) {
    kin_rule_facts *facts = &b->rules[rule];
    if (facts->machine_plus_1 == 0) {
        if (add_machine(b, (kin_grammar_machine){.rule = rule}, b->gbnf->rules[rule], machine) != 0) return KIN_FAIL;
        facts->machine_plus_1 = *machine + 1;
    }
    *machine = facts->machine_plus_1 - 1;
    return 0;
}

int kin_build_machine_of_repeat(kin_grammar_build *b, uint32_t at, uint32_t rule, uint32_t *machine) {
    const kin_gbnf_node *node = &b->gbnf->nodes[at];
    if (b->node_machine[at] == 0) {
        // If the child may be empty, empty repetitions make up the minimum.
        uint32_t min = kin_build_is_nullable(b, node->child) ? 0 : node->min;
        const kin_grammar_machine counted = {.counted = true, .min = min, .max = node->max, .rule = rule};
        if (add_machine(b, counted, node->child, machine) != 0) return KIN_FAIL;
        b->node_machine[at] = *machine + 1;
    }
    *machine = b->node_machine[at] - 1;
    return 0;
}
