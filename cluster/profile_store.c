#include "cluster/profile_store.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "observe/facts_file.h"
#include "observe/json_text.h"
#include "pure/proto/label.h"
#include "sys/memory.h"
#include "sys/whole_file.h"

enum { MAX_FILE_BYTES = 64 << 10, MAX_FINGERPRINT = 1024 };

static int file_of(const char *dir, const char *fingerprint, char *path, size_t n) {
    unsigned long long hash = kin_hash64(fingerprint, strlen(fingerprint), 0);
    int len = snprintf(path, n, "%s/profile-%016llx.json", dir, hash);
    return len > 0 && (size_t)len < n ? 0 : KIN_FAIL;
}

// True if a profile with this fingerprint is stored there.
static bool load(const char *path, const char *fingerprint, kin_device_facts *out) {
    uint8_t *bytes;
    size_t n;
    kin_err err;
    if (kin_whole_file_read(path, MAX_FILE_BYTES, &bytes, &n, &err) != 0) return false;
    json_t *root = json_loadb((const char *)bytes, n, JSON_REJECT_DUPLICATES, NULL);
    free(bytes);
    const char *of = json_string_value(json_object_get(root, "fingerprint"));
    const json_t *device = json_object_get(root, "device");
    bool ok = of && device && strcmp(of, fingerprint) == 0;
    if (ok && kin_facts_file_device_from_json(device, out, &err) != 0) {
        kin_log(KIN_LOG_WARN, "%s: %s", path, err.text);
        ok = false;
    }
    json_decref(root);
    return ok;
}

// Rejects impossible rates, of a damaged file or of a failed measurement; otherwise plans would be wrong permanently.
static bool is_believed(const kin_device_facts *facts, const char *path) {
    kin_model_facts any = {.layer_bytes = {[KIN_QUANT_OTHER] = 1}, .layer_flops = {[KIN_QUANT_OTHER] = 1}};
    kin_err err;
    if (kin_facts_check_device(facts, &any, false, &err) == 0) return true;
    kin_log(KIN_LOG_WARN, "%s: %s; measuring this machine again", path, err.text);
    return false;
}

// If it cannot be written, the machine is measured again the next time.
static void save(const char *dir, const char *path, const char *fingerprint, const kin_device_facts *facts) {
    kin_err err;
    json_t *root = json_object();
    json_object_set_new(root, "fingerprint", json_string(fingerprint));
    json_object_set_new(root, "device", kin_facts_file_device_to_json(facts));
    char *text = json_object_get(root, "device") ? json_dumps(root, JSON_INDENT(2)) : NULL;
    int rc = text ? kin_folder_make(dir, &err) : kin_err_set(&err, "it is not valid JSON");
    if (rc == 0) rc = kin_whole_file_write(path, text, strlen(text), &err);
    if (rc != 0) kin_log(KIN_LOG_WARN, "the profile was not stored: %s", err.text);
    free(text);
    json_decref(root);
}

static int measure(kin_device_facts *out, const kin_devices *devices, const char *name, const char *dir,
                   const kin_console *console, kin_err *err) {
    kin_profile_options o = {.name = name, .disk_dir = dir, .stop = console->stop, .progress = console->progress};
    if (dir)
        console->log("measuring this machine, once ...");
    else
        console->log(
            "measuring this machine ... (the result cannot be stored; set a directory with --cache DIR to measure only once)");
    int rc = kin_profile_measure(out, devices, &o, err);
    console->clear_progress();
    kin_memory_reset_peak(); // memory for measuring is not part of the work's peak
    return rc;
}

static void make_ours(kin_device_facts *facts, const kin_devices *devices, const char *name) {
    kin_label_set(facts->name, sizeof facts->name - 1, name);
    facts->has_gpu = facts->has_gpu && devices->gpu.backend;
    kin_profile_refresh(facts, devices, 0);
}

int kin_profile_obtain(kin_device_facts *out, const kin_devices *devices, const char *name, const char *cache_dir, bool refresh,
                       const kin_console *console, kin_err *err) {
    char fingerprint[MAX_FINGERPRINT], path[1100];
    kin_profile_fingerprint(devices, fingerprint, sizeof fingerprint);
    if (cache_dir && file_of(cache_dir, fingerprint, path, sizeof path) != 0) cache_dir = NULL;
    bool is_kept = !refresh && cache_dir && load(path, fingerprint, out);
    if (is_kept) make_ours(out, devices, name);
    if (is_kept && is_believed(out, path)) {
        // The disk was full, or cannot be measured; that may have changed.
        if (out->disk_bytes_s <= 0 && kin_profile_measure_disk(out, cache_dir, console->stop))
            save(cache_dir, path, fingerprint, out);
        return 0;
    }
    kin_err why;
    if (cache_dir && kin_folder_make(cache_dir, &why) != 0) {
        kin_log(KIN_LOG_WARN, "%s", why.text);
        cache_dir = NULL;
    }
    int rc = measure(out, devices, name, cache_dir, console, err);
    kin_memory_trim(); // 10 to 14 MiB of a device that goes on running
    if (rc != 0) return KIN_FAIL;
    if (cache_dir) save(cache_dir, path, fingerprint, out);
    return 0;
}

int kin_profile_read(kin_device_facts *out, const kin_devices *devices, const char *name, const char *path, kin_err *err) {
    json_t *json = kin_json_text_load(path, err);
    if (!json) return kin_err_prefix(err, "this machine's profile (--profile)");
    int rc = kin_facts_file_device_from_json(json, out, err);
    json_decref(json);
    if (rc != 0) return kin_err_prefix(err, "this machine's profile (--profile): %s", path);
    make_ours(out, devices, name);
    return 0;
}
