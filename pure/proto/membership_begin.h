// An epoch begins, and its ring comes up.
#pragma once

#include "pure/proto/membership_state.h"

// Begins an epoch with this plan; question: whose answer it is.
void kin_membership_begin_epoch(kin_membership *r, uint32_t question, int n, const uint8_t *members, const uint64_t *works);
// Brings the ring up when it is ready.
void kin_membership_check_ready(kin_membership *r);
// Logs what the membership does now.
void kin_membership_log_doing(kin_membership *r);
