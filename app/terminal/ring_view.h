// Prints a timeline as a table: the layers that each member of a ring computed, and where the time of a token went.
#pragma once

#include <stdio.h>

#include "observe/timeline.h"

// Call while no thread adds to the timeline. Prints nothing if the timeline has fewer than two marks.
void kin_ring_view_print(const kin_timeline *timeline, FILE *file);
