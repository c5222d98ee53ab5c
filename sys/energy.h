// Measures the energy that a piece of work takes on this machine: by the processors' counters (RAPL; Linux, Intel and AMD), or by
// a model of power if this process cannot read any counter.
//
// The counters are those of whole processors, with their memory where it has a counter, so work beside kin is in them. Often only
// root may read them. The model counts this process alone:
//
//     joules = 4 W · time + 15 W · seconds of busy processors + 2 W · seconds of reading, at 250 MB/s
//
// which is a small computer of a home. It compares ways of working, and is no measurement.
//
// Stateless functions.
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { KIN_ENERGY_MAX_ZONES = 32 };

#define KIN_ENERGY_ZONES "/sys/class/powercap"

// A moment. Plain data.
typedef struct kin_energy {
    int n_zones;                                                             // 0: no counter can be read
    uint64_t zones_uj[KIN_ENERGY_MAX_ZONES], wraps_uj[KIN_ENERGY_MAX_ZONES]; // microjoules; the value after which it begins anew
    double wall_s, busy_s;                                                   // time; that of all processors that this process had
    uint64_t read_bytes;                                                     // from disks
} kin_energy;

// folder: KIN_ENERGY_ZONES, or another one with the same files.
void kin_energy_read(kin_energy *now, const char *folder);

// Returns joules from a to b, and in *is_measured whether they are those of counters.
double kin_energy_between(const kin_energy *a, const kin_energy *b, bool *is_measured);
