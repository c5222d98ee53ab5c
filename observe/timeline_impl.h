// The writers of a timeline, chosen by the file name's extension. Internal to observe/timeline.c.
#pragma once

#include <stdio.h>

#include "observe/timeline.h"

// Draws an SVG picture. Needs at least two marks. The caller checks ferror.
void kin_timeline_draw(const kin_timeline *timeline, FILE *f);

// Writes trace events for Chrome and Perfetto, as JSON. KIN_FAIL: writing failed, or out of memory.
int kin_timeline_trace(const kin_timeline *timeline, FILE *f);
