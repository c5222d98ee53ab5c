// What the loss of a device costs where devices share layers, before or after it (pure/plan/loss.h has the words and the rings).
//
//     pages    as in rings, if all groups, their shares and their layers stay as they are: a single device is lost, and its
//     layers
//              go to single ones. Else there is nothing but
//     compute: of a layer that is shared each member keeps pages of its own heads, which are of no use for another share, and
//              nothing is logged at the borders between members
//     load     a device reads all of a layer of which it has another part than before
//     fetch    it lacks what its new part has beside the old one
//
// Plain functions.
#pragma once

#include "pure/plan/group.h"
#include "pure/plan/loss.h"

// A plan with groups, or without (n 0).
typedef struct kin_loss_side {
    const kin_grouping *grouping;
    const kin_plan *plan; // of the facts with these groups (kin_grouping_apply)
} kin_loss_side;

// As kin_loss_predict. facts: of the devices as they are. Fails, too, where the groups cannot be.
int kin_loss_predict_grouped(const kin_facts *facts, const kin_loss_side *before, const kin_loss_side *after, int device,
                             kin_loss *out, kin_err *err);
