// kin code: prints the code of this machine's cluster, which is entered once on each device.
#include <stdio.h>
#include <string.h>

#include "app/app.h"
#include "app/option_tables.h"
#include "node/identity.h"

typedef struct code_options {
    kin_identity_options net;
    bool is_new;
} code_options;

enum { N_OPTIONS = 3 };

static void fill_code_table(code_options *o, kin_option table[N_OPTIONS]) {
    const kin_option own[N_OPTIONS] = {
        {KIN_OPTION_FLAG, "new", 0, &o->is_new, NULL, "make another code: devices that have the old one are cut off", 0, 0},
        {KIN_OPTION_STRING, "key-file", 0, &o->net.key_file, "FILE", "the cluster's key (default: in the user's configuration)",
         0, 0},
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
    if (o.is_new) kin_app_say("this is the code from now on; each device must join again with it: kin join");
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
    .summary = "show the code that devices join with, or change it",
    .help = "The head makes the code when it runs for the first time, and keeps it in a file that only its user can read.",
    .run = command_code,
    .options = with_code_options,
};
