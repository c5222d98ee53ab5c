// Slices, as Python has them: of[begin:end:step] of lists, tuples, ranges and strings.
#pragma once

#include "pure/text/jinja/state.h"

// bounds: begin, end, step; none where one is missing. NULL after kin_state_fail or after an error.
const kin_value *kin_slice(kin_state *state, const kin_value *of, const kin_value *const bounds[3]);
