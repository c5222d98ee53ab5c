// Who of a ring computed which layers, and where the time of a token went: a timeline as a table.
#pragma once

#include <stdio.h>

#include "observe/timeline.h"

// While nobody adds to the timeline. Nothing is printed before two marks.
void kin_ring_view_print(const kin_timeline *timeline, FILE *file);
