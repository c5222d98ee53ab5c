// Joining: a device that takes part in a ring, from searching for a head to computing its layers, until it is stopped.
//
// Two threads: the caller's computes (it owns the instance, pipeline/engine_instance.h), the endpoint's has the links and the
// membership (pure/proto/member.h). The parts of the model that the plan needs come from the device's own file, or from the head
// and other devices (fetch/fetch.h).
#pragma once

#include "cluster/device_options.h"

// Returns 0 if `stop` was set; KIN_FAIL if it cannot start, if a step hung and then continued, or if the head will never accept
// this device: the one at `head` has another key, or refuses it for good.
int kin_join_run(const kin_join_options *options, kin_err *err);
