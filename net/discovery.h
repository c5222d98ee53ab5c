// Discovery: a device finds its head on the local network without a configured address (pure/proto/beacon.h has the datagrams).
//
// The head listens on UDP port 7578. A device sends its question on every network that it is connected to: to the multicast group
// 239.255.75.78, to the broadcast address (some access points drop multicast), and to the IPv6 group ff12::4b49:4e. Anyone may
// use these groups: 239.255/16 stays within a site (RFC 2365), ff12::/16 stays on the link and is not permanently assigned (RFC
// 4291); 75, 78 and 4b49:4e encode letters of "kin". The head answers only the sender.
//
// A process without the cluster's key gets no answer and its answers are ignored. It costs a head one HMAC of 112 bytes per
// datagram, at most KIN_DISCOVERY_CHECKS of them per second. An answer is as long as the question, so it cannot amplify traffic.
//
// Where neither multicast nor broadcast passes (containers, VPN), the device must be given the head's address.
//
// Owner: the thread of the loop, for all functions and the callback. After kin_discovery_close the loop must run once more.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/err.h"
#include "pure/proto/beacon.h"

enum {
    KIN_DISCOVERY_PORT = 7578,
    KIN_DISCOVERY_KEY = 32,     // bytes
    KIN_DISCOVERY_CHECKS = 500, // authenticators verified per second; further datagrams are dropped unread
    KIN_DISCOVERY_ANSWERS = 20, // per second
};

#define KIN_DISCOVERY_GROUP4 "239.255.75.78"
#define KIN_DISCOVERY_GROUP6 "ff12::4b49:4e"

typedef struct kin_discovery kin_discovery;

typedef struct kin_discovery_options {
    uint8_t key[KIN_DISCOVERY_KEY]; // the cluster's key; the signing key is derived from it
    uint16_t port;                  // UDP, KIN_DISCOVERY_PORT; the same on both sides
    const char *only;               // numeric address of the one interface to use; NULL: all
} kin_discovery_options;

// The head's description of itself.
typedef struct kin_discovery_self {
    kin_proto_id id;
    const char *name;
    uint16_t port; // TCP port it listens on
    uint32_t features;
} kin_discovery_self;

// `address`: numeric, with a zone if needed ("fe80::1%eth0"). Both are valid during the call.
typedef void (*kin_discovery_found)(void *user, const kin_beacon *head, const char *address);

// For the head: answers questions from now on. New interfaces are noticed within seconds.
int kin_discovery_answer(kin_discovery **out, uv_loop_t *loop, const kin_discovery_options *options,
                         const kin_discovery_self *self, kin_err *err);

// For a device: sends a question on each kin_discovery_ask. A head that is reached over several paths is found several times.
int kin_discovery_search(kin_discovery **out, uv_loop_t *loop, const kin_discovery_options *options, kin_discovery_found found,
                         void *user, kin_err *err);

// Sends one question on all networks. Fails if none of them could be used.
int kin_discovery_ask(kin_discovery *discovery, kin_err *err);

// NULL is allowed. The callback is not called any more.
void kin_discovery_close(kin_discovery *discovery);

typedef struct kin_discovery_stats {
    uint64_t heard, trusted, answered; // datagrams: all, authenticated ones, answered ones
} kin_discovery_stats;

kin_discovery_stats kin_discovery_stats_now(const kin_discovery *discovery);
