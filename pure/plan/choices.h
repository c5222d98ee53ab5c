// Choices: for every device and number of layers, the divisions between GPU and CPU that can be optimal: how many layers are on
// the GPU, and of how many of these the CPU has the experts.
//
// A division is dropped if another one is at least as good in everything that a plan depends on, for any rounds and period:
// computing, waiting for the disk, the disk's work, copies. Nearly always one or two of the divisions remain.
//
// Owner: one solver. Results live until kin_choices_fini.
#pragma once

#include <stddef.h>

#include "pure/plan/device_time.h"

typedef struct kin_choice {
    int n_gpu, n_cpu_moe;
    double base_s; // computing, and waiting for experts
    kin_device_wait wait;
    double stall_s; // lower bound of the period
} kin_choice;

typedef struct kin_choices {
    kin_device_rates rates;
    kin_choice *all;                     // the choices of 0 layers, of 1, ...
    int begin[KIN_FACTS_MAX_LAYERS + 2]; // choices of n layers: [begin[n], begin[n + 1])
} kin_choices;

// Lists the choices for passes of one token. Fails only if out of memory.
int kin_choices_init(kin_choices *choices, const kin_facts *facts, int device, kin_err *err);
void kin_choices_fini(kin_choices *choices);

// Returns the cost of `choice` of n_layer layers in n_rounds rounds, in seconds per token.
static inline double kin_choice_s(const kin_choices *choices, const kin_choice *choice, int n_layer, int n_rounds) {
    double exposed_s = kin_device_exposed_s(&choice->wait, n_rounds);
    return choice->base_s + exposed_s + kin_device_windows_s(&choices->rates, n_layer, choice->n_gpu, n_rounds);
}
