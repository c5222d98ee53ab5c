// Nondeterministic automata. Each part of the tree is built in front of its successor, so nothing is patched afterwards.
#include "pure/grammar/grammar_nfa.h"

#include "pure/text/grow.h"
#include "pure/text/utf8_ranges.h"

static int add_state(kin_grammar_build *b, kin_nfa_state state, uint32_t *out) {
    if (kin_build_work(b, 1) != 0) return KIN_FAIL;
    if (kin_grow((void **)&b->nfa, &b->cap_nfa, (uint64_t)b->n_nfa + 1, KIN_BUILD_MAX_NFA, sizeof *b->nfa) != 0)
        return kin_err_set(b->err, "grammar: a rule is too large, or out of memory");
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

// Each of these takes the successor in *at and replaces it by the entry of the node.

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

// Builds from the last child to the first.
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
    if (!b->is_regular && !kin_build_is_productive(b, node->child))
        return node->min == 0 ? 0 : add_state(b, (kin_nfa_state){.kind = KIN_NFA_FAIL}, at);
    if (!b->is_regular && kin_build_is_counted(b, node)) {
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

static int fail_ahead(kin_grammar_build *b, uint32_t rule, const char *what) {
    int len = (int)kin_string_table_len(&b->gbnf->names, rule);
    return kin_err_set(b->err, "grammar: the rule '%.*s' %s", len, kin_string_table_at(&b->gbnf->names, rule), what);
}

static int build_rule_within(kin_grammar_build *b, uint32_t rule, uint32_t *at) {
    if (b->rules[rule].has_ahead) return fail_ahead(b, rule, "has look-ahead and is part of another rule with look-ahead");
    if (b->depth == KIN_BUILD_MAX_RULE_DEPTH)
        return fail_ahead(b, rule, "is recursive or nested too deeply inside a rule with look-ahead");
    b->depth++;
    int rc = build(b, b->gbnf->rules[rule], rule, at);
    b->depth--;
    return rc;
}

// Builds the child's automaton; it reads from here on, at most up to the end of the rule.
static int build_ahead(kin_grammar_build *b, const kin_gbnf_node *node, uint32_t rule, uint32_t *at) {
    uint32_t entry, after = *at;
    if (add_state(b, (kin_nfa_state){.kind = KIN_NFA_ANY}, &entry) != 0 || build(b, node->child, rule, &entry) != 0)
        return KIN_FAIL;
    if (b->n_aheads == KIN_BUILD_MAX_AHEADS) return fail_ahead(b, rule, "has more than 64 look-aheads");
    b->aheads[b->n_aheads].entry = entry;
    b->aheads[b->n_aheads].negated = node->negated;
    return add_state(b, (kin_nfa_state){.kind = KIN_NFA_AHEAD, .out = after, .other = b->n_aheads++}, at);
}

// ---- multiples: one state for each remainder of the digits so far and each number of digits after the point

typedef struct multiple {
    kin_grammar_build *b;
    uint32_t number, n_fraction;
    uint32_t first; // state of remainder 0 before the point; each row has `number` states
    uint32_t end;   // state after the last digit
} multiple;

static uint32_t times_ten(const multiple *m, uint32_t remainder, uint32_t digit) {
    return (uint32_t)(((uint64_t)remainder * 10 + digit) % m->number);
}

// Adds ten alternatives to *at, one for each digit.
static int add_digits(const multiple *m, uint32_t row, uint32_t remainder, uint32_t *at) {
    for (uint32_t digit = 0; digit < 10; digit++) {
        uint32_t to = m->first + row * m->number + times_ten(m, remainder, digit);
        if (add_byte_range(m->b, (uint8_t)('0' + digit), (uint8_t)('0' + digit), &to) != 0 || add_split(m->b, to, *at, at) != 0)
            return KIN_FAIL;
    }
    return 0;
}

// Connects state (row, remainder) to the digits, the point and the end. Row 0 is before the point, row f after f fraction
// digits.
static int connect_remainder(const multiple *m, uint32_t row, uint32_t remainder) {
    uint32_t at, at_end = remainder, after_point;
    if (add_state(m->b, (kin_nfa_state){.kind = KIN_NFA_FAIL}, &at) != 0) return KIN_FAIL;
    for (uint32_t f = row; f < m->n_fraction; f++) at_end = times_ten(m, at_end, 0);
    if (at_end == 0 && add_split(m->b, m->end, at, &at) != 0) return KIN_FAIL;
    bool reads_digit = row == 0 || row < m->n_fraction;
    if (reads_digit && add_digits(m, row == 0 ? 0 : row + 1, remainder, &at) != 0) return KIN_FAIL;
    if (row == 0 && m->n_fraction > 0) {
        if (add_state(m->b, (kin_nfa_state){.kind = KIN_NFA_FAIL}, &after_point) != 0 ||
            add_digits(m, 1, remainder, &after_point) != 0 || add_byte_range(m->b, '.', '.', &after_point) != 0 ||
            add_split(m->b, after_point, at, &at) != 0)
            return KIN_FAIL;
    }
    m->b->nfa[m->first + row * m->number + remainder].out = at;
    return 0;
}

static int build_remainders(const multiple *m, uint32_t *at) {
    uint32_t state;
    for (uint32_t i = 0; i < m->number * (m->n_fraction + 1); i++) {
        if (add_state(m->b, (kin_nfa_state){.kind = KIN_NFA_SPLIT}, &state) != 0) return KIN_FAIL;
        m->b->nfa[state].other = state; // placeholder: a loop without a byte, which matches nothing
    }
    for (uint32_t row = 0; row <= m->n_fraction; row++) {
        for (uint32_t r = 0; r < m->number; r++) {
            if (connect_remainder(m, row, r) != 0) return KIN_FAIL;
        }
    }
    if (add_state(m->b, (kin_nfa_state){.kind = KIN_NFA_FAIL}, at) != 0) return KIN_FAIL;
    return add_digits(m, 0, 0, at); // at least one digit
}

// Trailing zeros of the number are trailing zeros of its multiples, except of 0 itself.
static int build_multiple(kin_grammar_build *b, const kin_gbnf_node *node, uint32_t rule, uint32_t *at) {
    multiple m = {.b = b, .number = node->number, .n_fraction = node->n_fraction, .end = *at};
    uint32_t zero = *at;
    bool has_zeros = m.n_fraction == 0 && m.number % 10 == 0;
    if (has_zeros) {
        if (add_byte_range(b, '0', '0', &zero) != 0) return KIN_FAIL;
        for (; m.number % 10 == 0; m.number /= 10) {
            if (add_byte_range(b, '0', '0', &m.end) != 0) return KIN_FAIL;
        }
    }
    if (m.number > KIN_BUILD_MAX_NUMBER / (m.n_fraction + 1))
        return fail_ahead(b, rule, "has multiples of a number above 10000 (not counting trailing zeros)");
    m.first = b->n_nfa;
    if (build_remainders(&m, at) != 0) return KIN_FAIL;
    return has_zeros ? add_split(b, zero, *at, at) : 0;
}

static int build_rule(kin_grammar_build *b, uint32_t rule, uint32_t *at) {
    const kin_rule_facts *facts = &b->rules[rule];
    uint32_t machine;
    if (b->is_regular) return build_rule_within(b, rule, at);
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
    case KIN_GBNF_AHEAD: return build_ahead(b, node, rule, at);
    case KIN_GBNF_END: return add_state(b, (kin_nfa_state){.kind = KIN_NFA_END}, at);
    case KIN_GBNF_MULTIPLE: return build_multiple(b, node, rule, at);
    }
    return KIN_FAIL;
}

static int build_nfa(kin_grammar_build *b, uint32_t node, uint32_t rule, uint32_t *entry) {
    b->n_nfa = b->n_children = b->n_aheads = 0;
    if (add_state(b, (kin_nfa_state){.kind = KIN_NFA_END}, entry) != 0) return KIN_FAIL;
    return build(b, node, rule, entry);
}

int kin_build_nfa(kin_grammar_build *b, uint32_t machine, uint32_t *entry) {
    return build_nfa(b, b->machine_node[machine], b->grammar->machines[machine].rule, entry);
}

int kin_build_nfa_of_rule(kin_grammar_build *b, uint32_t rule, uint32_t *entry) {
    b->is_regular = true;
    int rc = build_nfa(b, b->gbnf->rules[rule], rule, entry);
    b->is_regular = false;
    return rc;
}
