// Download peers: all processes that can serve parts of a model: the head, and devices as they become known. Holds their
// addresses and links (fetch/download.h), and decides when to reconnect after a link broke.
//
// A peer is identified by a number that never changes; 0 is the head. Peers are never forgotten, so one that sent wrong bytes
// stays banned; at most KIN_DOWNLOAD_PEERS_MAX are known.
//
// Owner: fetch/fetch.c. Thread: the loop's. kin_download_peers_close may be called inside all callbacks except `heard` and
// `part`.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/err.h"
#include "fetch/chunk_parts.h"
#include "net/link.h"
#include "pure/proto/message.h"
#include "pure/proto/swarm.h"

enum { KIN_DOWNLOAD_PEERS_MAX = KIN_SWARM_SOURCES };

_Static_assert(KIN_DOWNLOAD_PEERS_MAX <= 64, "a part has a bit for each");

typedef struct kin_download_peers kin_download_peers;

typedef struct kin_download_peers_options {
    kin_link_options link;
    kin_proto_open self;      // sent in OPEN
    kin_proto_id head_id;     // zeros: any process
    const char *head_address; // copied
    uint16_t head_port;
    int n_links; // to devices, at a time
} kin_download_peers_options;

typedef struct kin_download_peers_callbacks {
    void (*opened)(void *user, int peer); // it accepts requests now
    void (*hashes)(void *user, int peer, const kin_proto_hashes *hashes);
    void (*heard)(void *user, int peer, uint32_t n_bytes);
    void (*chunk)(void *user, int peer, const kin_chunk_part *whole); // the receiver frees its bytes
    // The beginning of a chunk whose rest will not come from that peer; the receiver frees its bytes. Not called for a banned
    // peer.
    void (*part)(void *user, const kin_chunk_part *part);
    void (*lacks)(void *user, int peer, uint32_t i_chunk);
    void (*lost)(void *user, int peer, const char *reason); // its link ended, not on request of the owner
} kin_download_peers_callbacks;

int kin_download_peers_open(kin_download_peers **out, uv_loop_t *loop, const kin_download_peers_options *options,
                            const kin_download_peers_callbacks *callbacks, void *user, kin_err *err);
void kin_download_peers_close(kin_download_peers *peers); // NULL is allowed

// Records the head's message that a device has these chunks. Returns its number; -1: not accepted.
int kin_download_peers_know(kin_download_peers *peers, const kin_proto_have *have);
int kin_download_peers_find(const kin_download_peers *peers, const kin_proto_id *id); // -1: not known
int kin_download_peers_n(const kin_download_peers *peers);

// Returns the chunks that the peer has: bit i % 8 of byte i / 8 // [(n_chunks + 7) / 8]. NULL: none, or a model with another
// number of chunks. NULL also for the head, which has everything.
const uint8_t *kin_download_peers_offer(const kin_download_peers *peers, int peer, uint32_t n_chunks);

// Opens links to the head, and to devices that have any of `missing` // bits [(n_chunks + 7) / 8]; NULL: only to the head.
void kin_download_peers_tick(kin_download_peers *peers, const uint8_t *missing, uint32_t n_chunks);

// Calls kin_download_listen for all links.
void kin_download_peers_listen(kin_download_peers *peers);

// Call kin_download_set_rate_limited and kin_download_tick for all links.
void kin_download_peers_set_rate_limited(kin_download_peers *peers, bool is_gentle);
void kin_download_peers_tick_rates(kin_download_peers *peers);

// ---- an open peer

bool kin_download_peers_is_open(const kin_download_peers *peers, int peer);
bool kin_download_peers_ask_hashes(kin_download_peers *peers, int peer, const kin_proto_hash *model);
// Requests the bytes that `part` lacks of its chunk of n bytes. On true the link owns the part's bytes.
bool kin_download_peers_ask(kin_download_peers *peers, int peer, const kin_proto_hash *model, const kin_chunk_part *part,
                            uint32_t n);
int kin_download_peers_n_asked_all(const kin_download_peers *peers);
int kin_download_peers_n_asked(const kin_download_peers *peers, int peer);
uint32_t kin_download_peers_asked(const kin_download_peers *peers, int peer, int i);

// ---- ending links; of the owner's callbacks only `part` is called

void kin_download_peers_drop(kin_download_peers *peers, int peer, const char *reason); // it is tried again after a while
void kin_download_peers_ban(kin_download_peers *peers, int peer, const char *reason);  // it is never tried again
void kin_download_peers_leave(kin_download_peers *peers, int peer);                    // until it becomes known again
void kin_download_peers_rest(kin_download_peers *peers); // closes all; they are reopened when needed

// ---- inspection

int kin_download_peers_n_open(const kin_download_peers *peers);
int kin_download_peers_n_banned(const kin_download_peers *peers);
const char *kin_download_peers_reason(const kin_download_peers *peers,
                                      int peer); // reason for the end of its last link; may be empty
