// The headers of gpt-oss's messages.
#pragma once

#include "pure/chat/reply_state.h"

// Consumes one byte of a header, and enters the message after it. Always true.
bool kin_reply_step_header(kin_reply_parser *p, char c);
