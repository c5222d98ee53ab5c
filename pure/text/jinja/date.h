// Dates, for strftime_now: as strftime formats them in the C locale.
#pragma once

#include "pure/text/jinja/state.h"

// The state's time in that format, as template text. NULL after kin_state_fail: a directive that is not known here.
const kin_value *kin_date_format(kin_state *state, const kin_string *format);
