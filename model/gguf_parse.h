// The parser of GGUF: the bytes of one file -> metadata entries and tensor directory, every count and offset checked.
//
// What it returns points into the bytes, which the caller keeps. Thread: any.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "model/gguf_value.h"
#include "model/name_index.h"

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

// The contents of a file. Owner: the struct that holds it.
typedef struct kin_gguf_content {
    kin_gguf_meta *meta; // [n_meta] in file order
    size_t n_meta;
    kin_name_index keys;      // of meta
    kin_gguf_tensor *tensors; // [n_tensors] in directory order
    size_t n_tensors;
} kin_gguf_content;

// Fills an empty content. The error does not name the file. Call fini also after a failure.
int kin_gguf_parse(kin_gguf_content *content, const uint8_t *bytes, uint64_t size, kin_err *err);
void kin_gguf_content_fini(kin_gguf_content *content);

// NULL if absent.
const kin_gguf_meta *kin_gguf_content_find(const kin_gguf_content *content, const char *key);

typedef enum kin_header_state {
    KIN_HEADER_WHOLE,  // *reach is its length: metadata and directory, up to where tensor data may begin
    KIN_HEADER_MORE,   // at least *reach bytes are needed to say more
    KIN_HEADER_BROKEN, // not a valid GGUF file: the error says why
} kin_header_state;

// Measures how far the header of a GGUF file of file_size bytes reaches, from its first n bytes // bytes [n]
kin_header_state kin_header_measure(const uint8_t *bytes, uint64_t n, uint64_t file_size, uint64_t *reach, kin_err *err);
