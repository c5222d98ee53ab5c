// Writes GGUF files (version 3) for tests and benchmarks: any metadata, any tensors, one file or a split model.
//
// Collect metadata and tensors, then save. Metadata is copied. Tensor data is not: it is borrowed, or produced row by row while
// the file is written, so that a model of many GB needs a few MB of memory. The writer checks only what it needs itself: tests
// also want broken files, and patch the bytes.
// Running out of memory is a broken invariant here, not an error. Owner: the creator. Thread: one.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "model/gguf.h"

typedef struct kin_gguf_writer kin_gguf_writer;

// Writes rows [row_begin, row_begin + n_rows) of a tensor to `out`, as in the file. A row has ne[0] elements.
// Called with rows in order, from save only.
typedef void (*kin_gguf_fill)(void *user, uint64_t row_begin, uint64_t n_rows, uint8_t *out);

kin_gguf_writer *kin_gguf_writer_new(void);
void kin_gguf_writer_free(kin_gguf_writer *w);

// Alignment of tensor data, a power of two; default 32. Adds general.alignment to the metadata.
void kin_gguf_writer_align(kin_gguf_writer *w, uint32_t alignment);

// Saves no tensor data: zeros, which take no space on disks with sparse files. For what reads only a file's header.
void kin_gguf_writer_hollow(kin_gguf_writer *w);

// Metadata, written in the order of the calls.
void kin_gguf_writer_put_int(kin_gguf_writer *w, const char *key, kin_gguf_kind kind, int64_t value); // integers and bool
void kin_gguf_writer_put_float(kin_gguf_writer *w, const char *key, kin_gguf_kind kind, double value);
void kin_gguf_writer_put_str(kin_gguf_writer *w, const char *key, const char *text);
// `elements`: n values of a fixed-size kind, as in the file (little-endian).
void kin_gguf_writer_put_array(kin_gguf_writer *w, const char *key, kin_gguf_kind kind, uint64_t n, const void *elements);
void kin_gguf_writer_put_strs(kin_gguf_writer *w, const char *key, uint64_t n, const char *const *texts);

// Tensors, written in the order of the calls. `type`: enum ggml_type; ne[n_dims], whole blocks per row.
// `data` [all bytes] is borrowed until the writer is freed.
void kin_gguf_writer_add(kin_gguf_writer *w, const char *name, int type, int n_dims, const int64_t *ne, const void *data);
void kin_gguf_writer_add_filled(kin_gguf_writer *w, const char *name, int type, int n_dims, const int64_t *ne, kin_gguf_fill fill,
                                void *user);

// Saving does not change the writer and may be repeated. After a failure the file is incomplete, which a reader notices.
int kin_gguf_writer_save(const kin_gguf_writer *w, const char *path, kin_err *err);

// Saves into memory. The caller must free() *bytes.
void kin_gguf_writer_save_bytes(const kin_gguf_writer *w, uint8_t **bytes, size_t *size);

// Saves as PREFIX-00001-of-0000N.gguf and so on. The tensors are dealt out in order, about the same number to each of 1 <=
// n_parts <= 99999.
int kin_gguf_writer_save_split(const kin_gguf_writer *w, const char *prefix, int n_parts, kin_err *err);
