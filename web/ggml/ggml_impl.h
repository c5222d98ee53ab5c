// The graph struct, for the files that implement ggml.h here.
#pragma once

#include "ggml.h"

struct ggml_cgraph {
    int n, most;
    struct ggml_tensor *nodes[]; // [most], n of them used, in the order of computation
};
