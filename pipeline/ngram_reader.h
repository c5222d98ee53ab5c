// Reads the embeddings of the last tokens (kin_ngram), which the head gives its layer with each token: remembers the tokens of
// all sequences, since an embedding is that of a token and those before it, and reads rows of the table in the model's file.
//
// Owner and thread: the head's.
#pragma once

#include "engine/kv/blocks.h"
#include "model/model.h"

typedef struct kin_ngram_reader kin_ngram_reader;

int kin_ngram_reader_open(kin_ngram_reader **out, const kin_model *model, int n_batch, kin_err *err);
void kin_ngram_reader_close(kin_ngram_reader *reader);

// Notes n tokens of a sequence from a position on, whose tokens before it are known.
int kin_ngram_reader_note(kin_ngram_reader *reader, int32_t seq, int pos, const int32_t *tokens, int n, kin_err *err);

// Notes what an operation does to the sequences.
int kin_ngram_reader_change(kin_ngram_reader *reader, const kin_kv_op *op, kin_err *err);

// Notes a step's tokens, each the next of its sequence, and reads their embeddings: to // f32 [n, ngram.dim * kin_ngram_n_rows]
int kin_ngram_reader_read(kin_ngram_reader *reader, int n, const int32_t *tokens, const int32_t *seq, const int32_t *pos,
                          float *to, kin_err *err);
