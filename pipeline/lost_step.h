// Lost steps: detects that a step does not come back although all links of the ring are open and its members answer, and finds
// the member that has it.
//
// All members get the frames of an epoch in the same order, and each sends every one of them on. So the numbers of frames show
// where they are:
//
//     head n_left ─► n_came device n_left ─► n_came device n_left ─► n_came head
//
// A step may take any time: processors are slow, disks stream, links have little bandwidth, machines are busy. So no fixed time
// decides that one is lost, but the answers of the members after nothing has come back for some seconds:
//
//   - A device idles, and has sent fewer frames than it received: it has lost one. Its answers are the same for KIN_LOST_STEP_MS.
//   - A frame has left a member and has not come to the next one, and no byte is in flight anywhere: the hop has lost it. The
//     answers are the same for KIN_LOST_STEP_HOP_MS, since a machine between the two may be forwarding bytes.
//   - Neither, and no member has given a sign (no frame, no byte, no operation of a computing thread) for
//     KIN_LOST_STEP_MOST_MS and ten times the longest silence of this epoch so far (pipeline/watchdog.h). Then the first member
//     that has not sent on what it was sent has it; a device that hangs like this detects it by itself before that.
//
// Time in which this was not called does not count: the head was stopped, or the machine slept. A device that is stopped or
// sleeps does not answer, and its links end. A member that reports computing, gives signs, and never ends is not detected.
//
// Plain data; zeros are the initial state. Owner and thread: the head's loop.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "pipeline/watchdog.h"

enum {
    KIN_LOST_STEP_MEMBERS = 32, // limit, without the head
    KIN_LOST_STEP_ASK_MS = 3000,
    KIN_LOST_STEP_AGAIN_MS = 1000, // interval between two questions
    KIN_LOST_STEP_MS = 3000,
    KIN_LOST_STEP_HOP_MS = 30000,
    KIN_LOST_STEP_MOST_MS = 600000,
};

// A member's report on an epoch's frames.
typedef struct kin_step_place {
    bool is_known; // the member has answered, about this epoch
    bool idles;    // it has finished everything it received
    bool fetches;  // frames it received may wait for weights that are still being fetched
    uint32_t n_came, n_left, n_signs;
    uint64_t moving; // bytes in flight: not acknowledged by the next member, or of an incomplete incoming frame
} kin_step_place;

typedef enum kin_lost_step_kind {
    KIN_LOST_STEP_NONE,
    KIN_LOST_STEP_IN,    // member: it idles, but has not sent all frames on
    KIN_LOST_STEP_TO,    // member: the one before it has sent the frame. Equal to the number of members: the head
    KIN_LOST_STEP_STAYS, // member: it has kept the frame for too long
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
    uint32_t n_left, n_came;                          // of the head
    kin_time checked_at, quiet_since;                 // quiet_since: when the last frame came back, or the silence was reset
    kin_time asked_at;                                // 0: not asked since quiet_since
    kin_step_place before[KIN_LOST_STEP_MEMBERS + 1]; // the last answers, by member; the head's after them
    int n_before;                                     // number of answers; 0: none
    kin_time same_since[KIN_LOST_STEP_MEMBERS + 1];   // when each answer last changed
    bool is_late;                                     // the watchdog's limit has passed, whatever the members answer
} kin_lost_step;

// Call it several times a second. own: the head's counts, of frames sent to the first member (n_left) and received from the last
// one (n_came), both 0 while nothing is computed. A new epoch resets the state. True: ask the members now.
bool kin_lost_step_is_due(kin_lost_step *lost, kin_time now, uint32_t epoch, const kin_step_place *own);

// Evaluates the members' answers, in the order of the ring // [n], and the head's own counts.
kin_lost_step_found kin_lost_step_compare(kin_lost_step *lost, kin_time now, const kin_step_place *places, int n,
                                          const kin_step_place *own);
