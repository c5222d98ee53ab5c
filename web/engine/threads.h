// The team of this module: the thread that runs the graph, and helpers: Web Workers that share its memory and run kin_web_thread
// (web/engine_thread.js).
#pragma once

#include "sys/team/team.h"

// Sets the number of threads, including the caller (initially 1): helpers 1 .. n - 1 must be running. Call between jobs. Returns
// the team.
kin_team *kin_web_team_set(int n);
kin_team *kin_web_team(void);

// Computes n_steps steps. Each of nth threads calls `step` once for its share of a step i.
typedef void (*kin_web_step)(void *user, int i, int ith, int nth);
void kin_web_team_each(kin_web_step step, void *user, int n_steps);
