// The feed-forward block of the reference engine, dense or with experts.
#pragma once

#include "testkit/ref/session.h"

// x += feed-forward of norm(x). With experts: a weighted sum of the n_expert_used that are chosen, and the shared one.
// x // (n_embd)
void kin_ref_feed_forward(kin_ref_session *s, int il, float *x);
