// Steps as frames: converts between batches with hidden states and STEP messages (pure/proto/message.h).
//
// A received step is checked here against the parameters of the ring, which the codec does not know.
//
// Plain functions, any thread.
#pragma once

#include "engine/kv.h"
#include "net/message_buffer.h"
#include "pipeline/ring_transport.h"
#include "pure/plan/prompt.h"
#include "pure/proto/message.h"

// Most steps in flight in a ring at once: chunks of a prompt, two for each of several members. Every member has room for this
// many.
enum { KIN_STEPS_IN_FLIGHT = KIN_PROMPT_CHUNKS_AT_ONCE };

// Buffers of a member for the frames of an epoch: received and sent steps, and requests for pages. More are never in flight.
enum { KIN_STEPS_BUFFERS = 2 * KIN_STEPS_IN_FLIGHT + 16 };

// Parameters that all steps of an epoch share.
typedef struct kin_steps {
    int n_embd;  // numbers of a token between two layers, at most (kin_border_most)
    int n_least; // of a model whose rows differ in width, those of the narrowest; 0: all rows have n_embd
    int n_batch, n_seq, n_rounds;
    kin_activation_type type;
    bool ends_tokens; // the members after this one do not need the tokens' numbers, and are not sent them
} kin_steps;

// Makes a STEP frame with rows x // f32 [hop->n_rows, hop->n_embd]. The batch is included in round 0 only. NULL: no buffer left.
kin_message_buffer *kin_steps_pack(const kin_steps *steps, kin_message_pool *pool, uint32_t epoch, const kin_hop *hop,
                                   const kin_batch *batch, const float *x);

// Makes a PAGES frame of the batch's request.
kin_message_buffer *kin_steps_pack_pages(kin_message_pool *pool, uint32_t epoch, const kin_hop *hop, const kin_batch *batch);

// Decodes and checks a received PAGES frame; the batch points to the caller's request and ops // [KIN_PROTO_MAX_OPS].
int kin_steps_unpack_pages(const kin_steps *steps, const kin_message_buffer *buffer, kin_proto_pages *message,
                           kin_page_request *request, kin_kv_op *ops, kin_batch *batch, kin_err *err);

// Decodes and checks a STEP's payload. The message's pointers are into the payload.
int kin_steps_check(const kin_steps *steps, const kin_message_buffer *buffer, kin_proto_step *message, kin_err *err);

// Consecutive numbers of an epoch, shared by steps in their first round and requests for pages. Zeros: none has come yet.
typedef struct kin_step_order {
    bool has_any;
    uint32_t epoch;
    uint64_t next;
} kin_step_order;

int kin_step_order_accept(kin_step_order *order, uint32_t epoch, uint64_t number, kin_err *err);

// True if the frame is a STEP that forgets tokens of this batch (kin_batch_loses). False for malformed input.
bool kin_steps_forgets(const kin_message_buffer *buffer, const kin_batch *batch);

// Returns the batch of a checked message that carries positions, in the caller's arrays // i32 [n_batch] each, and ops
// [KIN_PROTO_MAX_OPS].
kin_batch kin_steps_batch(const kin_proto_step *message, int32_t *pos, int32_t *seq, int32_t *out, int32_t *tokens,
                          kin_kv_op *ops);

// True if the frame is a STEP; returns its number and round without decoding the rest. A peer's numbers are not checked.
bool kin_steps_peek(const kin_message_buffer *buffer, uint64_t *step, int *round);
// Returns the number of its tokens; 0: not a STEP.
uint32_t kin_steps_peek_tokens(const kin_message_buffer *buffer);
