// Determines which bytes of a model's files a device needs: the headers, and the weights of its layers.
//
// A device without the files begins with their headers, whose length is unknown until they are read: kin_header_measure
// (model/gguf.h) says how many more bytes are needed. Once all headers are present, the sparse files open as a model (holes are
// never read), and kin_ranges_* determines the rest.
//
// Plain data and pure functions over an opened GGUF. Thread: any.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "model/gguf.h"
#include "model/manifest.h"
#include "model/slice.h"

typedef struct kin_range {
    int i_file;
    uint64_t offset; // in the file
    uint64_t bytes;
} kin_range;

typedef struct kin_ranges_wanted {
    int layer_begin, layer_end; // [begin, end)
    kin_slices slices;          // of the layers' weights; zeros: all are whole
    bool header;                // of every file
    bool embedding;
    bool output; // norm and matrix; the embedding if the two are tied
} kin_ranges_wanted;

enum { KIN_RANGES_RUNS_MAX = 1 << 14 };

// Lists what is wanted, in the order of need: headers, embedding, tensors that belong to no layer but that every device uses
// (rope factors), layer after layer, output. Neighbours in a file are merged. A slice of rows is one range (for experts'
// matrices: one per expert), a slice of columns one range per row; a slice of more than KIN_RANGES_RUNS_MAX runs becomes one
// range from its first byte to its last. The caller frees *ranges. Fails if a layer has no tensors, or a tensor has no such
// slice.
int kin_ranges_list(const kin_gguf *gguf, const kin_ranges_wanted *wanted, kin_range **ranges, size_t *n, kin_err *err);

uint64_t kin_ranges_bytes(const kin_range *ranges, size_t n);

// Lists the chunks that hold the ranges, each once, in the order in which the ranges first need them. The caller frees *chunks.
// Fails if the ranges are not within the manifest's files.
int kin_ranges_chunks(const kin_manifest *m, const kin_range *ranges, size_t n, uint32_t **chunks, size_t *n_chunks,
                      kin_err *err);

// Marks the chunks that no other device can need: those with no header, no layer and no tensor that every device uses, so only
// parts of the embedding and the output layer, which stay on the head. is_private // [m->n_chunks]. Fails if the tensors are not
// within the manifest's files.
int kin_ranges_private(const kin_gguf *gguf, const kin_manifest *m, bool *is_private, kin_err *err);
