// A graph, for the files that make ggml.h here.
#pragma once

#include "ggml.h"

struct ggml_cgraph {
    int n, most;
    struct ggml_tensor *nodes[]; // [most], n of them, in the order of computing
};
