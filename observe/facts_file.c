#include "observe/facts_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "observe/facts_fields.h"
#include "observe/facts_links.h"
#include "observe/json_text.h"
#include "pure/proto/label.h"

// ---- devices

// Fields that CPU and GPU have in common; offsets in kin_device_facts.
#define ENGINE_FIELDS(engine)                                                                                                    \
    {KIN_FIELD_RATES, "token_bytes_per_s", offsetof(kin_device_facts, engine.token_bytes_s), true, 0},                           \
        {KIN_FIELD_RATES, "prompt_flop_per_s", offsetof(kin_device_facts, engine.prompt_flop_s), true, 0},                       \
        {KIN_FIELD_NUMBER, "read_bytes_per_s", offsetof(kin_device_facts, engine.read_bytes_s), true, 0},                        \
        {KIN_FIELD_NUMBER, "prompt_read_bytes_per_s", offsetof(kin_device_facts, engine.prompt_read_bytes_s), false, 0},         \
        {KIN_FIELD_NUMBER, "kv_bytes_per_s", offsetof(kin_device_facts, engine.kv_bytes_s), false, 0},                           \
        {KIN_FIELD_RATES, "batch_factor_2", offsetof(kin_device_facts, engine.batch_factor[0]), false, 0},                       \
        {KIN_FIELD_RATES, "batch_factor_4", offsetof(kin_device_facts, engine.batch_factor[1]), false, 0},                       \
        {KIN_FIELD_RATES, "batch_factor_8", offsetof(kin_device_facts, engine.batch_factor[2]), false, 0},                       \
        {KIN_FIELD_RATES, "batch_factor_16", offsetof(kin_device_facts, engine.batch_factor[3]), false, 0},                      \
        {KIN_FIELD_RATES, "batch_factor_32", offsetof(kin_device_facts, engine.batch_factor[4]), false, 0},                      \
        {KIN_FIELD_RATES, "cached_factor_16", offsetof(kin_device_facts, engine.cached_factor[0]), false, 0},                    \
        {KIN_FIELD_RATES, "cached_factor_32", offsetof(kin_device_facts, engine.cached_factor[1]), false, 0},                    \
        {KIN_FIELD_RATES, "cached_factor_64", offsetof(kin_device_facts, engine.cached_factor[2]), false, 0},                    \
        {KIN_FIELD_RATES, "cached_factor_128", offsetof(kin_device_facts, engine.cached_factor[3]), false, 0},                   \
        {KIN_FIELD_NUMBER, "kv_copy_s", offsetof(kin_device_facts, engine.kv_copy_s), false, 0}, {                               \
        KIN_FIELD_NUMBER, "op_s", offsetof(kin_device_facts, engine.op_s), false, 0                                              \
    }

static const kin_field cpu_fields[] = {ENGINE_FIELDS(cpu), {0}};

static const kin_field gpu_fields[] = {
    {KIN_FIELD_SIZE, "memory_bytes", offsetof(kin_device_facts, gpu_memory_bytes), true, 0},
    {KIN_FIELD_FLAG, "shares_memory", offsetof(kin_device_facts, uma), false, 0},
    ENGINE_FIELDS(gpu),
    {KIN_FIELD_NUMBER, "to_s", offsetof(kin_device_facts, to_gpu_s), false, 0},
    {KIN_FIELD_NUMBER, "from_s", offsetof(kin_device_facts, from_gpu_s), false, 0},
    {KIN_FIELD_NUMBER, "copy_bytes_per_s", offsetof(kin_device_facts, gpu_copy_bytes_s), false, 0},
    {0},
};

static const kin_field device_fields[] = {
    {KIN_FIELD_NAME, "name", offsetof(kin_device_facts, name), true, 0},
    {KIN_FIELD_ABOUT, "about", 0, false, 0},
    {KIN_FIELD_OS, "os", offsetof(kin_device_facts, os), false, 0},
    {KIN_FIELD_SIZE, "memory_bytes", offsetof(kin_device_facts, memory_bytes), true, 0},
    {KIN_FIELD_SIZE, "swap_bytes", offsetof(kin_device_facts, swap_bytes), false, 0},
    {KIN_FIELD_NUMBER, "disk_bytes_per_s", offsetof(kin_device_facts, disk_bytes_s), false, 0},
    {KIN_FIELD_NUMBER, "disk_random_bytes_per_s", offsetof(kin_device_facts, disk_random_bytes_s), false, NAN}, // like the other
    {KIN_FIELD_NUMBER, "window_s", offsetof(kin_device_facts, window_s), false, 0},
    {KIN_FIELD_FLAG, "no_slices", offsetof(kin_device_facts, no_slices), false, 0},
    {KIN_FIELD_INSIDE, "cpu", 0, true, 0},
    {KIN_FIELD_INSIDE, "gpu", 0, false, 0},
    {0},
};

