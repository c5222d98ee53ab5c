// How long the head waits for what a tab was asked. A tab whose connection answers while what computes in it hangs (a driver, a
// page that is wrong, a hostile one) would hold the whole ring up.
//
//     step: LEAST + TIMES * (weights read once + FLOP of its rows), at most MOST
//
// by what the tab says it computes: generous for a phone that has got warm, or a page that is slowed down, since a step of it is
// predicted to take less than a second. A plan that is opened may take as long as it likes as long as it goes on.
//
// Pure functions.
#pragma once

#include <stdint.h>

#include "pure/plan/facts.h"

enum {
    KIN_TAB_LEAST_MS = 15000,
    KIN_TAB_LEAST_GPU_MS = 75000, // within 60 s it notices itself that its GPU hangs, and comes back without (web/gpu.js)
    KIN_TAB_MOST_MS = 1800000,    // a phone's piece of a prompt takes minutes
    KIN_TAB_TIMES = 30,
    KIN_TAB_OPEN_MS = 120000, // without any progress: weights that are read, packed, or copied to a GPU
};

// of: what the tab computes with. weights_bytes: of its layers.
uint64_t kin_tab_step_limit_ms(const kin_device_facts *of, uint64_t weights_bytes, uint32_t n_tokens);
