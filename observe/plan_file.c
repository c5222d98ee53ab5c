#include "observe/plan_file.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/units.h"
#include "observe/json_text.h"
#include "pure/plan/group.h"

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
    if (json_is_string(json) && kin_size_parse(json_string_value(json), bytes, err) != 0) return KIN_FAIL;
    if (json_is_integer(json) && json_integer_value(json) > 0) *bytes = (uint64_t)json_integer_value(json);
    return *bytes > 0 ? 0 : kin_err_set(err, "\"memory\" must be a size");
}

static int check_keys(json_t *object, kin_err *err) {
    static const char *const known[] = {"device", "window", "gpu_layers", "cpu_moe_layers", "memory", "group", "shares"};
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) found = found || strcmp(key, known[i]) == 0;
        if (!found)
            return kin_err_set(
                err, "unknown key \"%s\" (must be device, window, gpu_layers, cpu_moe_layers, memory, group or shares)", key);
    }
    return 0;
}

static int read_name(const json_t *json, const char *what, const char *head_name, kin_manual_plan_entry *e, kin_err *err) {
    const char *name = json_string_value(json);
    if (!name || !name[0] || strlen(name) >= sizeof e->name) return kin_err_set(err, "%s must be a name", what);
    snprintf(e->name, sizeof e->name, "%s", strcmp(name, "head") == 0 ? head_name : name);
    return 0;
}

static int read_entry(json_t *object, const char *head_name, kin_manual_plan_entry *e, kin_err *err) {
    if (read_name(json_object_get(object, "device"), "\"device\"", head_name, e, err) != 0) return KIN_FAIL;
    if (check_keys(object, err) != 0) return KIN_FAIL;
    if (json_object_get(object, "shares")) return kin_err_set(err, "\"shares\" needs a \"group\"");
    if (read_count(object, "window", true, &e->n_layers, err) != 0) return KIN_FAIL;
    if (read_count(object, "gpu_layers", false, &e->n_gpu_layers, err) != 0) return KIN_FAIL;
    if (read_count(object, "cpu_moe_layers", false, &e->n_cpu_moe, err) != 0) return KIN_FAIL;
    return read_memory(object, &e->memory, err);
}

// Reads {"group": ["a", "b", "head"], "window": 8, "shares": [2, 1, 1]}: devices that share each of 8 layers. Without shares:
// equal ones.
static int read_group(json_t *object, const char *head_name, int number, kin_manual_plan *plan, kin_err *err) {
    json_t *names = json_object_get(object, "group"), *shares = json_object_get(object, "shares");
    size_t n = json_array_size(names);
    int n_layers = 0;
    if (check_keys(object, err) != 0 || read_count(object, "window", true, &n_layers, err) != 0) return KIN_FAIL;
    if (n < 2 || (shares && json_array_size(shares) != n) || json_object_get(object, "gpu_layers") ||
        json_object_get(object, "cpu_moe_layers") || json_object_get(object, "device") || json_object_get(object, "memory"))
        return kin_err_set(
            err, "a \"group\" must be a list of at least two names, with \"window\" and optionally one of \"shares\" per name");
    if (n > KIN_GROUP_MAX) return kin_err_set(err, "a \"group\" of %zu devices: at most %d are allowed", n, KIN_GROUP_MAX);
    for (size_t i = 0; i < n && plan->n_entries < KIN_FACTS_MAX_DEVICES; i++) {
        kin_manual_plan_entry *e = &plan->entries[plan->n_entries++];
        double weight = shares ? json_number_value(json_array_get(shares, i)) : 1;
        *e = (kin_manual_plan_entry){.n_layers = i == 0 ? n_layers : 0, .group = number, .weight = weight};
        if (!(weight > 0 && weight <= 1e6)) return kin_err_set(err, "\"shares\" must be numbers above 0");
        if (read_name(json_array_get(names, i), "each of \"group\"", head_name, e, err) != 0) return KIN_FAIL;
    }
    return 0;
}

static int read_entries(json_t *root, const char *head_name, kin_manual_plan *plan, kin_err *err) {
    json_t *devices = json_object_get(root, "devices");
    size_t n = json_array_size(devices);
    if (n == 0) return kin_err_set(err, "\"devices\" must be a list of at least one device");
    if (n > KIN_FACTS_MAX_DEVICES) return kin_err_set(err, "%zu devices, at most %d are allowed", n, KIN_FACTS_MAX_DEVICES);
    for (size_t i = 0; i < n; i++) {
        json_t *object = json_array_get(devices, i);
        if (plan->n_entries == KIN_FACTS_MAX_DEVICES) return kin_err_set(err, "more than %d devices", KIN_FACTS_MAX_DEVICES);
        int rc = json_object_get(object, "group") ? read_group(object, head_name, (int)i + 1, plan, err)
                                                  : read_entry(object, head_name, &plan->entries[plan->n_entries++], err);
        if (rc != 0) return kin_err_prefix(err, "device %zu", i + 1);
    }
    for (int i = 0; i < plan->n_entries; i++) { // the head is the last member of a ring
        const kin_manual_plan_entry *e = &plan->entries[i], *last = &plan->entries[plan->n_entries - 1];
        if (e->group && e->group != last->group && strcmp(e->name, head_name) == 0)
            return kin_err_set(err, "a group with the head must be last");
    }
    return kin_manual_plan_check(plan, err);
}

int kin_plan_file_read(const char *path, const char *head_name, kin_manual_plan *plan, kin_err *err) {
    *plan = (kin_manual_plan){0};
    if (access(path, F_OK) != 0 && errno == ENOENT)
        return kin_err_set(err, "--plan %s: there is no such file, and the words are auto, even, memory and tp", path);
    json_t *root = kin_json_text_load(path, err);
    if (!root) return KIN_FAIL;
    int rc = read_entries(root, head_name, plan, err);
    json_decref(root);
    return rc == 0 ? 0 : kin_err_prefix(err, "%s", path);
}
