// Facts as JSON, for people and for programs: what `kin plan --what-if` reads, what is saved of a cluster, what is kept of a
// device. docs/PLANNING.md describes the format.
//
//   {"devices": [{"name": "tower", "memory_bytes": "24G", "disk_bytes_per_s": 3e9, "cpu": {...}, "gpu": {...}}, ...],
//    "links": {"default": {"rtt_s": 0.002, "bytes_per_s": 40e6},
//              "pairs": [{"from": "tower", "to": "phone", "rtt_s": 0.009, "bytes_per_s": 6e6}]},
//    "model": {...}, "work": {...}}
//
// Reading refuses what it does not understand: unknown keys, wrong types, names that are there twice, with one sentence that
// tells the place. It does not judge values; kin_facts_screen does. What is written reads back as the same bits. Two things are
// not kept, because they mean nothing: a device's link with itself, and GPU figures of a device without a GPU.
//
// Plain functions without state.
#pragma once

#include <jansson.h>

#include "pure/plan/facts.h"

// Without "model" in it, model.n_layer is 0. Sentences begin with the path.
int kin_facts_file_read(const char *path, kin_facts *facts, kin_err *err);

// A model without layers is left out. Numbers that JSON does not have (NaN) are an error, and the file stays as it was.
int kin_facts_file_write(const char *path, const kin_facts *facts, kin_err *err);

// The whole as a value. to_json: a new reference, NULL with a sentence.
json_t *kin_facts_file_to_json(const kin_facts *facts, kin_err *err);
int kin_facts_file_from_json(const json_t *json, kin_facts *facts, kin_err *err);

// One device. A new reference; NULL if the facts have numbers that JSON does not have, or a name that is no UTF-8.
json_t *kin_facts_file_device_to_json(const kin_device_facts *device);
int kin_facts_file_device_from_json(const json_t *json, kin_device_facts *device, kin_err *err);
