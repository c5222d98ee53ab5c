// A sequence's draft source, combined of all that exist for it: the continuation of an earlier sequence with exactly the same
// beginning, as far as the disk has it (a request that is repeated after a restart), else n-gram lookup.
//
// Owner: the owner of the sequence; it may be reused for one after the other. Thread: the scheduler's, except open and close.
#pragma once

#include "base/err.h"
#include "pipeline/prefix_pages.h"
#include "pure/sampling/draft.h"

typedef struct kin_drafter kin_drafter;

// pages: of earlier sequences, borrowed; NULL: none.
int kin_drafter_open(kin_drafter **out, kin_prefix_pages *pages, kin_err *err);
void kin_drafter_close(kin_drafter *drafter); // NULL is allowed

void kin_drafter_reset(kin_drafter *drafter); // prepares for another sequence; NULL is allowed

const kin_draft_source *kin_drafter_source(const kin_drafter *drafter); // lives as long as the drafter; NULL for NULL
