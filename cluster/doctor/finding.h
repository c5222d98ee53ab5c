// The doctor's report: its options, and the findings that each of its parts adds.
//
// Plain data and functions. Thread: the one that examines.
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

enum { KIN_DOCTOR_PATH = 1024 };

// Adds a finding without a command; the sentence follows in fmt. Returns NULL if the report is full.
kin_finding *kin_doctor_add(kin_doctor_report *report, kin_finding_level level, const char *about, const char *fmt, ...)
    KIN_PRINTF(4, 5);
// Sets a finding's command. Does nothing for NULL.
void kin_doctor_mend(kin_finding *finding, const char *fmt, ...) KIN_PRINTF(2, 3);
// Writes the options' root and the path to buf [KIN_DOCTOR_PATH], and returns buf.
const char *kin_doctor_path(const kin_doctor_options *options, const char *path, char *buf);
