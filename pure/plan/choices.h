// Choices: for every device and number of layers, the ways to divide them between GPU and CPU that can be best.
//
// A division is left out if another one is at least as good in everything that a plan asks for, whatever the rounds and the
// period: computing, waiting for the disk, the disk's work, copies. Nearly always one or two remain of l + 1.
//
// Owner: one solver. Results live until it is freed.
#pragma once

#include <stddef.h>

#include "pure/plan/device_time.h"

typedef struct kin_choice {
    int n_gpu;
    double base_s; // computing and experts
    kin_device_wait wait;
    double stall_s; // least period
} kin_choice;

typedef struct kin_choices {
    kin_device_rates rates;
    kin_choice *all;                     // those of 0 layers, of 1, ...
    int begin[KIN_FACTS_MAX_LAYERS + 2]; // of n layers: [begin[n], begin[n + 1])
} kin_choices;

// For one token. Fails only for want of memory.
int kin_choices_init(kin_choices *choices, const kin_facts *facts, int device, kin_err *err);
void kin_choices_fini(kin_choices *choices);

// What `choice` of n_layer layers costs in n_rounds rounds, in seconds of a token.
static inline double kin_choice_s(const kin_choices *choices, const kin_choice *choice, int n_layer, int n_rounds) {
    double exposed_s = kin_device_exposed_s(&choice->wait, n_rounds);
    return choice->base_s + exposed_s + kin_device_windows_s(&choices->rates, n_layer, choice->n_gpu, n_rounds);
}
