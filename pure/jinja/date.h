// Dates, for strftime_now: formatted as by strftime in the C locale.
#pragma once

#include "pure/jinja/state.h"

// Formats the state's time, as template text. Returns NULL after kin_state_fail: an unsupported directive.
const kin_value *kin_date_format(kin_state *state, const kin_string *format);
