// Internals of kin_gguf, shared by the files that implement it:
//   gguf_parse.c  bytes of one file -> metadata entries and tensor directory, every count and offset checked
//   gguf_meta.c   values of metadata entries
//   gguf.c        opening, the parts of a split model, tensors by name
// Private: other code includes model/gguf.h.
#pragma once

#include <stdatomic.h>

#include "model/gguf.h"
#include "model/name_index.h"
#include "sys/file.h"

typedef struct kin_gguf_meta {
    kin_str key;
    kin_gguf_kind kind;
    const uint8_t *value; // the scalar; a string's u64 length; an array's u32 element kind. Lies entirely within the file.
} kin_gguf_meta;

typedef struct kin_gguf_file {
    char *path;
    uint64_t size;
    kin_file map;            // not open for bytes in memory
    kin_file_identity known; // as it was when opened, or later with the same content; guarded by `lock`
    atomic_flag lock;
} kin_gguf_file;

struct kin_gguf {
    kin_gguf_file *files; // [n_files]
    int n_files;
    kin_gguf_meta *meta; // [n_meta], of the first file
    size_t n_meta;
    kin_name_index keys;      // of meta
    kin_gguf_tensor *tensors; // [n_tensors], of all files
    size_t n_tensors;
    kin_name_index tensor_names;
    atomic_bool is_filled;        // kin itself writes to the files
    atomic_uint_least64_t sample; // hash of the tensors; every thread computes the same value. 0: not computed
};

// For "%.*s": names in errors are cut after 80 bytes.
#define KIN_STR_SHOWN(s) (int)((s).len < 80 ? (s).len : 80), (s).at

// Fills meta, keys and tensors (not tensor_names) of an empty gguf. The error does not name the file. After a failure
// kin_gguf_close frees what was allocated.
int kin_gguf_parse(kin_gguf *gguf, const uint8_t *bytes, uint64_t size, kin_err *err);

// Returns the bytes of one value of a fixed-size kind; 0 for strings, arrays and unknown kinds.
size_t kin_gguf_kind_size(uint32_t kind);

// NULL if absent.
const kin_gguf_meta *kin_gguf_find_meta(const kin_gguf *gguf, const char *key);

// The error names the key, not the file.
int kin_gguf_meta_u32(const kin_gguf_meta *meta, uint32_t *value, kin_err *err);
