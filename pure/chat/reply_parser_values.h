// Arguments of a call that are not written as JSON: each parameter between marks of its own, or the whole call as in Python.
#pragma once

#include "pure/chat/reply_state.h"

// Begin the arguments: parameters between their own marks; values in the format's own syntax, whose first bracket is held.
void kin_reply_begin_parameters(kin_reply_parser *p, int64_t tool);
void kin_reply_begin_loose(kin_reply_parser *p, int64_t tool);
// Consumes one byte, in the states from BEFORE_PARAMETER on; like kin_reply_step_call.
bool kin_reply_step_values(kin_reply_parser *p, char c);
// Handles the mark that was read in one of the places from AT_PARAMETER on.
void kin_reply_enter_parameter_mark(kin_reply_parser *p, int mark);