int kin_facts_file_device_from_json(const json_t *json, kin_device_facts *device, kin_err *err) {
    const json_t *cpu, *gpu;
    *device = (kin_device_facts){.os = KIN_OS_LINUX};
    if (kin_fields_read(json, device_fields, device, err) != 0) return KIN_FAIL;
    if (kin_fields_inside(json, "cpu", JSON_OBJECT, true, &cpu, err) != 0) return KIN_FAIL;
    if (kin_fields_inside(json, "gpu", JSON_OBJECT, false, &gpu, err) != 0) return KIN_FAIL;
    if (kin_fields_read(cpu, cpu_fields, device, err) != 0) return kin_err_prefix(err, "\"cpu\"");
    if (gpu && kin_fields_read(gpu, gpu_fields, device, err) != 0) return kin_err_prefix(err, "\"gpu\"");
    device->has_gpu = gpu != NULL;
    if (isnan(device->disk_random_bytes_s)) device->disk_random_bytes_s = device->disk_bytes_s;
    return 0;
}

// Writes the fields as an object at `key`.
static int write_inside(json_t *object, const char *key, const kin_field *fields, const void *from, kin_err *err) {
    json_t *inside = json_object();
    if (json_object_set_new(object, key, inside) != 0) return kin_err_set(err, "no memory");
    return kin_fields_write(inside, fields, from, err) == 0 ? 0 : kin_err_prefix(err, "\"%s\"", key);
}

static json_t *write_device(const kin_device_facts *device, kin_err *err) {
    json_t *json = json_object();
    if (kin_fields_write(json, device_fields, device, err) == 0 && write_inside(json, "cpu", cpu_fields, device, err) == 0 &&
        (!device->has_gpu || write_inside(json, "gpu", gpu_fields, device, err) == 0))
        return json;
    json_decref(json);
    return NULL;
}

json_t *kin_facts_file_device_to_json(const kin_device_facts *device) {
    return write_device(device, NULL);
}

// Prefixes the device's number, and its name if it has a valid one.
static int prefix_device(const json_t *json, size_t i, kin_err *err) {
    const char *name = json_string_value(json_object_get(json, "name"));
    size_t n = name ? strlen(name) : 0;
    if (n == 0 || n >= KIN_FACTS_MAX_NAME || !kin_label_is_clean(name, n)) return kin_err_prefix(err, "device %zu", i + 1);
    return kin_err_prefix(err, "device %zu ('%s')", i + 1, name);
}

static int read_devices(const json_t *root, kin_facts *facts, kin_err *err) {
    const json_t *list;
    if (kin_fields_inside(root, "devices", JSON_ARRAY, true, &list, err) != 0) return KIN_FAIL;
    size_t n = json_array_size(list);
    if (n < 1 || n > KIN_FACTS_MAX_DEVICES)
        return kin_err_set(err, "\"devices\": %zu devices, must be 1 to %d", n, KIN_FACTS_MAX_DEVICES);
    for (size_t i = 0; i < n; i++) {
        kin_device_facts *d = &facts->devices[i];
        if (kin_facts_file_device_from_json(json_array_get(list, i), d, err) != 0)
            return prefix_device(json_array_get(list, i), i, err);
        for (size_t k = 0; k < i; k++) {
            if (strcmp(d->name, facts->devices[k].name) == 0)
                return kin_err_set(err, "device %zu: duplicate name '%s'", i + 1, d->name);
        }
    }
    facts->n_device = (int)n;
    return 0;
}

static int write_devices(json_t *root, const kin_facts *facts, kin_err *err) {
    json_t *list = json_array();
    if (json_object_set_new(root, "devices", list) != 0) return kin_err_set(err, "no memory");
    for (int i = 0; i < facts->n_device; i++) {
        json_t *device = write_device(&facts->devices[i], err);
        if (!device) return kin_err_prefix(err, "device %d", i + 1);
        json_array_append_new(list, device);
    }
    return 0;
}

// ---- the model and the work

