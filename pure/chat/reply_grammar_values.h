// Calls in the syntaxes that are not JSON: arguments between marks, in quotes of their own, as in Python.
//
// Thread: any.
#pragma once

#include "pure/chat/reply_writer.h"

// Writes a name and arguments of any tool. KIN_FAIL with the tool's name if its schema is strict and not supported.
int kin_reply_put_value_calls(kin_reply_writer *w);
