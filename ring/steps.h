// Steps as frames: between what the head and the workers compute with and what travels (pure/proto/message.h).
//
// A received step is checked here against the numbers of the ring, which the codec cannot know.
//
// Plain functions, any thread.
#pragma once

#include "engine/kv.h"
#include "pure/plan/prompt.h"
#include "pure/proto/message.h"
#include "ring/parcel.h"
#include "ring/port.h"

// Most steps on their way in a ring at once: of a prompt's chunks, two for each of several members. Every member has room for
// so many.
enum { KIN_STEPS_ON_THEIR_WAY = KIN_PROMPT_CHUNKS_AT_ONCE };

// What all steps of an epoch have in common.
typedef struct kin_steps {
    int n_embd, n_batch, n_seq, n_rounds;
    kin_activation_type type;
} kin_steps;

// A frame STEP with rows x // f32 [leg->n_rows, n_embd]. The batch is written with round 0 only. NULL: no parcel left.
kin_parcel *kin_steps_pack(const kin_steps *steps, kin_parcels *pool, uint32_t epoch, const kin_leg *leg, const kin_batch *batch,
                           const float *x);

// Its payload, checked. The message's pointers are into the payload.
int kin_steps_check(const kin_steps *steps, const kin_parcel *parcel, kin_proto_step *message, kin_err *err);

// The batch of a checked message that carries positions; the arrays // i32 [n_batch] each are the caller's.
kin_batch kin_steps_batch(const kin_proto_step *message, int32_t *pos, int32_t *seq, int32_t *out);

// Whether it is a STEP, and which one: for what must not know more. Of a peer's parcel the numbers are not checked.
bool kin_steps_peek(const kin_parcel *parcel, uint64_t *step, int *round);
// Its tokens; 0: it is no STEP.
uint32_t kin_steps_peek_tokens(const kin_parcel *parcel);

kin_parcel *kin_steps_pack_forget(kin_parcels *pool, uint32_t epoch, int32_t seq, int32_t begin, int32_t end);
