// The picture of a timeline, as SVG. Plain function; thread: the timeline's owner.
#pragma once

#include <stdio.h>

#include "observe/timeline.h"

// Draws the timeline, which needs at least two marks. The caller checks ferror.
void kin_timeline_draw(const kin_timeline *timeline, FILE *f);
