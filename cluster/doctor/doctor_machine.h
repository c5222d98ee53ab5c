// The part of the doctor about the machine itself: processor, memory, GPU, disk, open files. Each function adds its findings to
// the report. Thread: the one that examines.
#pragma once

#include "cluster/doctor/finding.h"

void kin_doctor_processor(kin_doctor_report *report, const kin_doctor_options *options);
void kin_doctor_memory(kin_doctor_report *report, const kin_doctor_options *options);
void kin_doctor_gpu(kin_doctor_report *report, const kin_doctor_options *options);
void kin_doctor_disk(kin_doctor_report *report, const kin_doctor_options *options);
void kin_doctor_files(kin_doctor_report *report, const kin_doctor_options *options);
