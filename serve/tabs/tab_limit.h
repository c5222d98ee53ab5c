// Limits the time that the head waits for a tab's answer. Without it, a tab whose connection responds while its computation hangs
// (a driver, a faulty page, a hostile one) would stall the whole ring.
//
//     step: LEAST + TIMES * (weights read once + FLOP of its rows), at most MOST
//
// computed from the speeds that the tab reports. The limit is generous, since a phone may be throttled by heat or a page by the
// browser, and a tab's step is predicted to take less than a second. Opening a plan may take any time as long as it progresses.
//
// Pure functions.
#pragma once

#include <stdint.h>

#include "pure/plan/facts.h"

enum {
    KIN_TAB_LEAST_MS = 15000,
    KIN_TAB_LEAST_GPU_MS = 75000, // the tab notices within 60 s that its GPU hangs, and comes back without it (web/gpu.js)
    KIN_TAB_MOST_MS = 1800000,    // a phone's share of a prompt takes minutes
    KIN_TAB_TIMES = 30,
    KIN_TAB_OPEN_MS = 120000, // without progress: weights are read, packed, or copied to a GPU
};

// of: the speeds of the tab's processor or GPU. weights_bytes: of its layers.
uint64_t kin_tab_step_limit_ms(const kin_device_facts *of, uint64_t weights_bytes, uint32_t n_tokens);
