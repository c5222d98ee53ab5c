// The part of the doctor about what other machines need: networks, the search for heads, firewall, ports, the cluster. Each
// function adds its findings to the report. Thread: the one that examines.
#pragma once

#include "cluster/doctor/finding.h"

void kin_doctor_networks(kin_doctor_report *report, const kin_doctor_options *options);
void kin_doctor_search(kin_doctor_report *report, const kin_doctor_options *options);
void kin_doctor_firewall(kin_doctor_report *report, const kin_doctor_options *options);
void kin_doctor_ports(kin_doctor_report *report, const kin_doctor_options *options);
void kin_doctor_cluster(kin_doctor_report *report, const kin_doctor_options *options);
