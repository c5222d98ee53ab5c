// An audience: observers' links (`kin status`), as a head has them. Each STATUS_WANTED is answered with a REPORT, as soon as the
// devices have been asked how they are and have answered, at most half a second later. While anybody is here they are asked once
// a second.
//
// Many questions cost no more than a report ten times a second.
//
// Owner: ring/cluster.c. Thread: the loop's.
#pragma once

#include <stdbool.h>

#include "ring/link.h"

enum { KIN_AUDIENCE_MAX = 8 };

typedef struct kin_audience kin_audience;

typedef struct kin_audience_callbacks {
    void (*ask)(void *user);          // the devices
    bool (*has_answered)(void *user); // all of them
    char *(*report)(void *user);      // text, from malloc; NULL: out of memory
} kin_audience_callbacks;

int kin_audience_open(kin_audience **out, const kin_audience_callbacks *callbacks, void *user, kin_err *err);
void kin_audience_close(kin_audience *audience, const char *reason); // NULL is allowed as audience

// Takes a link over; its OPEN is the caller's to answer. False: there are too many, and it was not taken.
bool kin_audience_add(kin_audience *audience, kin_link *link);

// To be called ten times a second.
void kin_audience_tick(kin_audience *audience);
