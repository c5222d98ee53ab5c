// kin code: prints the code of this machine's cluster, which is entered once on each device.
#include <stdio.h>
#include <string.h>

#include "app/app.h"
#include "app/option_tables.h"
#include "cluster/identity.h"

typedef struct code_options {
    kin_identity_options net;
    bool is_new;
} code_options;

enum { N_OPTIONS = 3 };

static void fill_code_table(code_options *o, kin_option table[N_OPTIONS]) {
    const kin_option own[N_OPTIONS] = {
        {KIN_OPTION_FLAG, "new", 0, &o->is_new, NULL, "make a new code; devices with the old one lose access", 0, 0},
        {KIN_OPTION_STRING, "key-file", 0, &o->net.key_file, "FILE", "cluster key file (default: in ~/.config/kin)", 0, 0},
        {0},
    };
    memcpy(table, own, sizeof own);
}

static int command_code(int argc, char **argv) {
    code_options o = {0};
    kin_option table[N_OPTIONS];
    char code[KIN_CODE_TEXT];
    kin_err err;
    fill_code_table(&o, table);
    if (kin_options_parse((kin_option_tables){table}, argc, argv, NULL, &err) != 0) return kin_app_usage("code", &err);
    int rc = o.is_new ? kin_identity_new_code(code, &o.net, &err) : kin_identity_code(code, &o.net, &err);
    if (rc != 0) return kin_app_fail(&err);
    printf("%s\n", code);
    kin_code_wipe(code, sizeof code);
    if (o.is_new) kin_app_log("the code was changed; run 'kin join' on each device and enter the new code");
    return KIN_EXIT_OK;
}

static void with_code_options(void (*use)(kin_option_tables tables, void *user), void *user) {
    code_options o = {0};
    kin_option table[N_OPTIONS];
    fill_code_table(&o, table);
    use((kin_option_tables){table}, user);
}

const kin_command kin_command_code = {
    .name = "code",
    .args = "[--new]",
    .summary = "show or change the code that devices join with",
    .help = "The head creates the code on its first run and stores it in a file that only its user can read.",
    .run = command_code,
    .options = with_code_options,
};
