// Explanations: one sentence for every device: its layers, and what leaving it out, or using it, would change.
//
// Found by planning again with the device forced out or in. For people; `kin plan` prints them.
#pragma once

#include "pure/plan/scheduler.h"

enum { KIN_PLAN_EXPLAIN_MAX = 240, KIN_PLAN_WHY_MAX = 160 };

// sentences // [n_device]. plan: of kin_plan_playoff with these options. n_device more plans are made; those without a device
// that has layers come out in `without` // [n_device], where there is none n_stops is 0. NULL: not wanted. "phone left out: it
// would add 180 ms/token", "desktop: 32 layers, all on the GPU; without it 240 ms/token more".
int kin_plan_explain(const kin_facts *facts, const kin_plan_options *options, const kin_plan *plan,
                     char sentences[][KIN_PLAN_EXPLAIN_MAX], kin_plan *without, kin_err *err);

// Of one device that the plan has no layers for, though it could be planned with: "it would add 180 ms/token". One more plan is
// made. The plan may be an older one, which is not the best by these facts.
int kin_plan_explain_left_out(const kin_facts *facts, const kin_plan_options *options, const kin_plan *plan, int device,
                              char why[KIN_PLAN_WHY_MAX], kin_err *err);
