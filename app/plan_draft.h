// The predicted gain of a draft model under a plan (pure/plan/draft_gain.h), as text and as JSON. Stateless functions.
#pragma once

#include <jansson.h>
#include <stdio.h>

#include "pure/plan/draft_gain.h"

void kin_plan_draft_print(const kin_draft_gain *gain, FILE *file);

json_t *kin_plan_draft_json(const kin_draft_gain *gain); // a new reference
