// A download: one FETCH link to a process that has parts of a model, from connect to close, with the requests made on it.
//
// It checks that incoming data was requested, and assembles chunks. The owner verifies their hashes, chooses the peer for each
// chunk and reacts when a link ends (fetch/fetch.h).
//
// A partially received chunk is not lost with the link: the owner gets it as a part, and may fetch the rest from another peer.
//
// Life: kin_download_open, `accepted`, then answers; `closed` once if it ends by itself, or the owner's kin_download_close. After
// either the pointer is dead. kin_download_close may be called inside all callbacks except `heard` and `part`. Of the callbacks
// only `part` is called inside functions here.
//
// Owner: the caller that opened it. Thread: the loop's.
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
    void (*heard)(void *user, uint32_t n_bytes); // bytes of a requested chunk arrived
    // A whole chunk; the receiver frees its bytes.
    void (*chunk)(void *user, const kin_chunk_part *whole);
    // The beginning of a chunk whose rest will not come from this peer: called before `lacks`, before `closed`, and inside
    // kin_download_close. The receiver frees its bytes. NULL: parts are dropped.
    void (*part)(void *user, const kin_chunk_part *part);
    void (*lacks)(void *user, uint32_t i_chunk); // KIN_PROTO_NO_CHUNK: the peer has nothing of that model
    void (*closed)(void *user, const char *reason);
} kin_download_callbacks;

// options->open.role must be KIN_PROTO_FETCH.
int kin_download_open(kin_download **out, uv_loop_t *loop, const kin_dial_options *options,
                      const kin_download_callbacks *callbacks, void *user, kin_err *err);

// reason: sent to the peer; may be NULL. NULL is allowed as source.
void kin_download_close(kin_download *source, const char *reason);

// Request the hashes, or the rest of a chunk. Return false if the link is not accepted or about to end. At most
// KIN_DOWNLOAD_REQUESTS chunks at a time; `n` is the size of the chunk.
bool kin_download_ask_hashes(kin_download *source, const kin_proto_hash *model);
// Requests the bytes that `part` lacks. On true the download owns the part's bytes.
bool kin_download_ask(kin_download *source, const kin_proto_hash *model, const kin_chunk_part *part, uint32_t n);

// Call several times per second: reports received bytes of a long message that is still arriving (`heard`).
void kin_download_listen(kin_download *source);

// Rate-limited mode: requests small slices of a chunk, with a pause after each that leaves most of the link to others. It needs a
// tick every few milliseconds.
void kin_download_set_rate_limited(kin_download *source, bool is_gentle);
void kin_download_tick(kin_download *source);
kin_time kin_download_next_at(const kin_download *source); // end of the pause; not rate-limited: now, or in the past

// ---- inspection

bool kin_download_is_accepted(const kin_download *source);

// Requested chunks that have not arrived completely.
int kin_download_n_asked(const kin_download *source);
uint32_t kin_download_asked(const kin_download *source, int i);
