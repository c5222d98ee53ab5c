#include "cluster/doctor/doctor.h"

#include "cluster/doctor/doctor_machine.h"
#include "cluster/doctor/doctor_network.h"

void kin_doctor_run(kin_doctor_report *report, const kin_doctor_options *o) {
    static void (*const parts[])(kin_doctor_report *, const kin_doctor_options *) = {
        kin_doctor_processor, kin_doctor_memory, kin_doctor_gpu,      kin_doctor_disk,  kin_doctor_files,
        kin_doctor_networks,  kin_doctor_search, kin_doctor_firewall, kin_doctor_ports, kin_doctor_cluster};
    report->n = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts && !(o->stop && atomic_load(o->stop)); i++) parts[i](report, o);
}
