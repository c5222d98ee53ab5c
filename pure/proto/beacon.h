// Beacons: two datagrams by which a device finds its head on a network without configuration.
//
// A device sends SEARCH with a fresh nonce to all machines on the local network. A head with the same key answers with ANNOUNCE,
// to that device only, with the nonce and the port where it listens; so does a device that forwards links to the head. Both
// datagrams end with an authenticator over all preceding bytes, made with the cluster's key: a head answers only devices of its
// cluster, and a device accepts only an answer to its own search. An eavesdropper sees the head's name, identity and port,
// nothing else.
//
//     byte  0  u32  magic "KINB"
//           4  u8   version of this layout, 1
//           5  u8   kind: 1 SEARCH, 2 ANNOUNCE
//           6  u16  port where the head listens     SEARCH: 0
//           8  16   nonce of the searching device
//          24  16   id of the head                  SEARCH: zeros
//          40  64   its name, UTF-8 without control characters, padded with zeros (at most 63 bytes)     SEARCH: zeros
//         104  u32  features of the sender
//         108  u32  0
//         112  16   authenticator of bytes 0 to 111
//
// Both have the same length, so a head cannot be abused to turn a small datagram into a large one. The caller supplies the
// authenticator: this layer has no cryptography. Pure functions, plain data, any thread.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "pure/proto/message.h"

enum {
    KIN_BEACON_BYTES = 128,
    KIN_BEACON_TAG = 16,
    KIN_BEACON_SIGNED = KIN_BEACON_BYTES - KIN_BEACON_TAG,
    KIN_BEACON_NONCE = 16,
    KIN_BEACON_NAME = 64, // including the NUL
    KIN_BEACON_VERSION = 1,
};

// Features of an ANNOUNCE.
enum {
    KIN_BEACON_IS_GATEWAY = 1, // the answer comes from a device that forwards links to the head (net/gateway.h)
};

typedef enum kin_beacon_kind {
    KIN_BEACON_SEARCH = 1,
    KIN_BEACON_ANNOUNCE = 2,
} kin_beacon_kind;

typedef struct kin_beacon {
    kin_beacon_kind kind;
    uint16_t port; // of the head; a SEARCH does not identify its sender: port, id and name are empty
    uint8_t nonce[KIN_BEACON_NONCE];
    kin_proto_id id;
    char name[KIN_BEACON_NAME];
    uint32_t features;
} kin_beacon;

// Computes the authenticator of n bytes. Returns KIN_FAIL if it cannot be computed.
typedef int (*kin_beacon_sign)(void *user, const uint8_t *bytes, size_t n, uint8_t tag[KIN_BEACON_TAG]);

// Fails only if `sign` fails.
int kin_beacon_encode(uint8_t to[KIN_BEACON_BYTES], const kin_beacon *beacon, kin_beacon_sign sign, void *user, kin_err *err);

// Checks everything, the authenticator before the fields. The sentence is for a debug log: any host on the network can cause it.
int kin_beacon_decode(const uint8_t *bytes, size_t n, kin_beacon *beacon, kin_beacon_sign sign, void *user, kin_err *err);

// True if the beacon answers the search with this nonce.
bool kin_beacon_answers(const kin_beacon *beacon, const uint8_t nonce[KIN_BEACON_NONCE]);
