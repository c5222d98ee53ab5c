// Explanations: one sentence per device, with its layers and the effect of leaving it out or of using it.
//
// They are found by planning again with the device forced out or in. For people; `kin plan` prints them.
#pragma once

#include "pure/plan/scheduler.h"

enum { KIN_PLAN_EXPLAIN_MAX = 240, KIN_PLAN_WHY_MAX = 160 };

// The best plan without one device.
typedef struct kin_plan_without {
    kin_plan plan; // n_stops is 0 if the others have no plan
    double more_s; // how much longer a token takes; negative: less; infinite: the others lack memory for the model;
                   // NAN: it is the head, or has no layers
} kin_plan_without;

// Writes sentences // [n_device] such as "phone left out: it would add 180 ms/token" and "desktop: 32 layers, all on the GPU;
// without it 240 ms/token more". plan: the result of kin_plan_playoff with these options. Makes up to n_device more plans.
// without // [n_device] gets the plan without each device that has layers.
int kin_plan_explain(const kin_facts *facts, const kin_plan_options *options, const kin_plan *plan,
                     char sentences[][KIN_PLAN_EXPLAIN_MAX], kin_plan_without *without, kin_err *err);

// Explains one device that has no layers in the plan although it is usable: "it would add 180 ms/token". Makes one more plan. The
// plan may be an older one that is not the best with these facts.
int kin_plan_explain_left_out(const kin_facts *facts, const kin_plan_options *options, const kin_plan *plan, int device,
                              char why[KIN_PLAN_WHY_MAX], kin_err *err);
