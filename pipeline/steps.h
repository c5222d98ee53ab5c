// Steps as frames: conversion between batches with hidden states and STEP messages (pure/proto/message.h).
//
// A received step is checked here against the numbers of the ring, which the codec cannot know.
//
// Plain functions, any thread.
#pragma once

#include "engine/kv.h"
#include "net/message_buffer.h"
#include "pipeline/ring_transport.h"
#include "pure/plan/prompt.h"
#include "pure/proto/message.h"

// Most steps in flight in a ring at once: of a prompt's chunks, two for each of several members. Every member has room for
// so many.
enum { KIN_STEPS_IN_FLIGHT = KIN_PROMPT_CHUNKS_AT_ONCE };

// Frames of an epoch that a member has room for: steps that come and go, and requests for pages. More are not in flight.
enum { KIN_STEPS_BUFFERS = 2 * KIN_STEPS_IN_FLIGHT + 16 };

// What all steps of an epoch have in common.
typedef struct kin_steps {
    int n_embd, n_batch, n_seq, n_rounds;
    kin_activation_type type;
} kin_steps;

// A frame STEP with rows x // f32 [hop->n_rows, n_embd]. The batch is written with round 0 only. NULL: no buffer left.
kin_message_buffer *kin_steps_pack(const kin_steps *steps, kin_message_pool *pool, uint32_t epoch, const kin_hop *hop,
                                   const kin_batch *batch, const float *x);

// A frame PAGES of the batch's request.
kin_message_buffer *kin_steps_pack_pages(kin_message_pool *pool, uint32_t epoch, const kin_hop *hop, const kin_batch *batch);

// A received one, checked; the batch's request and its ops // [KIN_PROTO_MAX_OPS] are the caller's.
int kin_steps_unpack_pages(const kin_steps *steps, const kin_message_buffer *buffer, kin_proto_pages *message,
                           kin_page_request *request, kin_kv_op *ops, kin_batch *batch, kin_err *err);

// Its payload, checked. The message's pointers are into the payload.
int kin_steps_check(const kin_steps *steps, const kin_message_buffer *buffer, kin_proto_step *message, kin_err *err);

// The numbers of what comes in an epoch follow each other, of steps in their first round and of requests for pages together.
// Zeros: none has come yet.
typedef struct kin_step_order {
    bool has_any;
    uint32_t epoch;
    uint64_t next;
} kin_step_order;

int kin_step_order_take(kin_step_order *order, uint32_t epoch, uint64_t number, kin_err *err);

// Whether it is a STEP that forgets tokens of this batch (kin_batch_loses). Of what is malformed nothing is said.
bool kin_steps_forgets(const kin_message_buffer *buffer, const kin_batch *batch);

// The batch of a checked message that carries positions; the arrays // i32 [n_batch] each, and ops [KIN_PROTO_MAX_OPS], are the
// caller's.
kin_batch kin_steps_batch(const kin_proto_step *message, int32_t *pos, int32_t *seq, int32_t *out, kin_kv_op *ops);

// Whether it is a STEP, and which one: for what must not know more. Of a peer's buffer the numbers are not checked.
bool kin_steps_peek(const kin_message_buffer *buffer, uint64_t *step, int *round);
// Its tokens; 0: it is no STEP.
uint32_t kin_steps_peek_tokens(const kin_message_buffer *buffer);
