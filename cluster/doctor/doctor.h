// The doctor: reports what this machine can do for kin, alone and in a cluster, what is missing, and the command that fixes it.
//
// It only looks, except that it creates a missing cache folder, and a temporary unnamed file in it. It takes a few seconds at
// most: questions to other machines have a time limit.
//
// Plain functions. Thread: the one that computes (a GPU is opened and closed).
#pragma once

#include "cluster/identity.h"

typedef enum kin_finding_level {
    KIN_FINDING_OK,
    KIN_FINDING_NOTE,    // kin works, but could do more
    KIN_FINDING_PROBLEM, // something will fail
} kin_finding_level;

typedef struct kin_finding {
    kin_finding_level level;
    const char *about; // "memory"
    char text[1536];   // one sentence; may quote names and reasons of other machines
    char command[256]; // the fix; empty: nothing to do, or there is no such command
} kin_finding;

enum { KIN_DOCTOR_MAX = 24 };

typedef struct kin_doctor_report {
    kin_finding at[KIN_DOCTOR_MAX];
    int n;
} kin_doctor_report;

typedef struct kin_doctor_options {
    const char *cache_dir; // for prepacked weights; NULL: there is no home directory
    kin_identity_options net;
    uint16_t port, http_port, search_port; // of a head (0: the default), of kin serve, of the search for heads (UDP)
    const char *root;                      // prefix of /proc, /sys, /dev, /etc and /run, for tests; "": the system's
    atomic_bool *stop;
} kin_doctor_options;

void kin_doctor_run(kin_doctor_report *report, const kin_doctor_options *options);
