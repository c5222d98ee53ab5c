// The links of a facts file: one for all pairs, and pairs that are unlike it.
//
//   "links": {"default": {"rtt_s": 0.002, "bytes_per_s": 40e6},
//             "pairs": [{"from": "tower", "to": "phone", "rtt_s": 0.009},
//                       {"from": "phone", "to": "tower", "bytes_per_s": 2e6, "one_way": true}]}
//
// What a pair does not say is the default's. A pair counts both ways unless it is "one_way"; a later pair replaces an earlier
// one. Without a default, other pairs cannot talk; without "links", nobody can. Plain functions without state.
#pragma once

#include <jansson.h>

#include "pure/plan/facts.h"

// After the devices: pairs name them.
int kin_facts_links_read(const json_t *root, kin_facts *facts, kin_err *err);

// Adds "links" to the root where there is more than one device. The default is what most pairs have.
int kin_facts_links_write(json_t *root, const kin_facts *facts, kin_err *err);
