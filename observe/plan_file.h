// Manual plans, as JSON:
//
//   {"devices": [{"device": "tower", "window": 8, "gpu_layers": 4, "memory": "6G"},
//                {"device": "laptop", "window": 4},
//                {"device": "head", "window": 2}]}
//
// In the order of the ring; the head comes last wherever it is listed. window: layers in each round. gpu_layers: how many of them
// run on the GPU (0). memory: limit for the device ("6G" or bytes; default: what it can spare). The number of rounds follows: as
// many as are needed to place all layers.
#pragma once

#include "pure/plan/manual_plan.h"

// "head" stands for `head_name`. Error messages name the file and the place.
int kin_plan_file_read(const char *path, const char *head_name, kin_manual_plan *plan, kin_err *err);
