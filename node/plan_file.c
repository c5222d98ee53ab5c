#include "node/plan_file.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "node/json_text.h"

static int read_count(const json_t *object, const char *key, bool must, int *value, kin_err *err) {
    const json_t *json = json_object_get(object, key);
    if (!json && !must) return 0;
    if (!json_is_integer(json) || json_integer_value(json) < 0 || json_integer_value(json) > 10000)
        return kin_err_set(err, "\"%s\" must be a number of layers", key);
    *value = (int)json_integer_value(json);
    return 0;
}

static int read_memory(const json_t *object, uint64_t *bytes, kin_err *err) {
    const json_t *json = json_object_get(object, "memory");
    if (!json) return 0;
    if (json_is_string(json)) return kin_size_parse(json_string_value(json), bytes, err);
    if (!json_is_integer(json) || json_integer_value(json) <= 0) return kin_err_set(err, "\"memory\" must be a size");
    *bytes = (uint64_t)json_integer_value(json);
    return 0;
}

static int check_keys(json_t *object, kin_err *err) {
    static const char *const known[] = {"device", "window", "gpu_layers", "memory"};
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) found = found || strcmp(key, known[i]) == 0;
        if (!found) return kin_err_set(err, "\"%s\" is not known (device, window, gpu_layers, memory are)", key);
    }
    return 0;
}

static int read_entry(json_t *object, const char *head_name, kin_manual_plan_entry *e, kin_err *err) {
    const char *name = json_string_value(json_object_get(object, "device"));
    if (!name || !name[0] || strlen(name) >= sizeof e->name) return kin_err_set(err, "\"device\" must be a name");
    if (check_keys(object, err) != 0) return KIN_FAIL;
    snprintf(e->name, sizeof e->name, "%s", strcmp(name, "head") == 0 ? head_name : name);
    if (read_count(object, "window", true, &e->n_layers, err) != 0) return KIN_FAIL;
    if (read_count(object, "gpu_layers", false, &e->n_gpu_layers, err) != 0) return KIN_FAIL;
    return read_memory(object, &e->memory, err);
}

static int read_entries(json_t *root, const char *head_name, kin_manual_plan *plan, kin_err *err) {
    json_t *devices = json_object_get(root, "devices");
    size_t n = json_array_size(devices);
    if (n == 0) return kin_err_set(err, "\"devices\" must be a list of at least one device");
    if (n > KIN_ROUNDS_MAX_MEMBERS) return kin_err_set(err, "%zu devices, at most %d are possible", n, KIN_ROUNDS_MAX_MEMBERS);
    for (size_t i = 0; i < n; i++) {
        if (read_entry(json_array_get(devices, i), head_name, &plan->entries[i], err) != 0)
            return kin_err_prefix(err, "device %zu", i + 1);
    }
    plan->n_entries = (int)n;
    return 0;
}

int kin_plan_file_read(const char *path, const char *head_name, kin_manual_plan *plan, kin_err *err) {
    *plan = (kin_manual_plan){0};
    json_t *root = kin_json_text_load(path, err);
    if (!root) return KIN_FAIL;
    int rc = read_entries(root, head_name, plan, err);
    json_decref(root);
    return rc == 0 ? 0 : kin_err_prefix(err, "%s", path);
}
