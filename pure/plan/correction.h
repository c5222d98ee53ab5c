// Running corrections: the ratio of measured to predicted times corrects the facts for the next plan.
//
// Medians are taken where the times are measured (pipeline/step_timing.h): each device reports those of its last tokens. This
// module keeps factors, measured over predicted with uncorrected facts, for each device's CPU, GPU and disk, and for each link.
//
// A device measures its computing as a whole. If both CPU and GPU take part, both factors are multiplied by the same ratio, so
// their proportion stays the same; an engine without work keeps its factor. So when a new plan moves layers from GPU to CPU, the
// CPU counts as fast as when it was last measured, or as in its profile, until the first tokens of that plan are measured. A
// device that loses all its layers keeps its factors.
//
// Hops are known only as their sum over the ring, so all links between the ring's devices get the same factor, including links
// that the plan does not use: the same devices in another order wait as long, and an order that looks faster only because it was
// never tried would hide plans with fewer devices. Links of other devices keep their factors; if all links shared one factor, two
// plans could alternate for ever, each overwriting what the other's ring has shown. Excess time of hops is attributed to round
// trips, not to bytes: one token has few bytes, and with a factor on bytes too, a batch of 16 rows took 0.7 of the time predicted
// for it.
//
// A device may have less memory for weights than was assumed, because the rest of the process has grown or other programs need
// it. Then it streams more, and its facts get that much less memory. Its memory is never corrected upwards: the streamed amount
// is known to within a weight block only.
//
// Single tokens are measured. Their factor applies to reading weights and keys and to operations, not to the arithmetic of a
// batch's rows, which they do not measure: in a ring that streams, tokens took 1.25 to 1.56 times their prediction, steps of 16
// rows 1.1 times.
//
// A group is measured at its last device, as a whole: if computing takes longer than predicted with the processors' known
// corrections, the excess is attributed to its sums, so a ring of the same devices is not expected to be slower. If members
// stream, sums are not learned, because a member that has its weights waits in a sum for another member's disk. Disk and memory
// are learned for each member separately.
//
// A processor may be fast after a rest and slow under load, because of a quota, turbo or heat. With many layers it measures slow
// and loses them; with few it measures fast and would get them back, again and again. So when a plan takes layers from a device,
// its factors from before are held for a while, during which it is not planned with as faster than that. If it loses layers again
// soon afterwards, they are held for longer each time. The prediction for the plan in force, which people see, does not use held
// factors.
//
// Factors stay between 0.1 and 10. Errors of a profile are smaller than that; a larger factor means that something else was
// measured (a machine that slept), and without bounds one such plan could drive a device out of the ring for good.
#pragma once

#include "pure/plan/latency.h"

// Medians of a device's last one-token steps, over all rounds together. 0: not known.
typedef struct kin_measured {
    double compute_s;  // excluding waits
    double disk_s;     // time during which at least one read was in flight
    double disk_bytes; // read in that time
    double hop_s;      // for the whole ring and all rounds; for device 0 only
} kin_measured;

typedef struct kin_corrections {
    struct {
        double cpu, gpu, disk; // factors
        double sums;           // of a group that ends with this device; 0: not known
        double missing_bytes;  // missing memory
        struct {
            double cpu, gpu, disk;  // the factors when it had more layers
            double until_s, hold_s; // when they expire, and how long they were held; hold_s 0: never held
        } held;
    } devices[KIN_FACTS_MAX_DEVICES];
    double hops[KIN_FACTS_MAX_DEVICES][KIN_FACTS_MAX_DEVICES]; // [from][to]; above 1: applies to round trips only
} kin_corrections;

void kin_corrections_init(kin_corrections *corrections);

// predicted: for the running plan, with uncorrected facts. Values that are not known or were not predicted change nothing.
// Setting the same measurements again changes nothing.
void kin_corrections_set(kin_corrections *corrections, int device, const kin_measured *measured, const kin_plan *plan,
                         const kin_prediction *predicted);

// From now_s on, a plan is in force that gives the device fewer layers. hold_s: the first holding time. It grows by a factor of
// 4, up to 256 times, if the last hold expired no longer ago than it lasted.
void kin_corrections_hold(kin_corrections *corrections, int device, double now_s, double hold_s);

// Returns the corrections for making plans: each factor as it is, or the held one if that is slower.
kin_corrections kin_corrections_held(const kin_corrections *corrections, double now_s);

// Divides the facts' rates by the factors, multiplies their times by them, and subtracts the missing memory.
void kin_corrections_apply(const kin_corrections *corrections, kin_facts *facts);
