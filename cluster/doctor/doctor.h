// The doctor: reports what this machine can do for kin, alone and in a cluster, what is missing, and the command that fixes it.
//
// It only looks, except that it creates a missing cache folder, and a temporary unnamed file in it. It takes a few seconds at
// most: questions to other machines have a time limit.
//
// Plain functions. Thread: the one that computes (a GPU is opened and closed).
#pragma once

#include "cluster/doctor/finding.h"

// Replaces the report. Ends early once *options->stop is true.
void kin_doctor_run(kin_doctor_report *report, const kin_doctor_options *options);
