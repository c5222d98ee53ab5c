// Running corrections: what a run measures, against what was predicted for it, corrects the facts for the next plan.
//
// Medians are taken where things are measured (pipeline/step_timing.h): each device reports those of its last tokens. Here there
// are factors, measured over predicted by the uncorrected facts, for each device's CPU, GPU and disk, and for each link.
//
// A device measures its computing as a whole. If CPU and GPU both take part, both factors are multiplied by the same ratio, so
// that they keep their proportion; an engine without work keeps its factor. So when a new plan moves layers from GPU to CPU,
// the CPU counts as fast as it was last measured, or as in its profile, until the first tokens of that plan are measured. A
// device that loses all its layers keeps its factors.
//
// Hops are known only as the sum over the ring: all links between its devices get the same factor. Also those that the plan does
// not use: the same devices in another order wait as long, and an order that looks faster only because it was not tried would
// hide plans with fewer devices. Links of other devices keep theirs; with one factor for all of them two plans could alternate
// for ever, each overwriting what the other's ring has shown. The time by which hops are longer than predicted counts for their
// round trips, not for their bytes: a token's are few, and a batch of 16 rows, expected by a factor for bytes too, took 0.7 of
// the time that was expected for it.
//
// A device may have less memory for weights than it was believed to: the rest of the process has grown, or others need it. Then
// it streams more, and its facts get so much less memory. It is not given more: what it streams is known to a weight block only.
//
// What is measured are single tokens. Their factor counts for reading weights and keys and for operations, not for the arithmetic
// of a batch's rows, of which it says nothing: in a ring that streams, tokens took 1.25 to 1.56 times their prediction, steps of
// 16 rows 1.1 times.
//
// A group is measured at its last device, as a whole: what computing takes beyond the prediction, corrected by what is known of
// processors, counts for its sums. So a ring of the same devices is not expected to be slower for it. Where its members stream,
// sums are not learned: a member that has its weights waits in them for another one's disk. Each member's disk and memory are
// learned of itself.
//
// A processor may be fast after rest and slow under load: by a quota, by turbo, by heat. Measured with many layers it is slow,
// and loses them; measured with few it is fast, and would get them back, again and again. So what was measured of a device when a
// plan took layers from it is held for a while: until then it is not planned with as a faster one. Each time that it loses layers
// again soon after, it is held for longer. What is expected of the plan in force, which people see, has nothing of this.
//
// Factors stay between 0.1 and 10. A profile is wrong by less; more means that something else was measured (a machine that
// slept), and without bounds one such plan could drive a device out of the ring for good.
#pragma once

#include "pure/plan/latency.h"

// Medians of a device's last one-token steps, all rounds together. 0: not known.
typedef struct kin_measured {
    double compute_s;  // without waiting
    double disk_s;     // in which at least one read was under way
    double disk_bytes; // read in that time
    double hop_s;      // of the whole ring and all rounds, for device 0 only
} kin_measured;

typedef struct kin_corrections {
    struct {
        double cpu, gpu, disk; // factors
        double sums;           // of a group that ends with this device; 0: not known
        double missing_bytes;  // of memory
        struct {
            double cpu, gpu, disk;  // as they were with more layers
            double until_s, hold_s; // when they are forgotten, and how long they were held; hold_s 0: never
        } held;
    } devices[KIN_FACTS_MAX_DEVICES];
    double hops[KIN_FACTS_MAX_DEVICES][KIN_FACTS_MAX_DEVICES]; // [from][to]; above 1: of round trips only
} kin_corrections;

void kin_corrections_init(kin_corrections *corrections);

// predicted: of the plan that runs, by the uncorrected facts. What is not known, or was not predicted, changes nothing. Setting
// the same again changes nothing.
void kin_corrections_set(kin_corrections *corrections, int device, const kin_measured *measured, const kin_plan *plan,
                         const kin_prediction *predicted);

// A plan is in force from now_s on that gives the device fewer layers. hold_s: the first time; 4 times as long when what was held
// last was forgotten no longer ago than it was held for, up to 256 times.
void kin_corrections_hold(kin_corrections *corrections, int device, double now_s, double hold_s);

// What plans are made with: each factor as it is, or as it is held where that is slower.
kin_corrections kin_corrections_held(const kin_corrections *corrections, double now_s);

// Divides the facts' rates, and multiplies their times, by the factors; takes away the memory that is missing.
void kin_corrections_apply(const kin_corrections *corrections, kin_facts *facts);
