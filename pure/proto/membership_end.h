// Ends: of an epoch, of the plan that is being prepared, and of a device's part for a while.
#pragma once

#include "pure/proto/membership_state.h"

// Ends the epoch because of `reason`; requests fail with it. Does nothing if no epoch is in force.
void kin_membership_end_epoch(kin_membership *r, const char *reason);
// Drops the plan that is being prepared; the second: if device i is part of it.
void kin_membership_drop_next(kin_membership *r);
void kin_membership_drop_next_with(kin_membership *r, int i);
// Leaves the device out for a while, longer each time; ends an epoch that it is part of with `sentence`.
void kin_membership_leave_out(kin_membership *r, int i, const char *sentence);
// Returns the time for which a device is left out after n_failures.
uint64_t kin_membership_rest_ns(const kin_membership *r, int n_failures);
// Reports the broken link, as `sentence`: to the requests that it ended, or to the log.
void kin_membership_log_break(kin_membership *r, kin_log_level level, const char *sentence);
// Reports each event in one line: if it ends running requests, they get the sentence, otherwise the log does. `sentence`: what
// happened to device i. Call before the epoch ends because of it.
void kin_membership_log_once(kin_membership *r, int i, kin_log_level level, const char *sentence);
