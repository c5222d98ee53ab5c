// The reference forward pass: slow, in float32, one token at a time. Faster engines are tested against it.
//
// A model is loaded weights; a session is one sequence: the keys and values of its layers [layer_begin, layer_end). A token is
// embedded to a hidden vector x, or to several (kin_ref_width), which passes through the layers; the last x gives the logits:
//
//   kin_ref_session_embed(session, token, x);
//   kin_ref_session_run(session, 0, n_layer, pos, x);
//   kin_ref_session_output(session, x, logits);
//
// What layers are given of the token itself is remembered by embed, so a session of such layers embeds the token, too.
//
// The layers may be run in several calls, or in several sessions that each hold some of them: the bits are the same. Owner: one
// thread at a time. The model is borrowed until close and not written. All memory is allocated in open.
#pragma once

#include "testkit/ref/session.h"

// Embeds: x // (width) is the token's row of token_embd, once for each stream. -1 if the model has none or the token is not in
// [0, n_vocab).
int kin_ref_session_embed(kin_ref_session *session, int token, float *x);

// Passes x // (width) in place through layers [layer_begin, layer_end) at position pos, and stores their keys and values. pos
// may be at most the number of positions that these layers hold; those from pos on are discarded. Returns -1, with nothing
// changed, if the layers are not the session's, or pos leaves a gap or exceeds the context; nor can states. A layer that shares a
// choice runs in the call of the layer before it.
int kin_ref_session_run(kin_ref_session *session, int layer_begin, int layer_end, int pos, float *x);

// Computes logits // (n_vocab) from x // (width) after the last layer. -1 if the model has no output_norm or no output matrix.
int kin_ref_session_output(kin_ref_session *session, const float *x, float *logits);
