// kin doctor: checks this machine and its cluster, and prints what is missing and the commands that fix it.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "app/app.h"
#include "app/option_tables.h"
#include "cluster/doctor/doctor.h"
#include "cluster/session.h"
#include "pure/text/escape.h"

typedef struct doctor_options {
    kin_doctor_options check;
    int port;
    bool json;
} doctor_options;

enum { N_DOCTOR_OPTIONS = 5, HTTP_PORT = 8080 };

static const char *const levels[] = {"ok", "note", "problem"};

static void fill_doctor_table(doctor_options *o, kin_option table[N_DOCTOR_OPTIONS]) {
    *o = (doctor_options){.check = {.http_port = HTTP_PORT, .root = "", .stop = &kin_app_stop}};
    const kin_option own[N_DOCTOR_OPTIONS] = {
        {KIN_OPTION_FLAG, "json", 0, &o->json, NULL, "print JSON", 0, 0},
        {KIN_OPTION_STRING, "cache", 0, &o->check.cache_dir, "DIR", "directory of prepacked weights (default: ~/.cache/kin)", 0,
         0},
        {KIN_OPTION_STRING, "key-file", 0, &o->check.net.key_file, "FILE", "cluster key file (default: in ~/.config/kin)", 0, 0},
        {KIN_OPTION_INT, "port", 0, &o->port, "N", "TCP port of the head (default: 7577)", 1, 65535},
        {0},
    };
    memcpy(table, own, sizeof own);
}

static void print_doctor_json(const kin_doctor_report *r, int n_problems) {
    json_t *all = json_object(), *findings = json_array();
    for (int i = 0; i < r->n; i++) {
        const kin_finding *f = &r->at[i];
        json_t *one = json_pack("{s:s, s:s}", "about", f->about, "level", levels[f->level]);
        json_object_set_new(one, "text", json_string(f->text));
        json_object_set_new(one, "command", f->command[0] ? json_string(f->command) : json_null());
        json_array_append_new(findings, one);
    }
    json_object_set_new(all, "problems", json_integer(n_problems));
    json_object_set_new(all, "findings", findings);
    kin_app_write_json(all, 0);
}

static void print_doctor_text(const kin_doctor_report *r, int n_problems) {
    char shown[4 * sizeof r->at[0].text];
    bool has_colour = kin_app_accepts_escapes(stdout);
    static const char *const colours[] = {"\033[32m", "\033[33m", "\033[31m"};
    for (int i = 0; i < r->n; i++) {
        const kin_finding *f = &r->at[i];
        printf("%s%-7s%s  %-9s  %s\n", has_colour ? colours[f->level] : "", levels[f->level], has_colour ? "\033[0m" : "",
               f->about, kin_escape(shown, sizeof shown, f->text, strlen(f->text)));
        if (f->command[0]) printf("%-20s-> %s\n", "", kin_escape(shown, sizeof shown, f->command, strlen(f->command)));
    }
    if (n_problems > 0) printf("\n%d problem%s\n", n_problems, n_problems == 1 ? "" : "s");
}

static int command_doctor(int argc, char **argv) {
    static kin_doctor_report report;
    doctor_options o;
    kin_option table[N_DOCTOR_OPTIONS];
    char home_cache[1000];
    kin_err err = {"interrupted"};
    int n_problems = 0;
    fill_doctor_table(&o, table);
    if (kin_options_parse((kin_option_tables){table}, argc, argv, NULL, &err) != 0) return kin_app_usage("doctor", &err);
    if (!o.check.cache_dir) o.check.cache_dir = kin_session_default_cache(home_cache, sizeof home_cache);
    o.check.port = (uint16_t)o.port;
    kin_doctor_run(&report, &o.check);
    if (atomic_load(&kin_app_stop)) return kin_app_fail(&err);
    for (int i = 0; i < report.n; i++) n_problems += report.at[i].level == KIN_FINDING_PROBLEM;
    if (o.json)
        print_doctor_json(&report, n_problems);
    else
        print_doctor_text(&report, n_problems);
    return n_problems == 0 ? KIN_EXIT_OK : KIN_EXIT_FAILED;
}

static void with_doctor_options(void (*use)(kin_option_tables tables, void *user), void *user) {
    doctor_options o;
    kin_option table[N_DOCTOR_OPTIONS];
    fill_doctor_table(&o, table);
    use((kin_option_tables){table}, user);
}

const kin_command kin_command_doctor = {
    .name = "doctor",
    .args = "[--json]",
    .summary = "check this machine and its cluster, and show the command that fixes each problem",
    .help =
        "Each line is ok, a note (kin works but could do more) or a problem (something will fail), with a command that fixes "
        "it.\n"
        "It takes a few seconds, because it measures the disk and contacts a head. The exit status is 1 if there is a problem.",
    .run = command_doctor,
    .options = with_doctor_options,
};
