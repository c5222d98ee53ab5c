// The computing thread: opens instances, computes steps, and reports results to the loop's thread.
#pragma once

#include "cluster/join/joining.h"

// Runs the computing thread. Returns as kin_join_run does.
int kin_join_compute(kin_join *j, kin_err *err);
// Closes the instance; with a sliding window logs its memory. Call from the computing thread, or after all threads have stopped.
void kin_join_close_instance(kin_join *join);