static const kin_field model_fields[] = {
    {KIN_FIELD_ABOUT, "about", 0, false, 0},
    {KIN_FIELD_COUNT, "n_layer", offsetof(kin_model_facts, n_layer), true, 0},
    {KIN_FIELD_COUNT, "n_vocab", offsetof(kin_model_facts, n_vocab), true, 0},
    {KIN_FIELD_SIZE, "hidden_bytes", offsetof(kin_model_facts, hidden_bytes), true, 0},
    {KIN_FIELD_TYPES, "layer_bytes", offsetof(kin_model_facts, layer_bytes), true, 0},
    {KIN_FIELD_TYPES, "layer_flops", offsetof(kin_model_facts, layer_flops), true, 0},
    {KIN_FIELD_TYPES, "expert_bytes", offsetof(kin_model_facts, expert_bytes), false, 0},
    {KIN_FIELD_NUMBER, "expert_share", offsetof(kin_model_facts, expert_share), false, 0},
    {KIN_FIELD_NUMBER, "expert_hits_25", offsetof(kin_model_facts, expert_hits[0]), false, 0},
    {KIN_FIELD_NUMBER, "expert_hits_50", offsetof(kin_model_facts, expert_hits[1]), false, 0},
    {KIN_FIELD_NUMBER, "expert_hits_75", offsetof(kin_model_facts, expert_hits[2]), false, 0},
    {KIN_FIELD_INSIDE, "layer_share", 0, false, 0},
    {KIN_FIELD_SIZE, "attn_bytes", offsetof(kin_model_facts, attn_bytes), false, 0},
    {KIN_FIELD_SIZE, "block_bytes", offsetof(kin_model_facts, block_bytes), true, 0},
    {KIN_FIELD_SIZE, "unit_bytes", offsetof(kin_model_facts, weight_block_bytes), true, 0},
    {KIN_FIELD_SIZE, "input_bytes", offsetof(kin_model_facts, input_bytes), true, 0},
    {KIN_FIELD_TYPES, "output_bytes", offsetof(kin_model_facts, output_bytes), true, 0},
    {KIN_FIELD_TYPES, "output_flops", offsetof(kin_model_facts, output_flops), true, 0},
    {KIN_FIELD_NUMBER, "layer_ops", offsetof(kin_model_facts, layer_ops), false, 0},
    {KIN_FIELD_NUMBER, "gpu_layer_ops", offsetof(kin_model_facts, gpu_layer_ops), false, 0},
    {KIN_FIELD_FLAG, "cpu_only", offsetof(kin_model_facts, cpu_only), false, 0},
    {KIN_FIELD_NUMBER, "output_ops", offsetof(kin_model_facts, output_ops), false, 0},
    {KIN_FIELD_NUMBER, "layer_blocks", offsetof(kin_model_facts, layer_blocks), false, 0},
    {KIN_FIELD_NUMBER, "output_blocks", offsetof(kin_model_facts, output_blocks), false, 0},
    {KIN_FIELD_SIZE, "kv_bytes", offsetof(kin_model_facts, kv_bytes), true, 0},
    {KIN_FIELD_SIZE, "kv_held_bytes", offsetof(kin_model_facts, kv_held_bytes), false, 0},
    {KIN_FIELD_SIZE, "gpu_kv_bytes", offsetof(kin_model_facts, gpu_kv_bytes), false, 0},
    {KIN_FIELD_INSIDE, "kv_share", 0, false, 0},
    {KIN_FIELD_COUNT, "checkpoint_gap", offsetof(kin_model_facts, checkpoint_gap), false, 0},
    {KIN_FIELD_SIZE, "checkpoint_bytes", offsetof(kin_model_facts, checkpoint_bytes), false, 0},
    {KIN_FIELD_NUMBER, "share_heads", offsetof(kin_model_facts, share_heads), false, 0},
    {KIN_FIELD_NUMBER, "share_ff", offsetof(kin_model_facts, share_ff), false, 0},
    {KIN_FIELD_NUMBER, "kv_reads", offsetof(kin_model_facts, kv_reads), false, 0},
    {KIN_FIELD_SIZE, "cpu_buffer_bytes", offsetof(kin_model_facts, cpu_buffer_bytes), false, 0},
    {KIN_FIELD_SIZE, "gpu_buffer_bytes", offsetof(kin_model_facts, gpu_buffer_bytes), false, 0},
    {0},
};

static const kin_field work_fields[] = {
    {KIN_FIELD_COUNT, "n_ctx", offsetof(kin_work_facts, n_ctx), false, 4096},
    {KIN_FIELD_COUNT, "n_cached", offsetof(kin_work_facts, n_cached), false, 128},
    {KIN_FIELD_COUNT, "n_prompt", offsetof(kin_work_facts, n_prompt), false, 512},
    {KIN_FIELD_COUNT, "n_batch", offsetof(kin_work_facts, n_batch), false, 512},
    {0},
};

