// The links of a facts file: a default for all pairs, and pairs that differ from it.
//
//   "links": {"default": {"rtt_s": 0.002, "bytes_per_s": 40e6},
//             "pairs": [{"from": "tower", "to": "phone", "rtt_s": 0.009},
//                       {"from": "phone", "to": "tower", "bytes_per_s": 2e6, "one_way": true}]}
//
// A pair's missing values are the default's. A pair counts for both directions unless it is "one_way"; a later pair replaces an
// earlier one. Without a default, other pairs have no link; without "links", no devices have. Plain functions without state.
#pragma once

#include <jansson.h>

#include "pure/plan/facts.h"

// Call it after the devices were read, since pairs name them.
int kin_facts_links_read(const json_t *root, kin_facts *facts, kin_err *err);

// Adds "links" to the root if there is more than one device. The default is the most common link.
int kin_facts_links_write(json_t *root, const kin_facts *facts, kin_err *err);
