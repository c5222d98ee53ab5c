// Facts as JSON, for people and programs: the input of `kin plan --what-if`, the saved state of a cluster, the stored profile of
// a device. docs/PLANNING.md describes the format.
//
//   {"devices": [{"name": "tower", "memory_bytes": "24G", "disk_bytes_per_s": 3e9, "cpu": {...}, "gpu": {...}}, ...],
//    "links": {"default": {"rtt_s": 0.002, "bytes_per_s": 40e6},
//              "pairs": [{"from": "tower", "to": "phone", "rtt_s": 0.009, "bytes_per_s": 6e6}]},
//    "model": {...}, "work": {...}}
//
// Reading rejects unknown keys, wrong types and duplicate names, with one sentence that tells the place. It does not judge
// values; kin_facts_screen does. Written facts read back as the same bits. Two things are not stored, because they have no
// meaning: a device's link with itself, and GPU figures of a device without a GPU.
//
// Plain functions without state.
#pragma once

#include <jansson.h>

#include "pure/plan/facts.h"

// Without "model" in the file, model.n_layer is 0. Error messages begin with the path.
int kin_facts_file_read(const char *path, kin_facts *facts, kin_err *err);

// Omits a model without layers. Numbers that JSON does not have (NaN) are an error, and the file stays unchanged.
int kin_facts_file_write(const char *path, const kin_facts *facts, kin_err *err);

// Converts the whole facts. to_json: returns a new reference, NULL with an error message.
json_t *kin_facts_file_to_json(const kin_facts *facts, kin_err *err);
int kin_facts_file_from_json(const json_t *json, kin_facts *facts, kin_err *err);

// Converts one device. Returns a new reference; NULL if the facts have numbers that JSON does not have, or a name that is not
// UTF-8.
json_t *kin_facts_file_device_to_json(const kin_device_facts *device);
int kin_facts_file_device_from_json(const json_t *json, kin_device_facts *device, kin_err *err);
