// See ggml.h. Memory for a graph's tensors: two tensors share memory if the last reader of one comes before the other is written.
#pragma once

#include "ggml-backend.h"

typedef struct ggml_gallocr *ggml_gallocr_t;

ggml_gallocr_t ggml_gallocr_new(ggml_backend_buffer_type_t buft);
void ggml_gallocr_free(ggml_gallocr_t galloc);
bool ggml_gallocr_reserve(ggml_gallocr_t galloc, struct ggml_cgraph *graph);     // allocates memory
bool ggml_gallocr_alloc_graph(ggml_gallocr_t galloc, struct ggml_cgraph *graph); // assigns the tensors their addresses
size_t ggml_gallocr_get_buffer_size(ggml_gallocr_t galloc, int i);
