#include "pure/grammar/grammar.h"

#include <stdlib.h>
#include <string.h>

#include "pure/grammar/grammar_impl.h"
#include "pure/text/grow.h"

enum { STEPS_BETWEEN_QUESTIONS = 1 << 14 }; // to `stopped`; less than 1 ms

kin_grammar_budget kin_grammar_budget_of(uint64_t steps) {
    return (kin_grammar_budget){.steps = steps, .trial_steps = steps - steps / 4};
}

int kin_grammar_spend(kin_grammar_budget *budget, uint64_t steps, kin_err *err) {
    uint64_t before = budget->steps;
    bool is_stopped = false;
    if (steps <= before && budget->stopped && before / STEPS_BETWEEN_QUESTIONS != (before - steps) / STEPS_BETWEEN_QUESTIONS)
        is_stopped = budget->stopped(budget->user);
    if (steps > before || is_stopped) {
        budget->steps = 0;
        budget->is_spent = true;
        return kin_err_set(err, "grammar: too complex: compiling it would take too long");
    }
    budget->steps -= steps;
    return 0;
}

// ---- parts

int kin_grammar_parts_add(kin_grammar_parts *p, const char *name, kin_grammar *grammar) {
    uint32_t n = p->names.n;
    int64_t at = -1;
    if ((p->names.slots || kin_string_table_init(&p->names, 16, 256) == 0) &&
        kin_grow((void **)&p->grammars, &p->cap, (uint64_t)n + 1, UINT32_MAX, sizeof *p->grammars) == 0)
        at = kin_string_table_add(&p->names, name, strlen(name));
    if (at < 0) {
        kin_grammar_free(grammar);
        return KIN_FAIL;
    }
    if (at < n) kin_grammar_free(p->grammars[at]);
    p->grammars[at] = grammar;
    return 0;
}

void kin_grammar_parts_fini(kin_grammar_parts *p) {
    for (uint32_t i = 0; i < p->names.n; i++) kin_grammar_free(p->grammars[i]);
    free(p->grammars);
    kin_string_table_fini(&p->names);
    *p = (kin_grammar_parts){0};
}

// ---- the grammar

void kin_grammar_free(kin_grammar *grammar) {
    if (!grammar) return;
    free(grammar->by_rank);
    free(grammar->machines);
    free(grammar->calls);
    free(grammar->next);
    free(grammar->states);
    free(grammar);
}

kin_grammar_size kin_grammar_get_size(const kin_grammar *g) {
    return (kin_grammar_size){.n_machines = g->n_machines,
                              .n_states = g->n_states,
                              .n_classes = g->n_classes,
                              .bytes = g->cap_states * sizeof *g->states + g->cap_next * sizeof *g->next +
                                       g->cap_calls * sizeof *g->calls + g->cap_machines * sizeof *g->machines};
}
