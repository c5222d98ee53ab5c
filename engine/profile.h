// The profile of this machine: how fast its CPU and GPU, its memory and its disk do what decoding and prompts ask of them.
//
// Measured with the kernels that the engine computes with, on the devices as they are opened, in a few seconds (docs/PROFILE.md:
// what and how). It does not depend on a model. Memory that is free, of RAM and of the GPU, changes every moment: it is read, not
// measured, and kin_profile_refresh reads it again.
//
// Owner of everything: the caller. Thread: the one that computes on the devices (their graphs are run here).
#pragma once

#include <stdatomic.h>

#include "engine/device.h"
#include "engine/weights.h"
#include "pure/plan/facts.h"

typedef struct kin_profile_options {
    const char *name;      // of the device, for people
    const char *disk_dir;  // the disk that this folder is on is measured; NULL: none is
    uint64_t memory;       // the user's cap on memory; 0: what the machine can spare
    atomic_bool *stop;     // NULL, or: once true, measuring ends early with an error
    kin_progress progress; // NULL, or called between steps
    void *progress_user;
} kin_profile_options;

// Fails only when stopped, when a device cannot compute or memory is out. What else cannot be measured is 0, and a line in the
// log says why.
int kin_profile_measure(kin_device_facts *out, const kin_devices *devices, const kin_profile_options *options, kin_err *err);

// Only the disk. False: it cannot be measured, and a line in the log says why.
bool kin_profile_measure_disk(kin_device_facts *facts, const char *dir, const atomic_bool *stop);

// Reads anew what changes: memory, and the GPU's free memory. memory: as in the options.
void kin_profile_refresh(kin_device_facts *facts, const kin_devices *devices, uint64_t memory);

// What a profile depends on, as one line of text: a profile is worth keeping as long as this stays the same.
void kin_profile_fingerprint(const kin_devices *devices, char *buf, size_t n);
