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
#include "model/gguf_parse.h"
#include "model/gguf_value.h"

typedef struct kin_gguf kin_gguf;

// Opens `path`; for one part of a split model, all parts beside it. Errors name the file.
int kin_gguf_open(kin_gguf **out, const char *path, kin_err *err);

// Does the same for one file's bytes in memory (tests, fuzzers), which the caller keeps alive. `name` is used in errors.
int kin_gguf_open_bytes(kin_gguf **out, const char *name, const uint8_t *bytes, size_t size, kin_err *err);

void kin_gguf_close(kin_gguf *gguf);

// Metadata. Integers of any width and sign convert if the value fits; floats likewise. `get` returns 0 if found, KIN_ABSENT if
// the key does not exist (value untouched), KIN_FAIL if it has another kind or is out of range.
int kin_gguf_get_u32(const kin_gguf *gguf, const char *key, uint32_t *value, kin_err *err);
int kin_gguf_get_f32(const kin_gguf *gguf, const char *key, float *value, kin_err *err);
int kin_gguf_get_bool(const kin_gguf *gguf, const char *key, bool *value, kin_err *err);
int kin_gguf_get_str(const kin_gguf *gguf, const char *key, kin_str *value, kin_err *err);
int kin_gguf_get_array(const kin_gguf *gguf, const char *key, kin_gguf_array *array, kin_err *err);

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
