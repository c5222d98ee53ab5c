// Unit files of systemd for kin serve and kin join.
//
// Looks up groups of this machine, so one thread at a time.
#pragma once

#include "base/err.h"
#include "pure/text/text_buffer.h"

// Writes the unit of a command. program: its path; words [n]: the command and its options. is_system: writes a system unit, which
// runs as a separate user; otherwise a unit of the user who is logged in. Fails if a unit cannot express a word.
int kin_unit_file_write(const char *program, char *const *words, int n, bool is_system, kin_text_buffer *out, kin_err *err);
