// A source: one FETCH link to a process that has parts of a model, from connecting to its end, and what was asked there.
//
// It checks that what comes was asked for, and puts chunks together; whether their bytes are right is the owner's to check. Whom
// to ask for what, and what to do when it ends, is ring/fetch.h's.
//
// Life: kin_source_open, `accepted`, then answers; `closed` once if it ends by itself, or the owner's kin_source_close. After
// either the pointer is dead. kin_source_close may be called inside of all callbacks but `heard`; no callback comes inside of a
// function here.
//
// Owner: who opened it. Thread: the loop's.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/err.h"
#include "pure/proto/message.h"
#include "ring/link.h"

enum { KIN_SOURCE_REQUESTS = 16, KIN_SOURCE_ANSWER_MS = 4000 };

typedef struct kin_source kin_source;

typedef struct kin_source_callbacks {
    void (*accepted)(void *user, const kin_proto_accept *accept);
    void (*hashes)(void *user, const kin_proto_hashes *hashes);
    void (*heard)(void *user, uint32_t n_bytes); // of a chunk that was asked for
    // All of a chunk; bytes // u8 [n], the receiver's to free.
    void (*chunk)(void *user, uint32_t i_chunk, uint8_t *bytes, uint32_t n);
    void (*lacks)(void *user, uint32_t i_chunk); // KIN_PROTO_NO_CHUNK: it has nothing of that model
    void (*closed)(void *user, const char *reason);
} kin_source_callbacks;

// `self` is what it says in OPEN.
int kin_source_open(kin_source **out, uv_loop_t *loop, const char *address, uint16_t port, const kin_link_options *options,
                    const kin_proto_open *self, const kin_source_callbacks *callbacks, void *user, kin_err *err);

// NULL is allowed. reason: for the other side, or NULL.
void kin_source_close(kin_source *source, const char *reason);

// False: not accepted, or the link is about to end. At most KIN_SOURCE_REQUESTS chunks at a time; `n` are the bytes of that one.
bool kin_source_ask_hashes(kin_source *source, const kin_proto_hash *model);
bool kin_source_ask(kin_source *source, const kin_proto_hash *model, uint32_t i_chunk, uint32_t n);

// ---- inspection

bool kin_source_is_accepted(const kin_source *source);

// Not accepted KIN_SOURCE_ANSWER_MS after it was opened: it never will be.
bool kin_source_is_late(const kin_source *source);

// The chunks that are asked for and have not come as a whole.
int kin_source_n_asked(const kin_source *source);
uint32_t kin_source_asked(const kin_source *source, int i);
