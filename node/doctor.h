// The doctor: what this machine can do for kin, alone and in a cluster, what is missing, and the command that mends it.
//
// It looks, and changes nothing but a folder for the cache that is missing, and a nameless file in it for a moment. It takes a
// few seconds at most: what others are asked for has a limit.
//
// Plain functions. Thread: the one that computes (a GPU is opened and closed).
#pragma once

#include "node/identity.h"

typedef enum kin_finding_level {
    KIN_FINDING_OK,
    KIN_FINDING_NOTE,    // kin works, but could do more
    KIN_FINDING_PROBLEM, // something will fail
} kin_finding_level;

typedef struct kin_finding {
    kin_finding_level level;
    const char *about; // "memory"
    char text[1536];   // one sentence; may quote names and reasons of other machines
    char command[256]; // what mends it; empty: nothing is to be done, or there is no such command
} kin_finding;

enum { KIN_DOCTOR_MAX = 24 };

typedef struct kin_doctor_report {
    kin_finding at[KIN_DOCTOR_MAX];
    int n;
} kin_doctor_report;

typedef struct kin_doctor_options {
    const char *cache_dir; // where prepacked weights are kept; NULL: there is no home
    kin_identity_options net;
    uint16_t port, http_port, search_port; // of a head (0: the usual ones), of kin serve, of the search for heads (UDP)
    const char *root;                      // of /proc, /sys, /dev, /etc and /run; "": the system's. For tests
    atomic_bool *stop;
} kin_doctor_options;

void kin_doctor_look(kin_doctor_report *report, const kin_doctor_options *options);
