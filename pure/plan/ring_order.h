// The order of a ring's devices when another plan takes the place of one, as after the loss of a device.
//
// Schedulers choose between orders by small differences of links. But layers go by the order: where two devices change places all
// their weights and pages are read or fetched anew, which makes a pause long (loss.h).
#pragma once

#include "pure/plan/plan.h"

// Gives `plan` the order of `before`: devices in both as they were, others in the places of those that are gone, or behind them.
// Each keeps its share. It stays as it is where that makes a token 5 % slower (kin_plan_is_worth_changing), where links are
// missing, and where it has relays. before: numbered by the same facts, -1: a device that is gone; only its stops are read.
void kin_plan_keep_order(const kin_facts *facts, const kin_plan *before, kin_plan *plan);
