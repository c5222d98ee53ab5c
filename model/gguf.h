// GGUF: metadata and tensor directory of a model file, or of a model in several files (NAME-00001-of-0000N.gguf).
//
// Nothing is copied: keys, strings, arrays and tensor data point into the mapped files and live until kin_gguf_close. Everything
// is checked when it is opened: a kin_gguf holds only known types, shapes whose sizes fit, and tensors that lie inside their
// file. Weights are not read here; their pages are loaded when they are first used.
//
// Owner: the code that opened it. Thread: any; after open nothing is modified except by the functions about changing files
// (below), which say their thread.
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (version 2 and 3, little-endian).
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

typedef struct kin_gguf kin_gguf;

typedef enum kin_gguf_kind { // the value types of the format, with its numbers
    KIN_GGUF_U8 = 0,
    KIN_GGUF_I8 = 1,
    KIN_GGUF_U16 = 2,
    KIN_GGUF_I16 = 3,
    KIN_GGUF_U32 = 4,
    KIN_GGUF_I32 = 5,
    KIN_GGUF_F32 = 6,
    KIN_GGUF_BOOL = 7,
    KIN_GGUF_STRING = 8,
    KIN_GGUF_ARRAY = 9,
    KIN_GGUF_U64 = 10,
    KIN_GGUF_I64 = 11,
    KIN_GGUF_F64 = 12,
} kin_gguf_kind;

#define KIN_GGUF_MAX_DIMS 4

typedef struct kin_gguf_tensor {
    kin_str name;
    int type;                      // enum ggml_type; always known to ggml, with a block size that divides ne[0]
    int n_dims;                    // 1..4
    int64_t ne[KIN_GGUF_MAX_DIMS]; // elements per dimension, fastest first; 1 beyond n_dims; all > 0
    uint64_t n_bytes;
    uint64_t offset;     // from the start of its file
    int i_file;          // index for kin_gguf_file_path
    const uint8_t *data; // [n_bytes] in the mapping
} kin_gguf_tensor;

// Opens `path`; for one part of a split model, all parts beside it. Errors name the file.
int kin_gguf_open(kin_gguf **out, const char *path, kin_err *err);

// Does the same for one file's bytes in memory (tests, fuzzers), which the caller keeps alive. `name` is used in errors.
int kin_gguf_open_bytes(kin_gguf **out, const char *name, const uint8_t *bytes, size_t size, kin_err *err);

void kin_gguf_close(kin_gguf *gguf);

typedef enum kin_header_state {
    KIN_HEADER_WHOLE,  // *reach is its length: metadata and directory, up to where tensor data may begin
    KIN_HEADER_MORE,   // at least *reach bytes are needed to say more
    KIN_HEADER_BROKEN, // not a valid GGUF file: the error says why
} kin_header_state;

// Measures how far the header of a GGUF file of file_size bytes reaches, from its first n bytes // bytes [n]
kin_header_state kin_header_measure(const uint8_t *bytes, uint64_t n, uint64_t file_size, uint64_t *reach, kin_err *err);

// Metadata. Integers of any width and sign convert if the value fits; floats likewise. `get` returns 0 if found, KIN_ABSENT if
// the key does not exist (value untouched), KIN_FAIL if it has another kind or is out of range.
int kin_gguf_get_u32(const kin_gguf *gguf, const char *key, uint32_t *value, kin_err *err);
int kin_gguf_get_f32(const kin_gguf *gguf, const char *key, float *value, kin_err *err);
int kin_gguf_get_bool(const kin_gguf *gguf, const char *key, bool *value, kin_err *err);
int kin_gguf_get_str(const kin_gguf *gguf, const char *key, kin_str *value, kin_err *err);

// Arrays. `kind` is the element kind; strings are walked with kin_gguf_array_next_str.
typedef struct kin_gguf_array {
    kin_gguf_kind kind;
    uint64_t n;
    const uint8_t *at; // unaligned little-endian elements
} kin_gguf_array;

int kin_gguf_get_array(const kin_gguf *gguf, const char *key, kin_gguf_array *array, kin_err *err);

// Return element i (< n) of a numeric or boolean array as a double / integer.
double kin_gguf_array_f64(const kin_gguf_array *array, uint64_t i);
int64_t kin_gguf_array_i64(const kin_gguf_array *array, uint64_t i);

// Returns the string at *cursor of a string array and advances *cursor. Start with *cursor = array->at; call at most n times.
kin_str kin_gguf_array_next_str(const uint8_t **cursor);

// All metadata in file order, for `kin info`: the key of entry i, and its value as short text written to buf.
size_t kin_gguf_n_meta(const kin_gguf *gguf);
kin_str kin_gguf_meta_key(const kin_gguf *gguf, size_t i);
const char *kin_gguf_meta_text(const kin_gguf *gguf, size_t i, char *buf, size_t n);

// Tensors in directory order, or by name (NULL if absent).
size_t kin_gguf_n_tensors(const kin_gguf *gguf);
const kin_gguf_tensor *kin_gguf_tensor_at(const kin_gguf *gguf, size_t i);
const kin_gguf_tensor *kin_gguf_find_tensor(const kin_gguf *gguf, const char *name);

// Returns a name such as "q4_K" for an enum ggml_type; NULL for an unknown number.
const char *kin_gguf_type_name(int type);

// The model's files: 1, or N for a split model.
int kin_gguf_n_files(const kin_gguf *gguf);
bool kin_gguf_on_disk(const kin_gguf *gguf); // false for bytes in memory: their path is only a name
const char *kin_gguf_file_path(const kin_gguf *gguf, int i_file);
int kin_gguf_file_fd(const kin_gguf *gguf, int i_file); // open until close; -1 for bytes in memory
uint64_t kin_gguf_file_size(const kin_gguf *gguf, int i_file);

// Copies `n` bytes of a tensor, from its byte `at` on, without touching the mapping: reading a few bytes through a mapping makes
// the OS read megabytes around them. Fails if the file can no longer be read.
int kin_gguf_read(const kin_gguf *gguf, const kin_gguf_tensor *tensor, uint64_t at, void *to, size_t n, kin_err *err);

// ---- files that change
//
// A model's files can be written to while it is in use: copied over (cp, wget -O), patched (rsync --inplace), emptied. The
// mapping shows that at once, so the files are checked before a result is returned. A file replaced by a rename does not count as
// changed: its old content stays available to processes that have it open.

// Fails if one of the files was written to or truncated since it was opened; the error names it and says what to do. If only the
// modification time differs, the tensors are sampled again to decide. Bytes in memory do not change.
int kin_gguf_check_files(kin_gguf *gguf, kin_err *err);

// Confirms that everything read since the files were opened is valid: none was written to or truncated. Any thread; does not
// check the sample.
int kin_gguf_check_reads(const kin_gguf *gguf, kin_err *err);

// Like kin_gguf_check_files, and also checks that the paths still lead to these files, for callers that will open them by name.
int kin_gguf_check_names(kin_gguf *gguf, kin_err *err);

// Fetched chunks are still being written to these files: from now on only a truncated file counts as changed.
void kin_gguf_set_filled(kin_gguf *gguf);

// Computes a hash of the tensors' names, shapes, types and a few bytes of each; computed only once. Never 0.
int kin_gguf_sample(kin_gguf *gguf, uint64_t *sample, kin_err *err);

// Returns a number that identifies the files as they were opened: it differs after every change of one of them, and for a copy.
uint64_t kin_gguf_version(const kin_gguf *gguf);
