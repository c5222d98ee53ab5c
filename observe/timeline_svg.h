// The picture of a timeline, as SVG. The inside of observe/timeline.c; not for others.
#pragma once

#include <stdio.h>

#include "observe/timeline.h"

// With at least two marks. Whether writing failed is for ferror.
void kin_timeline_draw(const kin_timeline *timeline, FILE *f);
