// Strings of a template: parts, sums and searches, each byte with its origin.
//
// A part of a string shares its bytes. What is put together (sums, pieces) keeps the origin of every byte. Positions and lengths
// are bytes unless they say characters; they never fall inside of a character.
#pragma once

#include "pure/text/value_impl.h"

typedef enum kin_side { KIN_SIDE_LEFT = 1, KIN_SIDE_RIGHT = 2 } kin_side;
enum { KIN_NOT_FOUND = -1 };

size_t kin_string_n_chars(kin_values *values, const kin_string *s);

// The byte where character i begins; s->len for i >= the number of characters.
size_t kin_string_offset(kin_values *values, const kin_string *s, size_t i);

kin_string kin_string_part(const kin_string *s, size_t begin, size_t end);
kin_origin kin_string_origin_at(const kin_string *s, size_t i);

// Without the white space, or the characters of `chars` if that is not NULL, at the given sides.
kin_string kin_string_strip(kin_values *values, const kin_string *s, const kin_string *chars, unsigned sides);

// Where the needle begins first, at or after `from`, or KIN_NOT_FOUND.
ptrdiff_t kin_string_find(kin_values *values, const kin_string *s, const kin_string *needle, size_t from);

bool kin_string_is(const kin_string *s, const char *text);

// a then b. If a's bytes are the last ones that were put together they are grown in place, so that a chain of sums copies
// each byte about once.
kin_value *kin_string_concat(kin_values *values, const kin_string *a, const kin_string *b);

kin_value *kin_string_repeat(kin_values *values, const kin_string *s, int64_t times);

// Characters begin, begin + step, ... (n of them), as s[begin::step] has them. All must be inside of s.
kin_value *kin_string_pick(kin_values *values, const kin_string *s, int64_t begin, int64_t step, size_t n);

// White space as Python's str.isspace has it. Bytes of the white space that begins at at[0..n) or ends there; 0: none does.
int kin_space_begins(const char *at, size_t n);
int kin_space_ends(const char *at, size_t n);

// ---- pieces: what becomes one string in the end

typedef struct kin_pieces {
    kin_values *values;
    kin_string *at; // [n]
    size_t n, cap;
    size_t len; // bytes of all
} kin_pieces;

// The bytes are borrowed until the join. After an error nothing is added.
void kin_pieces_add(kin_pieces *pieces, kin_string part);
kin_value *kin_pieces_join(const kin_pieces *pieces); // NULL after an error
