// A download: one FETCH link to a process that has parts of a model, from connecting to its end, and the requests made on it.
//
// It checks that what arrives was asked for, and assembles chunks. Their hashes are checked by the owner, which also chooses
// the peer for each chunk and acts when a link ends (fetch/fetch.h).
//
// What came of a chunk is not lost with the link: the owner gets it as a part, and may have the rest from another peer.
//
// Life: kin_download_open, `accepted`, then answers; `closed` once if it ends by itself, or the owner's kin_download_close.
// After either the pointer is dead. kin_download_close may be called inside of all callbacks but `heard` and `part`; no callback
// but `part` comes inside of a function here.
//
// Owner: who opened it. Thread: the loop's.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/clock.h"
#include "base/err.h"
#include "fetch/chunk_parts.h"
#include "net/dial.h"
#include "net/link.h"
#include "pure/proto/message.h"

enum { KIN_DOWNLOAD_REQUESTS = 16 };

typedef struct kin_download kin_download;

typedef struct kin_download_callbacks {
    void (*accepted)(void *user);
    void (*hashes)(void *user, const kin_proto_hashes *hashes);
    void (*heard)(void *user, uint32_t n_bytes); // of a chunk that was asked for
    // All of a chunk; its bytes are the receiver's to free.
    void (*chunk)(void *user, const kin_chunk_part *whole);
    // The beginning of a chunk, the rest of which does not come from here: before `lacks`, before `closed`, and inside of
    // kin_download_close. Its bytes are the receiver's to free. NULL: parts are dropped.
    void (*part)(void *user, const kin_chunk_part *part);
    void (*lacks)(void *user, uint32_t i_chunk); // KIN_PROTO_NO_CHUNK: it has nothing of that model
    void (*closed)(void *user, const char *reason);
} kin_download_callbacks;

// options->open.role is KIN_PROTO_FETCH.
int kin_download_open(kin_download **out, uv_loop_t *loop, const kin_dial_options *options,
                      const kin_download_callbacks *callbacks, void *user, kin_err *err);

// NULL is allowed. reason: for the other side, or NULL.
void kin_download_close(kin_download *source, const char *reason);

// False: not accepted, or the link is about to end. At most KIN_DOWNLOAD_REQUESTS chunks at a time; `n` are the bytes of that
// one.
bool kin_download_ask_hashes(kin_download *source, const kin_proto_hash *model);
// For what `part` lacks of its chunk. True: the part's bytes are the download's now.
bool kin_download_ask(kin_download *source, const kin_proto_hash *model, const kin_chunk_part *part, uint32_t n);

// Often, several times a second: counts bytes of a long message that is still arriving (`heard`).
void kin_download_listen(kin_download *source);

// Gently: small slices of a chunk, with a pause after each that leaves most of the link to others. Then call tick often, every
// few milliseconds.
void kin_download_set_gently(kin_download *source, bool is_gentle);
void kin_download_tick(kin_download *source);
kin_time kin_download_next_at(const kin_download *source); // the end of the pause; not gently: now, or in the past

// ---- inspection

bool kin_download_is_accepted(const kin_download *source);

// The chunks that are asked for and have not come as a whole.
int kin_download_n_asked(const kin_download *source);
uint32_t kin_download_asked(const kin_download *source, int i);
