// GGUF: metadata and tensor directory of a model file, or of a model in several files (NAME-00001-of-0000N.gguf).
//
// Nothing is copied: keys, strings, arrays and tensor data point into the mapped files and live until kin_gguf_close.
// Everything is checked before it is handed out: a kin_gguf that opened holds only known types, shapes whose sizes fit, and
// tensors that lie inside their file. Weights are not read here; their pages are loaded when they are first used.
//
// Owner: whoever opened it. Thread: any, nothing mutates after open but what concerns files that change (below): one thread.
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (version 2 and 3, little-endian).
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

typedef struct kin_gguf kin_gguf;

bool kin_str_eq(kin_str s, const char *text);

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
    int type;                      // enum ggml_type; always one that ggml knows, with a block size that divides ne[0]
    int n_dims;                    // 1..4
    int64_t ne[KIN_GGUF_MAX_DIMS]; // elements per dimension, fastest first; 1 beyond n_dims; all > 0
    uint64_t n_bytes;
    uint64_t offset;     // from the start of its file
    int i_file;          // which of kin_gguf_file_path
    const uint8_t *data; // [n_bytes] in the mapping
} kin_gguf_tensor;

// Opens `path`; if it is one part of a split model, all parts beside it. Fails with a sentence that names the file.
int kin_gguf_open(kin_gguf **out, const char *path, kin_err *err);

// The same over one file's bytes in memory (tests, fuzzers); the caller keeps them alive. `name` is used in errors.
int kin_gguf_open_bytes(kin_gguf **out, const char *name, const uint8_t *bytes, size_t size, kin_err *err);

void kin_gguf_close(kin_gguf *gguf);

typedef enum kin_header_state {
    KIN_HEADER_WHOLE,  // *reach is its length: metadata and directory, up to where tensor data may begin
    KIN_HEADER_MORE,   // *reach bytes are needed at least to say more
    KIN_HEADER_BROKEN, // not a GGUF file that could be opened: the sentence says why
} kin_header_state;

// How far the header of a GGUF file of file_size bytes reaches, judged by its first n bytes // bytes [n]
kin_header_state kin_header_measure(const uint8_t *bytes, uint64_t n, uint64_t file_size, uint64_t *reach, kin_err *err);

// Metadata. Integers of any width and sign convert if the value fits; floats likewise.
// `get`: 0 if found, KIN_ABSENT if the key is not there (value untouched), KIN_FAIL if it is there but of another kind or out of
// range.
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

// Element i of a numeric or boolean array as a double / integer. i < n.
double kin_gguf_array_f64(const kin_gguf_array *array, uint64_t i);
int64_t kin_gguf_array_i64(const kin_gguf_array *array, uint64_t i);

// The string at *cursor of a string array, moving *cursor to the next one. Start with *cursor = array->at; call n times.
kin_str kin_gguf_array_next_str(const uint8_t **cursor);

// All metadata in file order, for `kin info`: key and kind of entry i, and its value written as short text into buf.
size_t kin_gguf_n_meta(const kin_gguf *gguf);
kin_str kin_gguf_meta_key(const kin_gguf *gguf, size_t i);
const char *kin_gguf_meta_text(const kin_gguf *gguf, size_t i, char *buf, size_t n);

// Tensors in directory order; by name NULL if absent.
size_t kin_gguf_n_tensors(const kin_gguf *gguf);
const kin_gguf_tensor *kin_gguf_tensor_at(const kin_gguf *gguf, size_t i);
const kin_gguf_tensor *kin_gguf_find_tensor(const kin_gguf *gguf, const char *name);

// "q4_K" for an enum ggml_type; NULL for a number that is none.
const char *kin_gguf_type_name(int type);

// Files of the model: 1, or N for a split one.
int kin_gguf_n_files(const kin_gguf *gguf);
bool kin_gguf_on_disk(const kin_gguf *gguf); // false for bytes in memory: their path is only a name
const char *kin_gguf_file_path(const kin_gguf *gguf, int i_file);
int kin_gguf_file_fd(const kin_gguf *gguf, int i_file); // open until close; -1 for bytes in memory
uint64_t kin_gguf_file_size(const kin_gguf *gguf, int i_file);

// Copies `n` bytes of a tensor, from byte `at` of it on, without touching the mapping: reading a few bytes through a mapping
// makes the OS read megabytes around them. Fails when the file cannot be read any more.
int kin_gguf_read(const kin_gguf *gguf, const kin_gguf_tensor *tensor, uint64_t at, void *to, size_t n, kin_err *err);

// ---- files that change
//
// A model is computed with while its files can be written to: copied over (cp, wget -O), patched (rsync --inplace), emptied. The
// mapping shows that at once, so whoever computes checks the files before a result is given out. A file that another one takes
// the place of by a rename is still there for who has it open, with its content: that is no change.

// Fails, with a sentence that names the file and says what to do, if one of them was written to or cut since it was opened.
// Where only its time of change differs, the sample is taken again and decides. Bytes in memory do not change.
int kin_gguf_check_files(kin_gguf *gguf, kin_err *err);

// What was read of the files since they were opened is theirs: none was written to or cut meanwhile. Any thread; the sample is
// not looked at.
int kin_gguf_check_reads(const kin_gguf *gguf, kin_err *err);

// As kin_gguf_check_files; and their names lead to them still, for who is going to open them by name.
int kin_gguf_check_names(kin_gguf *gguf, kin_err *err);

// Chunks that are fetched are still written to these files: only a file that was cut counts as changed.
void kin_gguf_set_filled(kin_gguf *gguf);

// A hash of the tensors' names, shapes, types and a few bytes of each; taken once. Never 0.
int kin_gguf_sample(kin_gguf *gguf, uint64_t *sample, kin_err *err);

// Of the files as they were opened: another number after every change of one of them, and for a copy.
uint64_t kin_gguf_version(const kin_gguf *gguf);
