// Keeps the order of a ring's devices when another plan replaces one, as after the loss of a device.
//
// Schedulers choose between orders by small differences of links. But the order determines the layers: if two devices swap
// places, all their weights and pages are read or fetched anew, which makes a pause long (loss.h).
#pragma once

#include "pure/plan/plan.h"

// Gives `plan` the order of `before`: devices in both keep their order; others take the places of those that are gone, or follow.
// Each device keeps its share. The plan stays unchanged if the new order makes a token 5 % slower (kin_plan_is_worth_changing),
// if links are missing, and if the plan has relays. before: uses the device numbers of the same facts, -1 for a device that is
// gone; only its stops are read.
void kin_plan_keep_order(const kin_facts *facts, const kin_plan *before, kin_plan *plan);
