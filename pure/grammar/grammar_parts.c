#include "pure/grammar/grammar_parts.h"

#include <stdlib.h>

#include "pure/text/grow.h"

enum { CELLS_OF_A_STEP = 16 }; // cells that are copied in about the time of one step

const kin_grammar *kin_build_find_part(const kin_grammar_build *b, uint32_t rule) {
    const kin_string_table *names = &b->gbnf->names;
    if (!b->parts || !b->parts->names.slots) return NULL;
    int64_t at = kin_string_table_find(&b->parts->names, kin_string_table_at(names, rule), kin_string_table_len(names, rule));
    return at >= 0 ? b->parts->grammars[at] : NULL;
}

// class_of: the part's class, for each class of the whole.
static void map_classes(const kin_grammar *whole, const kin_grammar *part, uint8_t *class_of) {
    for (int byte = 255; byte >= 0; byte--) class_of[whole->class_of[byte]] = part->class_of[byte];
    for (int byte = 0; byte < 256; byte++) kin_assert(class_of[whole->class_of[byte]] == part->class_of[byte]);
}

int kin_build_copy_part(kin_grammar_build *b, const kin_grammar *part, uint32_t rule) {
    kin_grammar *g = b->grammar;
    uint32_t machine, from = 0, first = g->n_states, n = 0;
    uint8_t class_of[256];
    uint16_t *number = calloc(part->n_states, sizeof *number); // of the part's states in the whole; 0: of another machine
    if (!number) return kin_build_out_of_memory(b);
    map_classes(g, part, class_of);
    while (from == part->root) from++;
    for (uint32_t i = 1; i < part->n_states; i++) {
        if (part->states[i].machine == from) number[i] = (uint16_t)(first + n++);
    }
    int rc = kin_build_machine_of_rule(b, rule, &machine);
    if (rc == 0) rc = kin_build_work(b, (uint64_t)n * g->n_classes / CELLS_OF_A_STEP);
    if (rc == 0 &&
        (kin_grow((void **)&g->states, &g->cap_states, (uint64_t)first + n, KIN_GRAMMAR_MAX_STATES, sizeof *g->states) != 0 ||
         kin_grow((void **)&g->next, &g->cap_next, ((uint64_t)first + n) * g->n_classes, KIN_GRAMMAR_MAX_CELLS,
                  sizeof *g->next) != 0))
        rc = kin_err_set(b->err, "grammar: too complex: the automata of all rules together are too large");
    for (uint32_t i = 1; i < part->n_states && rc == 0; i++) {
        if (!number[i]) continue;
        g->states[number[i]] = (kin_grammar_state_row){.machine = (uint16_t)machine,
                                                       .flags = part->states[i].flags & (KIN_STATE_ENDS | KIN_STATE_READS)};
        for (uint32_t c = 0; c < g->n_classes; c++)
            g->next[(size_t)number[i] * g->n_classes + c] = number[kin_grammar_next(part, i, class_of[c])];
    }
    if (rc == 0) {
        uint16_t start = part->machines[from].start;
        g->n_states = first + n;
        g->machines[machine].start = number[start];
        b->rules[rule].productive = true;
        b->rules[rule].nullable = part->states[start].flags & KIN_STATE_ENDS;
    }
    free(number);
    return rc;
}
