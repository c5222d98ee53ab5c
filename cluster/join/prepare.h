// From a plan to a device that is ready for it. Thread: the loop's.
#pragma once

#include "cluster/join/joining.h"

void kin_join_open_prepare(kin_join *j); // before the first plan
void kin_join_handle_plan(kin_join *j, uint32_t epoch, const kin_proto_plan *plan);
void kin_join_prepare(kin_join *j, uint32_t ticket);
void kin_join_reuse(kin_join *j, uint32_t epoch);
// Called when the instance of the preparation `ticket` is open.
void kin_join_handle_instance(kin_join *j, uint32_t ticket, const kin_proto_ready *ready);
