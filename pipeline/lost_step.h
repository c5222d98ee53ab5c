// Lost steps: whether a step does not come back although all links of the ring are open and its members answer, and at whom it
// is.
//
// All members get the frames of an epoch in the same order, and each sends every one of them on. So numbers of frames say where
// they are:
//
//     head n_left ─► n_came device n_left ─► n_came device n_left ─► n_came head
//
// A step may take any time: processors are slow, disks stream, links carry little, machines are busy. So it is not a time that
// says that one is lost, but what the members say when nothing has come back for some seconds:
//
//   - A device idles, and has sent on fewer frames than came: it has lost one. Its own answers are the same for KIN_LOST_STEP_MS.
//   - A frame has left a member and has not come to the next one, and no byte is on its way anywhere: the hop has lost it. The
//     answers are the same for KIN_LOST_STEP_HOP_MS, for there may be a machine between the two that passes bytes on.
//   - None of these, and none of them has given a sign: no frame, no byte, no operation of a computing thread, for
//     KIN_LOST_STEP_MOST_MS and ten times as long as it ever took to the next sign in this epoch (pipeline/watchdog.h). The
//     first member that has not sent on what was sent to it is the one; a device that hangs so notices it by itself before that.
//
// Time in which nobody looked is not counted: the head was stopped, or the machine slept. A device that is stopped or sleeps does
// not answer, and its links end. Not found is a member that says that it computes, gives signs, and never ends.
//
// Plain data; zeros are a new one. Owner and thread: who looks, the head's loop.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "pipeline/watchdog.h"

enum {
    KIN_LOST_STEP_MEMBERS = 32, // most, without the head
    KIN_LOST_STEP_ASK_MS = 3000,
    KIN_LOST_STEP_AGAIN_MS = 1000, // between two questions
    KIN_LOST_STEP_MS = 3000,
    KIN_LOST_STEP_HOP_MS = 30000,
    KIN_LOST_STEP_MOST_MS = 600000,
};

// What a member says of an epoch's frames.
typedef struct kin_step_place {
    bool is_known; // it has answered, and about this epoch
    bool idles;    // it is done with all that came
    bool fetches;  // what came may wait for weights that are still to come
    uint32_t n_came, n_left, n_signs;
    uint64_t moving; // bytes that the next member has not acknowledged, and of a frame that has come in part
} kin_step_place;

typedef enum kin_lost_step_kind {
    KIN_LOST_STEP_NONE,
    KIN_LOST_STEP_IN,    // member: it idles
    KIN_LOST_STEP_TO,    // member: the one before it has sent it. As many as there are members: the head
    KIN_LOST_STEP_STAYS, // member: it has not sent it on for too long
} kin_lost_step_kind;

typedef struct kin_lost_step_found {
    kin_lost_step_kind kind;
    int member;
    int seconds; // since the last sign
} kin_lost_step_found;

typedef struct kin_lost_step {
    uint32_t epoch;
    kin_watchdog watchdog;
    unsigned n_signs;
    uint32_t n_left, n_came;                          // the head's
    kin_time looked_at, quiet_since;                  // quiet: nothing has come back
    kin_time asked_at;                                // 0: not since then
    kin_step_place before[KIN_LOST_STEP_MEMBERS + 1]; // the last answers; the last one is the head
    int n_before;                                     // 0: none
    kin_time same_since[KIN_LOST_STEP_MEMBERS + 1];   // since when each says the same
    bool is_late;                                     // it has taken too long, whatever they say
} kin_lost_step;

// To be called several times a second; own: the head's, with what it has sent to the first member (n_left) and got from the last
// one (n_came), both 0 while no text is computed. Of another epoch than before all begins anew. True: the members are to be
// asked.
bool kin_lost_step_look(kin_lost_step *lost, kin_time now, uint32_t epoch, const kin_step_place *own);

// What they answered, in the order of the ring // [n], and the head's.
kin_lost_step_found kin_lost_step_take(kin_lost_step *lost, kin_time now, const kin_step_place *places, int n,
                                       const kin_step_place *own);
