// Takes any text as a file of facts through every step: read, write again, screen, plan, print. A file that does not hold facts
// is refused with an error sentence; impossible facts are refused device by device; no number, however extreme, crashes the
// planner or makes it run for long.
//
// Records after the text overwrite numbers of the facts: 2 bytes select the number, 8 bytes are a double. Mutating the digits of
// the text rarely produces extreme numbers.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/plan_print.c"
#include "app/terminal/table.c"
#include "observe/facts_fields.h"
#include "observe/facts_file.h"
#include "observe/facts_links.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

// Facts that were read can be written; reading and writing them again gives the same JSON.
static void write_again(const kin_facts *facts) {
    static kin_facts back;
    kin_err err = {""};
    json_t *json = kin_facts_file_to_json(facts, &err);
    if (!json) return;                             // a rate is not finite, so JSON cannot hold it
    char *text = json_dumps(json, JSON_INDENT(2)); // the same flags as kin_json_text_save
    json_t *read = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    kin_assert(read && kin_facts_file_from_json(read, &back, &err) == 0);
    json_t *again = kin_facts_file_to_json(&back, &err);
    kin_assert(again && json_equal(json, again));
    json_decref(again);
    json_decref(read);
    json_decref(json);
    free(text);
}

static void show(const kin_plan_view *view) {
    char *text = NULL;
    size_t n;
    FILE *file = open_memstream(&text, &n);
    kin_assert(file != NULL);
    kin_plan_print(view, file);
    fclose(file);
    free(text);
    json_t *json = kin_plan_view_json(view);
    kin_assert(json != NULL);
    json_decref(json);
}

// `exact` splits sets of devices only where links differ; a few nodes are enough to reach that code.
static void plan(const kin_facts *facts) {
    static kin_plan_view view;
    kin_err err = {""};
    kin_plan_options options = kin_plan_options_defaults();
    options.max_nodes = 8;
    for (const kin_plan_scheduler *s = kin_plan_schedulers; s->name; s++) {
        if (s->plan == kin_plan_halda || s->plan == kin_plan_dp_sa) continue; // one needs a solver, the other is slow on purpose
        if (kin_plan_view_make(&view, facts, &options, s, &err) != 0) {
            kin_assert(err.text[0] != '\0');
            continue;
        }
        kin_assert(isfinite(view.prediction.tpot_s) && view.prediction.tpot_s >= 0);
        kin_assert(kin_plan_check(&view.plan, facts, NULL) == 0);
        kin_assert((kin_plan_workers(&view.plan, facts->n_device) & view.refused) == 0);
        show(&view);
    }
}

enum { MODEL_DOUBLES = sizeof(kin_model_facts) / sizeof(double), RECORD = 2 + sizeof(double) };
enum { DEVICE_DOUBLES = (sizeof(kin_device_facts) - offsetof(kin_device_facts, cpu)) / sizeof(double) };

static double *number_of(kin_facts *facts, size_t which) {
    if (which % 4 == 0) {
        size_t slot = which / 4 % MODEL_DOUBLES;
        bool counts = slot == offsetof(kin_model_facts, n_layer) / sizeof(double) ||
                      slot == offsetof(kin_model_facts, n_vocab) / sizeof(double);
        return counts ? NULL : (double *)&facts->model + slot;
    }
    size_t device = which / 4 % (size_t)facts->n_device, other = which / 64 % (size_t)facts->n_device;
    if (which % 4 == 1) return which / 1024 % 2 ? &facts->links[device][other].rtt_s : &facts->links[device][other].bytes_s;
    return (double *)&facts->devices[device].cpu + which / 128 % DEVICE_DOUBLES;
}

static void lay_over(kin_facts *facts, const uint8_t *bytes, size_t size) {
    for (; size >= RECORD; bytes += RECORD, size -= RECORD) {
        double *number = number_of(facts, bytes[0] | (size_t)bytes[1] << 8);
        if (number) memcpy(number, bytes + 2, sizeof *number);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    static kin_facts facts;
    json_error_t error;
    kin_err err = {""};
    json_t *json = json_loadb((const char *)bytes, size, JSON_REJECT_DUPLICATES | JSON_DISABLE_EOF_CHECK, &error);
    if (!json) return 0;
    int rc = kin_facts_file_from_json(json, &facts, &err);
    json_decref(json);
    kin_assert(rc == 0 || err.text[0] != '\0');
    if (rc != 0) return 0;
    write_again(&facts);
    lay_over(&facts, bytes + error.position, size - (size_t)error.position);
    if (facts.n_device <= 4 && facts.model.n_layer <= 40) plan(&facts);
    return 0;
}
