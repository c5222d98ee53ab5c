// A text's drafts, from all sources that there are for it: how an earlier text went on that began with all the same tokens, as
// far as the disk has that (a text that is asked for again after a restart), else n-gram lookup.
//
// Owner: who owns the text, or texts one after the other. Thread: the scheduler's, but open and close.
#pragma once

#include "base/err.h"
#include "pipeline/prefix_pages.h"
#include "pure/text/draft.h"

typedef struct kin_drafter kin_drafter;

// pages: of earlier texts, borrowed; NULL: there are none.
int kin_drafter_open(kin_drafter **out, kin_prefix_pages *pages, kin_err *err);
void kin_drafter_close(kin_drafter *drafter); // NULL is allowed

void kin_drafter_reset(kin_drafter *drafter); // another text follows; NULL is allowed

const kin_draft_source *kin_drafter_source(const kin_drafter *drafter); // lives as long; NULL for NULL
