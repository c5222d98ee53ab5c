// The parts of the doctor (cluster/doctor/doctor.h): each adds its findings.
#pragma once

#include "cluster/doctor/doctor.h"

enum { KIN_DOCTOR_PATH = 1024 };

// Adds a finding; the sentence follows in fmt. Its command is empty.
kin_finding *kin_doctor_add(kin_doctor_report *report, kin_finding_level level, const char *about, const char *fmt, ...)
    KIN_PRINTF(4, 5);
// Sets a finding's command. Does nothing for NULL.
void kin_doctor_mend(kin_finding *finding, const char *fmt, ...) KIN_PRINTF(2, 3);
// Writes ROOT and the path to buf [KIN_DOCTOR_PATH].
const char *kin_doctor_path(const kin_doctor_options *options, const char *path, char *buf);

void kin_doctor_processor(kin_doctor_report *report, const kin_doctor_options *options);
void kin_doctor_memory(kin_doctor_report *report, const kin_doctor_options *options);
void kin_doctor_gpu(kin_doctor_report *report, const kin_doctor_options *options);
void kin_doctor_disk(kin_doctor_report *report, const kin_doctor_options *options);
void kin_doctor_files(kin_doctor_report *report, const kin_doctor_options *options);
void kin_doctor_networks(kin_doctor_report *report, const kin_doctor_options *options);
void kin_doctor_search(kin_doctor_report *report, const kin_doctor_options *options);
void kin_doctor_firewall(kin_doctor_report *report, const kin_doctor_options *options);
void kin_doctor_ports(kin_doctor_report *report, const kin_doctor_options *options);
void kin_doctor_cluster(kin_doctor_report *report, const kin_doctor_options *options);
