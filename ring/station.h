// A station: a member's place in the network, the head's as a device's. It has the loop's thread, the listener, and the two links
// of the ring (ring/neighbours.h). What the cluster agrees on (who, which epoch) is its owner's.
//
// Links that others open say in OPEN what they are for. Ring links go to the neighbours, and the station answers probes
// (ring/echo.h); all others it hands to the owner.
//
// Owner: a driver (ring/device.h, ring/cluster.h). Thread: the loop's for everything but kin_station_send and kin_station_call,
// which any thread may use between open and close, and open and close themselves.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "pure/proto/id.h"
#include "ring/events.h"
#include "ring/key.h"
#include "ring/listener.h"
#include "ring/neighbours.h"
#include "ring/parcel.h"
#include "ring/post.h"

typedef struct kin_station kin_station;

typedef struct kin_station_options {
    kin_proto_id id;
    const char *name, *version; // what OPEN and ACCEPT say; borrowed until close
    uint32_t features;
    uint64_t run; // of this process (kin_proto_open)
    kin_key key;
    const char *listen; // numeric address, NULL: all
    uint16_t port;      // 0: any
    kin_parcels *pool;  // borrowed until close
    kin_parcel_queue *in;
    kin_events *events; // where sending is recorded; NULL: nowhere
} kin_station_options;

typedef struct kin_station_callbacks { // in the loop's thread
    // Ten times a second.
    void (*tick)(void *user);
    // Somebody's link for control, for parts of the model, or to see how it goes; its OPEN is not answered yet: the owner takes
    // it over (kin_link_accept) and answers, or closes it. NULL: such links are refused.
    void (*control)(void *user, kin_link *link, const kin_proto_open *open);
    void (*fetch)(void *user, kin_link *link, const kin_proto_open *open);
    void (*observe)(void *user, kin_link *link, const kin_proto_open *open);
    // A ring link between two others, to be passed on; as above.
    void (*relay)(void *user, kin_link *link, uint32_t epoch, const kin_proto_open *open);
    kin_neighbours_told hop;
} kin_station_callbacks;

int kin_station_open(kin_station **out, const kin_station_options *options, const kin_station_callbacks *callbacks, void *user,
                     kin_err *err);

// Starts the loop's thread; `begin` is the first thing that runs in it.
int kin_station_start(kin_station *station, kin_post_fn begin, void *arg, kin_err *err);

// Ends the thread: calls that were left run, then `end`, which closes the owner's links and handles; then the station's own are
// closed. NULL is allowed.
void kin_station_close(kin_station *station, kin_post_fn end, void *arg);

// ---- any thread

// Takes a frame to the next member. Without a link the parcel just goes back to the pool: its epoch is over.
void kin_station_send(kin_station *station, kin_parcel *parcel);

// fn(arg) in the loop's thread, in order. Waits while there are too many already. False: the loop is at its end, and fn will not
// be called.
bool kin_station_call(kin_station *station, kin_post_fn fn, void *arg);

// ---- the loop's thread

kin_neighbours *kin_station_neighbours(kin_station *station);

// Answers OPEN; refusing closes the link.
void kin_station_say_accept(kin_station *station, kin_link *link);
void kin_station_refuse(kin_link *link, const char *reason);
// OPEN, to a head.
void kin_station_say_control(kin_station *station, kin_link *link);

uv_loop_t *kin_station_loop(kin_station *station);
kin_tls_ctx *kin_station_tls(kin_station *station);
uint16_t kin_station_port(const kin_station *station);

// Sends one message, header and payload, made by the codec. Messages of up to 64 KiB.
kin_link_sent kin_station_say(kin_link *link, uint32_t epoch, const kin_proto_message *message);
