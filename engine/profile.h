// The profile of this machine: the speed of its CPU, GPU, memory and disk at what decoding and prompts require.
//
// Measured in a few seconds with the engine's own kernels, on the opened devices (docs/PROFILE.md says what and how). It does not
// depend on a model. Free memory, of RAM and of the GPU, changes constantly: it is read rather than measured, and
// kin_profile_refresh reads it again.
//
// Owner of everything: the caller. Thread: the one that computes on the devices (measuring runs graphs on them).
#pragma once

#include <stdatomic.h>

#include "engine/device.h"
#include "engine/weights.h"
#include "pure/plan/facts.h"

typedef struct kin_profile_options {
    const char *name;      // of the device, for display
    const char *disk_dir;  // measures the disk that holds this folder; NULL: none
    uint64_t memory;       // the user's cap on memory; 0: what the machine can spare
    atomic_bool *stop;     // NULL, or: once true, measuring ends early with an error
    kin_progress progress; // NULL, or called between steps
    void *progress_user;
} kin_profile_options;

// Fails only if stopped, if a device cannot compute, or if out of memory. Anything else that cannot be measured is 0, and the log
// says why.
int kin_profile_measure(kin_device_facts *out, const kin_devices *devices, const kin_profile_options *options, kin_err *err);

// Measures only the disk. Returns false if it cannot be measured; the log says why.
bool kin_profile_measure_disk(kin_device_facts *facts, const char *dir, const atomic_bool *stop);

// Reads again what changes: free memory, and the GPU's. memory: as in the options.
void kin_profile_refresh(kin_device_facts *facts, const kin_devices *devices, uint64_t memory);

// Writes everything a profile depends on as one line of text: a stored profile is valid as long as this stays the same.
void kin_profile_fingerprint(const kin_devices *devices, char *buf, size_t n);
