// How a timeline is written, by the ending of the file's name. The inside of observe/timeline.c; not for others.
#pragma once

#include <stdio.h>

#include "observe/timeline.h"

// A picture, as SVG. With at least two marks. Whether writing failed is for ferror.
void kin_timeline_draw(const kin_timeline *timeline, FILE *f);

// Trace events as Chrome and Perfetto read them, JSON. KIN_FAIL: writing failed, or there is no memory.
int kin_timeline_trace(const kin_timeline *timeline, FILE *f);
