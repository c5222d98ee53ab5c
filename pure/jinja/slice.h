// Python's slices, of[begin:end:step], for lists, tuples, ranges and strings.
#pragma once

#include "pure/jinja/state.h"

// bounds: begin, end, step; a none value for a missing one. Returns NULL after kin_state_fail or an error in the heap.
const kin_value *kin_slice(kin_state *state, const kin_value *of, const kin_value *const bounds[3]);
