// Errors: one human sentence, written where the fact is known.
//
// A function that can fail returns 0 or KIN_FAIL and fills the caller's kin_err.
// Callers add context with a prefix: "model.gguf: tensor blk.3.ffn_up.weight: offset beyond the end of the file".
// The sentence has no trailing newline. A NULL kin_err is allowed everywhere: the sentence is dropped.
// A programming error is never a kin_err: use kin_assert, which stays in release builds.
#pragma once

#include "base/sentence.h"

#define KIN_FAIL (-1)
#define KIN_ABSENT 1 // the item was looked up and is not there: no failure, no sentence. Only from functions that document it

typedef struct kin_err {
    char text[1536]; // room for a path, or another device's reason, with a description; longer text is cut between words
} kin_err;

// Writes the sentence. Always returns KIN_FAIL, so that callers can write `return kin_err_set(err, ...)`.
int kin_err_set(kin_err *err, const char *fmt, ...) KIN_PRINTF(2, 3);

// Puts "PREFIX: " in front of the existing sentence. Always returns KIN_FAIL.
int kin_err_prefix(kin_err *err, const char *fmt, ...) KIN_PRINTF(2, 3);

// Checks an invariant of kin's own code: if it is broken, prints where and aborts.
#define kin_assert(cond) ((cond) ? (void)0 : kin_assert_failed(#cond, __FILE__, __LINE__))
_Noreturn void kin_assert_failed(const char *what, const char *file, int line);
