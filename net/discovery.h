// Discovery: how a device finds its head on a network where nobody has typed an address (pure/proto/beacon.h has the datagrams).
//
// The head listens on UDP port 7578. A device sends its question on every network it is connected to: to the multicast group
// 239.255.75.78, to the broadcast address (some access points drop multicast), and to ff12::4b49:4e of IPv6. The groups are of
// those that anybody may use: 239.255/16 stays within a site (RFC 2365), ff12::/16 on the link and not assigned for good
// (RFC 4291); 75, 78 and 4b49:4e are letters of "kin". The head answers to the asker alone.
//
// Without the cluster's key one gets no answer, is not believed, and costs a head one HMAC of 112 bytes per datagram, at most
// KIN_DISCOVERY_CHECKS of them in a second. An answer is as long as the question.
//
// Where neither multicast nor broadcast passes (containers, VPN), the device is given the head's address instead.
//
// Owner: the net thread's loop; all functions and the callback are its. After kin_discovery_close the loop must run once more.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/err.h"
#include "pure/proto/beacon.h"

enum {
    KIN_DISCOVERY_PORT = 7578,
    KIN_DISCOVERY_KEY = 32,     // bytes
    KIN_DISCOVERY_CHECKS = 500, // authenticators in a second; what comes beyond is dropped unread
    KIN_DISCOVERY_ANSWERS = 20, // in a second
};

#define KIN_DISCOVERY_GROUP4 "239.255.75.78"
#define KIN_DISCOVERY_GROUP6 "ff12::4b49:4e"

typedef struct kin_discovery kin_discovery;

typedef struct kin_discovery_options {
    uint8_t key[KIN_DISCOVERY_KEY]; // the cluster's; what signs here is derived from it
    uint16_t port;                  // UDP, KIN_DISCOVERY_PORT; the same on both sides
    const char *only;               // numeric address of the one interface to use; NULL: all
} kin_discovery_options;

// What a head says of itself.
typedef struct kin_discovery_self {
    kin_proto_id id;
    const char *name;
    uint16_t port; // TCP, where it listens
    uint32_t features;
} kin_discovery_self;

// `address`: numbers, with the zone where it needs one ("fe80::1%eth0"). Both are valid during the call.
typedef void (*kin_discovery_found)(void *user, const kin_beacon *head, const char *address);

// The head's side: answers from now on. Interfaces that appear later are noticed within seconds.
int kin_discovery_answer(kin_discovery **out, uv_loop_t *loop, const kin_discovery_options *options,
                         const kin_discovery_self *self, kin_err *err);

// The device's side: asks when it is told to (kin_discovery_ask). A head that is reached on several ways is found several times.
int kin_discovery_search(kin_discovery **out, uv_loop_t *loop, const kin_discovery_options *options, kin_discovery_found found,
                         void *user, kin_err *err);

// One question, on all networks. Fails if it could be sent on none.
int kin_discovery_ask(kin_discovery *discovery, kin_err *err);

// NULL is allowed. The callback is not called any more.
void kin_discovery_close(kin_discovery *discovery);

typedef struct kin_discovery_stats {
    uint64_t heard, trusted, answered; // datagrams: all, those with the key, those that were answered
} kin_discovery_stats;

kin_discovery_stats kin_discovery_stats_now(const kin_discovery *discovery);
