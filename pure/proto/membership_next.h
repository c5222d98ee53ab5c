// The plan that is prepared beside the epoch in force.
#pragma once

#include "pure/proto/membership_state.h"

// The planner's answer is better than the plan in force: prepares it, unless that has begun already.
void kin_membership_prepare_next(kin_membership *r, const kin_membership_event *event, const uint8_t *members,
                                 const uint64_t *works);
// There is no better plan without the slow devices: plans with all again.
void kin_membership_end_soon(kin_membership *r);
void kin_membership_handle_prefetched(kin_membership *r, const kin_membership_event *event);
// Switches to the next plan, speeds it up or gives it up, when it is time.
void kin_membership_check_next(kin_membership *r);
