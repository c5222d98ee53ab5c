// Attention of the reference engine.
#pragma once

#include "testkit/ref/session.h"

// x += wo attention(norm(x)) of layer il for the token at pos, whose key and value are stored. x // (n_embd)
void kin_ref_attention(kin_ref_session *s, int il, int pos, float *x);
