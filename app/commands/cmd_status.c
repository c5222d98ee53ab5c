// kin status: shows the state of a running head and its devices.
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/app.h"
#include "app/option_tables.h"
#include "app/terminal/table.h"
#include "base/units.h"
#include "cluster/identity.h"
#include "observe/status_client.h"
#include "pure/text/escape.h"

typedef struct status_options {
    const char *key_file;
    bool json;
} status_options;

enum { N_OPTIONS = 3, WORDS = 1024, CELL = KIN_TABLE_CELL, MAX_ROWS = KIN_TABLE_MAX_ROWS - 1, MAX_WINDOWS_SHOWN = 4 };

static void fill_status_table(status_options *o, kin_option table[N_OPTIONS]) {
    const kin_option own[N_OPTIONS] = {
        {KIN_OPTION_FLAG, "json", 0, &o->json, NULL, "print JSON", 0, 0},
        {KIN_OPTION_STRING, "key-file", 0, &o->key_file, "FILE", "cluster key file (default: in ~/.config/kin)", 0, 0},
        {0},
    };
    memcpy(table, own, sizeof own);
}

// ---- reading the status: values that are missing or of another type are 0 or empty

static double number(const json_t *o, const char *key) {
    return json_number_value(json_object_get(o, key));
}

static const char *bytes(const json_t *o, const char *key, char buf[32]) {
    double n = number(o, key);
    return kin_size_format(n > 0 && n < 1e18 ? (uint64_t)n : 0, buf, 32);
}

static const char *text_of(const json_t *o, const char *key) {
    const char *text = json_string_value(json_object_get(o, key));
    return text ? text : "";
}

// Escapes a peer's text for the terminal.
static char *words(const json_t *o, const char *key, char buf[WORDS]) {
    const char *text = text_of(o, key);
    return kin_escape(buf, WORDS, text, strlen(text));
}

// ---- the table

static const char *describe_layers(const json_t *device, char cell[CELL]) {
    const json_t *windows = json_object_get(device, "windows");
    size_t n = json_array_size(windows), used = 0;
    for (size_t i = 0; i < n && i < MAX_WINDOWS_SHOWN; i++) {
        const json_t *w = json_array_get(windows, i);
        int begin = (int)number(w, "layer_begin"), last = (int)number(w, "layer_end") - 1;
        used += (size_t)snprintf(cell + used, CELL - used, last > begin ? "%s%d-%d" : "%s%d", i ? ", " : "", begin, last);
    }
    if (n == 0) snprintf(cell, CELL, "%s", number(device, "stage") > 0 ? "none" : "");
    if (n > MAX_WINDOWS_SHOWN) used += (size_t)snprintf(cell + used, CELL - used, ", ...");
    const int n_gpu = (int)number(device, "gpu_layers"), n_cpu_moe = (int)number(device, "cpu_moe_layers");
    if (n_gpu && n_cpu_moe)
        snprintf(cell + used, CELL - used, " (%d on GPU, experts of %d on CPU)", n_gpu, n_cpu_moe);
    else if (n_gpu)
        snprintf(cell + used, CELL - used, " (%d on GPU)", n_gpu);
    return cell;
}

static void percent(kin_table *t, int column, const json_t *device, const char *key) {
    if (json_object_get(device, key)) kin_table_cell(t, column, "%.0f %%", 100 * number(device, key));
}

static void add_row(kin_table *t, const json_t *device) {
    char a[32], b[32], text[CELL];
    kin_table_row(t);
    bool is_browser = strcmp(text_of(device, "os"), "browser") == 0;
    const char *kind = *text_of(device, "gpu") ? " (browser, WebGPU)" : " (browser)";
    kin_table_cell(t, 0, "%s%s", text_of(device, "name"), is_browser ? kind : "");
    kin_table_cell(t, 1, "%s", text_of(device, "state"));
    kin_table_cell(t, 2, "%s", describe_layers(device, text));
    const char *of = number(device, "memory_planned") > 0 ? "memory_planned" : "memory_lent";
    if (number(device, of) > 0)
        kin_table_cell(t, 3, "%s of %s", bytes(device, "resident_bytes", a), bytes(device, of, b));
    else if (json_object_get(device, "resident_bytes"))
        kin_table_cell(t, 3, "%s", bytes(device, "resident_bytes", a));
    if (json_object_get(device, "streamed_bytes")) kin_table_cell(t, 4, "%s", bytes(device, "streamed_bytes", a));
    percent(t, 5, device, "compute_share");
    percent(t, 6, device, "wait_share");
    percent(t, 7, device, "disk_share");
    if (json_object_get(device, "rtt_ms")) kin_table_cell(t, 8, "%.2f ms", number(device, "rtt_ms"));
    if (json_object_get(device, "bytes_in"))
        kin_table_cell(t, 9, "%s / %s", bytes(device, "bytes_in", a), bytes(device, "bytes_out", b));
}

