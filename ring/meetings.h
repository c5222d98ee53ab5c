// Meetings: a device that joins measures its links to the head and to all who are there, and only then the roster hears what it
// has (its DEVICE), so that the first plan with it knows the links.
//
// A meeting ends when all its measurements were answered, or after MEETING_NS: then it is planned with what is known.
//
// Owner: ring/cluster.c. Thread: the loop's.
#pragma once

#include "base/clock.h"
#include "pure/proto/message.h"

typedef struct kin_meetings kin_meetings;

// The meeting of the device on that link is over; `device` is what it said, for the call. Comes from kin_meetings_tick only.
typedef void (*kin_meetings_over)(void *user, uint32_t link, const kin_proto_device *device);

int kin_meetings_open(kin_meetings **out, kin_meetings_over over, void *user, kin_err *err);
void kin_meetings_close(kin_meetings *meetings); // NULL is allowed

// A device said what it has, and was asked for so many measurements. False: no place or no memory; it is not kept.
bool kin_meetings_begin(kin_meetings *meetings, uint32_t link, const kin_proto_device *device, int n_asked, kin_time now);

// One of them was answered. False: there is no meeting (any more).
bool kin_meetings_answered(kin_meetings *meetings, uint32_t link);
// It said again what it has. False: there is no meeting.
bool kin_meetings_renew(kin_meetings *meetings, uint32_t link, const kin_proto_device *device);
void kin_meetings_lost(kin_meetings *meetings, uint32_t link);

// At least ten times a second.
void kin_meetings_tick(kin_meetings *meetings, kin_time now);
