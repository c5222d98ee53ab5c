// N-gram embedding: finds the rows of the table that are added for a token and those before it.
#pragma once

#include <stdint.h>

#include "model/hparams.h"

// rows // [kin_ngram_n_rows]. ids // [n->size]: the token's number, then those of the tokens before it, the nearest first; -1:
// none. With m_i the multipliers, for each number of tokens k = 2 .. size
//   mix = id_0 m_0 xor id_1 m_1 xor ... xor id_(k-1) m_(k-1), modulo 2^64
//   row = first[h] + mix mod n_rows[h], for each of its heads h.
// A token that is missing counts as the end of a text, and so does everything before such an end.
void kin_ngram_rows(const kin_ngram *n, const int32_t *ids, uint64_t *rows);
