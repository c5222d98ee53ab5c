// Models of any family from a text of their metadata: kin's own description of the family says which weights its layers have.
// For the form of the text see kin_model_spec.keys.
//
// Owner: the creator. Thread: any, one at a time.
#pragma once

#include "base/err.h"
#include "testkit/model_part.h"
#include "testkit/model_tensors.h"

typedef struct kin_family kin_family;

// Reads the text at `path` and describes the layers. Fails with a sentence if kin's family refuses them.
int kin_family_read(kin_family **out, const char *path, int n_vocab, kin_err *err);
void kin_family_free(kin_family *f); // NULL is fine

int64_t kin_family_n_weights(const kin_family *f);

int kin_family_n_drafts(const kin_family *f); // draft blocks

// Returns the tensors and metadata of the model or of a part, ready to be saved. The keys of each part announce layers and draft
// blocks. The caller owns them; the family outlives them.
kin_generator *kin_family_make(const kin_family *f, const char *mix, uint64_t seed, kin_model_part part);