static void print_devices(const json_t *devices) {
    static const char *const titles[] = {"DEVICE",  "STATE", "LAYERS", "RESIDENT", "STREAMED",
                                         "COMPUTE", "WAIT",  "DISK",   "TO NEXT",  "IN / OUT"};
    static kin_table table;
    kin_table_init(&table, "llllllllll", titles);
    for (size_t i = 0; i < json_array_size(devices) && i < MAX_ROWS; i++) add_row(&table, json_array_get(devices, i));
    kin_table_print(&table, stdout);
}

// Prints what does not fit into the table.
static void print_remarks(const json_t *devices) {
    for (size_t i = 0; i < json_array_size(devices); i++) {
        const json_t *d = json_array_get(devices, i);
        char name[WORDS], doing[WORDS], error[WORDS];
        words(d, "name", name);
        if (words(d, "doing", doing)[0]) printf("%s: %s\n", name, doing);
        if (words(d, "last_error", error)[0]) printf("%s: %s\n", name, error);
    }
}

static void print_status_text(const json_t *report) {
    const json_t *head = json_object_get(report, "head"), *devices = json_object_get(report, "devices");
    char name[WORDS], doing[WORDS], model[WORDS];
    printf("head '%s': %s\n", words(head, "name", name), words(head, "doing", doing));
    printf("model %s, %.0f layers, context %.0f; %.0f pass%s around the ring per token; plan %.0f\n", words(head, "model", model),
           number(head, "layers"), number(head, "context"), number(head, "rounds"), number(head, "rounds") == 1 ? "" : "es",
           number(head, "epoch"));
    printf("sequences: %.0f active, %.0f total; %.1f tokens/s; %.0f prompt tokens, %.0f generated in %.0f s\n\n",
           number(head, "sequences"), number(head, "sequences_total"), number(head, "tokens_per_s"),
           number(head, "prompt_tokens"), number(head, "tokens"), number(head, "uptime_s"));
    print_devices(devices);
    printf("\n");
    print_remarks(devices);
}

static int print_report(const char *text, bool as_json, kin_err *err) {
    json_error_t where;
    json_t *report = json_loadb(text, strlen(text), JSON_REJECT_DUPLICATES, &where);
    if (!report || !json_is_object(report)) {
        json_decref(report);
        return kin_err_set(err, "the head sent an invalid report: %s", where.text);
    }
    if (as_json) {
        kin_app_write_json(report, 6);
    } else {
        print_status_text(report);
        json_decref(report);
    }
    return 0;
}

static int run_status(const status_options *o, const kin_head_address *head) {
    char *text = NULL;
    kin_identity_options net = {.key_file = o->key_file};
    kin_identity self;
    kin_err err;
    kin_status_client_options oo = {.version = KIN_VERSION, .port = head->port, .n_reports = 2, .stop = &kin_app_stop};
    bool is_typed = false;
    int rc = kin_identity_open_visitor(&self, &net, &err);
    if (rc == 0) rc = kin_identity_device_key(&oo.key, &is_typed, &net, &kin_app_console, &err);
    if (rc == 0) {
        oo.head = head->name[0] ? head->name : NULL;
        oo.id = self.id;
        oo.name = self.name;
        rc = kin_status_client_run(&oo, &text, &err);
        if (rc == 0 && is_typed) rc = kin_identity_keep_key(&oo.key, &net, &err);
    }
    kin_key_wipe(&oo.key);
    if (rc == 0) rc = print_report(text, o->json, &err);
    free(text);
    return rc == 0 ? KIN_EXIT_OK : kin_app_fail(&err);
}

static int command_status(int argc, char **argv) {
    status_options o = {0};
    kin_option table[N_OPTIONS];
    const char *operand = NULL;
    kin_head_address head;
    kin_err err;
    fill_status_table(&o, table);
    if (kin_options_parse((kin_option_tables){table}, argc, argv, &operand, &err) != 0 ||
        kin_head_address_parse(operand, &head, &err) != 0)
        return kin_app_usage("status", &err);
    return run_status(&o, &head);
}

static void with_status_options(void (*use)(kin_option_tables tables, void *user), void *user) {
    status_options o = {0};
    kin_option table[N_OPTIONS];
    fill_status_table(&o, table);
    use((kin_option_tables){table}, user);
}

const kin_command kin_command_status = {
    .name = "status",
    .args = "[HEAD[:PORT]] [--json]",
    .summary = "show the state of a running head and its devices",
    .help = "Without HEAD: the head on this machine, or else one found on the local network. Observes it for one second: "
            "COMPUTE, WAIT\n"
            "and DISK are shares of that time; DISK overlaps the others. RESIDENT: weights in memory.",
    .run = command_status,
    .options = with_status_options,
};
