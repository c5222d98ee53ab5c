// Fills the reference engine's model from a GGUF.
//
// Deliberately independent of model/hparams and model/weights: an error in reading metadata there must not be repeated here.
// The families are those of testkit/ref_families.c. Other families, rope scalings other than linear and YaRN, and tensors that
// the reference engine has no place for are rejected: it would compute something else.
#pragma once

#include "base/err.h"
#include "model/gguf.h"
#include "testkit/ref/model.h"

// Tensors point into the gguf, which must stay open. The shapes are not checked: kin_ref_session_open does that.
int kin_ref_load(kin_ref_model *model, const kin_gguf *gguf, kin_err *err);

// Frees what kin_ref_load allocated. A zeroed model is allowed.
void kin_ref_unload(kin_ref_model *model);
