// The links of status clients (`kin status`) at a head. Each STATUS_WANTED is answered with a REPORT as soon as the devices have
// sent their STATUS, at most half a second later. While there is a client, devices are asked once a second.
//
// At most ten reports a second are made, for any number of clients.
//
// One more client may be in this process, without a link: kin serve's page.
//
// Owner: cluster/head/status.h. Thread: the loop's.
#pragma once

#include <stdbool.h>

#include "net/link.h"

enum { KIN_STATUS_SUBSCRIBERS_MAX = 8 };

typedef struct kin_status_subscribers kin_status_subscribers;

typedef struct kin_status_subscribers_callbacks {
    void (*ask)(void *user);          // asks the devices
    bool (*has_answered)(void *user); // true if all have
    char *(*report)(void *user);      // text, from malloc; NULL: out of memory
} kin_status_subscribers_callbacks;

int kin_status_subscribers_open(kin_status_subscribers **out, const kin_status_subscribers_callbacks *callbacks, void *user,
                                kin_err *err);
void kin_status_subscribers_close(kin_status_subscribers *subscribers, const char *reason); // NULL is allowed for subscribers

// Takes over a link; the caller answers its OPEN. False: there are too many, and the link is still the caller's.
bool kin_status_subscribers_add(kin_status_subscribers *subscribers, kin_link *link);

// Requests a report for this process: `take` gets it within the next ticks, like other clients, and frees it; NULL: out of
// memory. Not called after close. One at a time: calls made before that are ignored.
typedef void (*kin_status_report_fn)(void *user, char *text);
void kin_status_subscribers_ask(kin_status_subscribers *subscribers, kin_status_report_fn receive, void *user);

// Call it ten times a second.
void kin_status_subscribers_tick(kin_status_subscribers *subscribers);
