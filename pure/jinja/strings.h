// Strings of a template: substrings, concatenation and searches, with an origin for each byte.
//
// A substring shares the bytes of its string. Concatenations and pieces keep the origin of every byte. Positions and lengths
// are in bytes unless they say characters, and never fall within a character.
#pragma once

#include "pure/jinja/value_impl.h"

typedef enum kin_side { KIN_SIDE_LEFT = 1, KIN_SIDE_RIGHT = 2 } kin_side;
enum { KIN_NOT_FOUND = -1 };

size_t kin_string_n_chars(kin_values *values, const kin_string *s);

// Returns the byte offset of character i; s->len for i >= the number of characters.
size_t kin_string_offset(kin_values *values, const kin_string *s, size_t i);

kin_string kin_string_part(const kin_string *s, size_t begin, size_t end);
kin_origin kin_string_origin_at(const kin_string *s, size_t i);

// Strips white space, or the characters of `chars` if that is not NULL, from the given sides.
kin_string kin_string_strip(kin_values *values, const kin_string *s, const kin_string *chars, unsigned sides);

// Returns the offset of the first needle at or after `from`, or KIN_NOT_FOUND.
ptrdiff_t kin_string_find(kin_values *values, const kin_string *s, const kin_string *needle, size_t from);

bool kin_string_is(const kin_string *s, const char *text);

// Concatenates a and b. If the bytes of a are the result of the last concatenation, they are extended in place, so a chain of
// sums copies each byte about once.
kin_value *kin_string_concat(kin_values *values, const kin_string *a, const kin_string *b);

kin_value *kin_string_repeat(kin_values *values, const kin_string *s, int64_t times);

// Returns the n characters begin, begin + step, ..., as in s[begin::step]. All must be within s.
kin_value *kin_string_pick(kin_values *values, const kin_string *s, int64_t begin, int64_t step, size_t n);

// White space as in Python's str.isspace. Returns the bytes of the white space character at the beginning, or at the end, of at
// [n]; 0: none.
int kin_space_begins(const char *at, size_t n);
int kin_space_ends(const char *at, size_t n);

// ---- pieces: parts that are joined into one string at the end

typedef struct kin_pieces {
    kin_values *values;
    kin_string *at; // [n]
    size_t n, cap;
    size_t len; // total bytes
} kin_pieces;

// Adds a part; its bytes are borrowed until the join. After an error nothing is added.
void kin_pieces_add(kin_pieces *pieces, kin_string part);
kin_value *kin_pieces_join(const kin_pieces *pieces); // NULL after an error