static int read_shares(const json_t *json, const char *name, double *shares, int n_layer, kin_err *err) {
    const json_t *list;
    if (kin_fields_inside(json, name, JSON_ARRAY, false, &list, err) != 0) return KIN_FAIL;
    if (!list) return 0;
    size_t n = json_array_size(list);
    if (n != (size_t)n_layer) return kin_err_set(err, "\"%s\": %zu numbers for %d layers", name, n, n_layer);
    for (size_t il = 0; il < n; il++) {
        const json_t *share = json_array_get(list, il);
        if (!json_is_number(share)) return kin_err_set(err, "\"%s\": element %zu is not a number", name, il + 1);
        shares[il] = json_number_value(share);
    }
    return 0;
}

static int read_model(const json_t *json, kin_model_facts *model, kin_err *err) {
    if (kin_fields_read(json, model_fields, model, err) != 0) return KIN_FAIL;
    if (model->n_layer < 1 || model->n_layer > KIN_FACTS_MAX_LAYERS)
        return kin_err_set(err, "\"n_layer\": %d layers, must be 1 to %d", model->n_layer, KIN_FACTS_MAX_LAYERS);
    kin_facts_set_shares(model, NULL);
    if (read_shares(json, "layer_share", model->layer_share, model->n_layer, err) != 0) return KIN_FAIL;
    return read_shares(json, "kv_share", model->kv_share, model->n_layer, err);
}

static int write_shares(json_t *json, const char *name, const double *shares, int n_layer, kin_err *err) {
    bool equal = true;
    for (int il = 0; il < n_layer; il++) equal = equal && shares[il] == 1;
    if (equal) return 0;
    json_t *list = json_array();
    if (json_object_set_new(json, name, list) != 0) return kin_err_set(err, "no memory");
    for (int il = 0; il < n_layer; il++) {
        if (json_array_append_new(list, json_real(shares[il])) != 0)
            return kin_err_set(err, "\"model\": \"%s\" cannot be written as JSON", name);
    }
    return 0;
}

static int write_model(json_t *root, const kin_model_facts *model, kin_err *err) {
    if (model->n_layer == 0) return 0;
    if (write_inside(root, "model", model_fields, model, err) != 0) return KIN_FAIL;
    json_t *json = json_object_get(root, "model");
    if (write_shares(json, "layer_share", model->layer_share, model->n_layer, err) != 0) return KIN_FAIL;
    return write_shares(json, "kv_share", model->kv_share, model->n_layer, err);
}

// ---- the whole

static const kin_field root_fields[] = {
    {KIN_FIELD_ABOUT, "about", 0, false, 0},  {KIN_FIELD_INSIDE, "devices", 0, true, 0}, {KIN_FIELD_INSIDE, "links", 0, false, 0},
    {KIN_FIELD_INSIDE, "model", 0, false, 0}, {KIN_FIELD_INSIDE, "work", 0, false, 0},   {0},
};

int kin_facts_file_from_json(const json_t *json, kin_facts *facts, kin_err *err) {
    const json_t *model, *work;
    json_t *nothing = NULL;
    *facts = (kin_facts){0};
    if (kin_fields_read(json, root_fields, facts, err) != 0) return KIN_FAIL;
    if (read_devices(json, facts, err) != 0 || kin_facts_links_read(json, facts, err) != 0) return KIN_FAIL;
    if (kin_fields_inside(json, "model", JSON_OBJECT, false, &model, err) != 0) return KIN_FAIL;
    if (model && read_model(model, &facts->model, err) != 0) return kin_err_prefix(err, "\"model\"");
    if (kin_fields_inside(json, "work", JSON_OBJECT, false, &work, err) != 0) return KIN_FAIL;
    if (!work) work = nothing = json_object();
    int rc = kin_fields_read(work, work_fields, &facts->work, err);
    json_decref(nothing);
    return rc == 0 ? 0 : kin_err_prefix(err, "\"work\"");
}

json_t *kin_facts_file_to_json(const kin_facts *facts, kin_err *err) {
    json_t *root = json_object();
    if (write_devices(root, facts, err) == 0 && kin_facts_links_write(root, facts, err) == 0 &&
        write_model(root, &facts->model, err) == 0 && write_inside(root, "work", work_fields, &facts->work, err) == 0)
        return root;
    json_decref(root);
    return NULL;
}

int kin_facts_file_read(const char *path, kin_facts *facts, kin_err *err) {
    json_t *root = kin_json_text_load(path, err);
    if (!root) return KIN_FAIL;
    int rc = kin_facts_file_from_json(root, facts, err);
    json_decref(root);
    return rc == 0 ? 0 : kin_err_prefix(err, "%s", path);
}

int kin_facts_file_write(const char *path, const kin_facts *facts, kin_err *err) {
    json_t *root = kin_facts_file_to_json(facts, err);
    if (!root) return kin_err_prefix(err, "%s", path);
    int rc = kin_json_text_save(path, root, err);
    json_decref(root);
    return rc;
}
