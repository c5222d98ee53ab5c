#include "cluster/doctor/finding.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/sentence.h"

kin_finding *kin_doctor_add(kin_doctor_report *report, kin_finding_level level, const char *about, const char *fmt, ...) {
    va_list args;
    if (report->n == KIN_DOCTOR_MAX) return NULL;
    kin_finding *f = &report->at[report->n++];
    *f = (kin_finding){.level = level, .about = about};
    va_start(args, fmt);
    kin_sentence_vprint(f->text, sizeof f->text, fmt, args);
    va_end(args);
    return f;
}

void kin_doctor_mend(kin_finding *finding, const char *fmt, ...) {
    va_list args;
    if (!finding) return;
    va_start(args, fmt);
    vsnprintf(finding->command, sizeof finding->command, fmt, args);
    va_end(args);
}

const char *kin_doctor_path(const kin_doctor_options *o, const char *path, char *buf) {
    snprintf(buf, KIN_DOCTOR_PATH, "%s%s", o->root, path);
    return buf;
}
