// Running corrections: what a run measures, against what was predicted for it, corrects the facts for the next plan.
//
// Ratios of measured to predicted time are kept in short rings, and their median counts, so that one slow token changes nothing
// (thesis 4.3.2: 15 values for computing, 7 for the network). Until half a ring is filled there is no correction.
#pragma once

#include "pure/plan/latency.h"

enum { KIN_MEDIAN_MAX = 15, KIN_MEDIAN_COMPUTE = 15, KIN_MEDIAN_DISK = 15, KIN_MEDIAN_HOP = 7 };

typedef struct kin_median {
    int size, n, at; // of the ring, values in it, where the next one goes
    double values[KIN_MEDIAN_MAX];
} kin_median;

void kin_median_init(kin_median *median, int size);
// Values that are not positive and finite are dropped.
void kin_median_add(kin_median *median, double value);
// `otherwise` until half of the ring is filled.
double kin_median_of(const kin_median *median, double otherwise);

// Of every device, measured over predicted.
typedef struct kin_corrections {
    kin_median compute[KIN_FACTS_MAX_DEVICES];
    kin_median disk[KIN_FACTS_MAX_DEVICES];
    kin_median hop[KIN_FACTS_MAX_DEVICES]; // from this device to its successor
} kin_corrections;

void kin_corrections_init(kin_corrections *corrections);

// One token's times of a device, as measured. A time that was not measured is 0.
typedef struct kin_measured {
    double compute_s; // without waiting
    double disk_s;    // in which at least one read was under way
    double hop_s;     // all rounds together
} kin_measured;

// predicted: of the plan that runs, by the uncorrected facts.
void kin_corrections_add(kin_corrections *corrections, int device, const kin_measured *measured,
                         const kin_device_prediction *predicted);

// Divides the facts' rates, and multiplies their times, by the medians. Links: all that leave the device.
void kin_corrections_apply(const kin_corrections *corrections, kin_facts *facts);
