// The planner's answers, ring links and their faults, requests.
#pragma once

#include "pure/proto/membership_state.h"

void kin_membership_handle_plan(kin_membership *r, const kin_membership_event *event);
void kin_membership_handle_no_plan(kin_membership *r, const kin_membership_event *event);
void kin_membership_handle_ring(kin_membership *r, const kin_membership_event *event);
void kin_membership_handle_wrong(kin_membership *r, const kin_membership_event *event);
// A step was lost.
void kin_membership_handle_loss(kin_membership *r, const kin_membership_event *event);
// Device i received invalid data.
void kin_membership_blame_sender(kin_membership *r, int i, const char *reason);
// Rings have computed up to here: forgets faults if that is news.
void kin_membership_note_progress(kin_membership *r, uint64_t progress);
void kin_membership_handle_request(kin_membership *r, const kin_membership_event *event);
// Reports a broken link when it is time.
void kin_membership_check_break(kin_membership *r);
// Leaves out an end of a link that was closed for too long.
void kin_membership_check_ring(kin_membership *r);
// Asks the planner when it is time.
void kin_membership_check_due(kin_membership *r);
