// The picture of a timeline, as SVG. The inside of ring/timeline.c; not for others.
#pragma once

#include <stdio.h>

#include "ring/timeline.h"

// With at least two marks. Whether writing failed is for ferror.
void kin_timeline_draw(const kin_timeline *timeline, FILE *f);
