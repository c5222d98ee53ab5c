// Tool calls: from the mark that begins a call to its end. The whole call is held until it is certain to be one.
#pragma once

#include "pure/chat/reply_state.h"

// Begin a call that is a JSON object, or a list, whose first byte is held.
void kin_reply_begin_object(kin_reply_parser *p);
void kin_reply_begin_list(kin_reply_parser *p);
// Begins a call whose name begins with the next byte.
void kin_reply_begin_name(kin_reply_parser *p);
// Consumes one byte, in the states from AFTER_MARK on. Returns false if the byte was not consumed but the state changed.
bool kin_reply_step_call(kin_reply_parser *p, char c);
