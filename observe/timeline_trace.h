// A timeline as trace events for Chrome and Perfetto, in JSON. Plain function; thread: the timeline's owner.
#pragma once

#include <stdio.h>

#include "observe/timeline.h"

// KIN_FAIL: writing failed, or out of memory.
int kin_timeline_trace(const kin_timeline *timeline, FILE *f);
