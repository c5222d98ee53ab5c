// A text's drafts, from all sources that there are for it. So far that is n-gram lookup.
//
// Owner: who owns the text. Thread: the scheduler's, but open and close.
#pragma once

#include "base/err.h"
#include "pure/text/draft.h"

typedef struct kin_drafter kin_drafter;

int kin_drafter_open(kin_drafter **out, kin_err *err);
void kin_drafter_close(kin_drafter *drafter); // NULL is allowed

const kin_draft_source *kin_drafter_source(const kin_drafter *drafter); // lives as long; NULL for NULL
