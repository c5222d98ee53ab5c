// The links of status clients (`kin status`) at a head. Each STATUS_WANTED is answered with a REPORT as soon as the devices
// have sent their STATUS, at most half a second later. While there is a client, devices are asked once a second.
//
// At most ten reports a second are made, however many clients ask.
//
// One more client may be in this process, without a link: kin serve's page.
//
// Owner: cluster/cluster.c. Thread: the loop's.
#pragma once

#include <stdbool.h>

#include "net/link.h"

enum { KIN_STATUS_SUBSCRIBERS_MAX = 8 };

typedef struct kin_status_subscribers kin_status_subscribers;

typedef struct kin_status_subscribers_callbacks {
    void (*ask)(void *user);          // the devices
    bool (*has_answered)(void *user); // all of them
    char *(*report)(void *user);      // text, from malloc; NULL: out of memory
} kin_status_subscribers_callbacks;

int kin_status_subscribers_open(kin_status_subscribers **out, const kin_status_subscribers_callbacks *callbacks, void *user,
                                kin_err *err);
void kin_status_subscribers_close(kin_status_subscribers *subscribers, const char *reason); // NULL is allowed as subscribers

// Takes a link over; its OPEN is the caller's to answer. False: there are too many, and it was not taken.
bool kin_status_subscribers_add(kin_status_subscribers *subscribers, kin_link *link);

// The report for this process: `take` gets it as the others do theirs, by the next ticks, and frees it; NULL: out of memory. It
// is not called after close. One at a time: until then another call does nothing.
typedef void (*kin_status_take_fn)(void *user, char *text);
void kin_status_subscribers_ask(kin_status_subscribers *subscribers, kin_status_take_fn take, void *user);

// To be called ten times a second.
void kin_status_subscribers_tick(kin_status_subscribers *subscribers);
