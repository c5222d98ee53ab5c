// The cost of losing a device if devices share layers before or after the loss (pure/plan/loss.h has the terms, and covers rings
// without groups).
//
//     pages    as in loss.h if all groups, their shares and their layers stay the same: a single device is lost, and its layers
//              go to single devices. Otherwise only compute is possible
//     compute  each member of a group keeps pages of its own heads only, which are useless for another share, and nothing is
//              logged at the borders between members
//     load     a device reads a layer completely if its part of the layer changes
//     fetch    the part of it that the device did not have before
//
// Pure functions.
#pragma once

#include "pure/plan/group.h"
#include "pure/plan/loss.h"

// Like kin_loss_predict. facts: of the single devices. Also fails if the groups are not possible.
int kin_loss_predict_grouped(const kin_facts *facts, const kin_plan *before, const kin_plan *after, int device, kin_loss *out,
                             kin_err *err);
