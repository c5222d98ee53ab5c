// Plans that a person wrote, as JSON:
//
//   {"devices": [{"device": "tower", "window": 8, "gpu_layers": 4, "memory": "6G"},
//                {"device": "laptop", "window": 4},
//                {"device": "head", "window": 2}]}
//
// In the order of the ring; the head comes last wherever it stands. window: layers in each round. gpu_layers: how many of them
// run on the GPU (0). memory: what the device may use ("6G" or bytes; default: what it can spare). The rounds follow: as many as
// it takes until all layers are given out.
#pragma once

#include "pure/plan/manual_plan.h"

// "head" is `head_name` from then on. The sentence names the file and the place.
int kin_plan_file_read(const char *path, const char *head_name, kin_manual_plan *plan, kin_err *err);
