// The file of a timeline: a picture, or trace events, by its name. Plain function; thread: the timeline's owner.
#pragma once

#include "observe/timeline.h"

// Writes trace events if the path ends in .json, else SVG. Fails if there are fewer than two marks, or if the file cannot be
// written. Events added later, such as late ones of devices, are dropped.
int kin_timeline_write(kin_timeline *timeline, const char *path, kin_err *err);
