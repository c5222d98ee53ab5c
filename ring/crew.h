// A crew: the devices' control links, as a head has them. Which device is behind a link, and what is to become of it, is the
// roster's to know (pure/proto/roster.h); here a link is a number.
//
// It passes messages on, knows where each device is reached, which parts of the model it has to give, and what it last said of
// itself.
//
// Owner: ring/cluster.c. Thread: the loop's.
#pragma once

#include "base/clock.h"
#include "pure/proto/message.h"
#include "pure/proto/roster.h"
#include "ring/link.h"

enum { KIN_CREW_MAX = KIN_ROSTER_DEVICES + 8 }; // with those that are about to be refused

typedef struct kin_crew kin_crew;

typedef struct kin_crew_callbacks { // a link may be dropped inside
    // What the crew does not keep for itself.
    void (*message)(void *user, uint32_t number, uint32_t epoch, kin_proto_message *message);
    // The link has ended, and is gone.
    void (*lost)(void *user, uint32_t number, const char *reason);
} kin_crew_callbacks;

int kin_crew_open(kin_crew **out, const kin_crew_callbacks *callbacks, void *user, kin_err *err);
void kin_crew_close(kin_crew *crew, const char *reason); // NULL is allowed as crew

// Takes a link over. Its number; 0: there are too many, and it was closed.
uint32_t kin_crew_add(kin_crew *crew, kin_link *link);

// NULL: that one is gone.
kin_link *kin_crew_link(const kin_crew *crew, uint32_t number);

void kin_crew_drop(kin_crew *crew, uint32_t number, const char *reason);

// Where others reach the device: where it says, else where the head sees it. False: it is gone.
bool kin_crew_endpoint(const kin_crew *crew, uint32_t number, kin_proto_endpoint *out);

// A message that must arrive. One that finds no more room on a link ends it, within a tick: that device does not read what it is
// told. False: it was not taken.
bool kin_crew_say(kin_crew *crew, uint32_t number, uint32_t epoch, const kin_proto_message *message);
// Ten times a second. Calls `lost`.
void kin_crew_tick(kin_crew *crew);

// What one device has may be fetched from it by the others: tells them, and remembers it.
void kin_crew_relay(kin_crew *crew, uint32_t number, const kin_proto_have *have);
// Tells one what was relayed of the others. They are told, too, when one of these is gone.
void kin_crew_tell(kin_crew *crew, uint32_t number);

// ---- how they are

// Asks all for their STATUS.
void kin_crew_ask(kin_crew *crew);
// Whether all have answered that question; an answer to an earlier one is none to it.
bool kin_crew_has_answered(const kin_crew *crew);
// What is not answered by now is not waited for.
void kin_crew_ask_no_more(kin_crew *crew);

// The last two STATUS; `has` says which are there. ready: of the last plan that it was ready for, or zeros.
typedef struct kin_crew_sample {
    bool has_now, has_before;
    bool is_fresh; // `now` came since the last kin_crew_ask
    kin_proto_status now, before;
    kin_proto_ready ready;
    uint64_t rtt_ns; // of this link; 0: not known
} kin_crew_sample;

kin_crew_sample kin_crew_sample_of(const kin_crew *crew, uint32_t number);
