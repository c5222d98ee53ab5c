// Random facts for tests of planning: clusters and models of all kinds, but none that a home could not have.
//
// The same stream of random numbers gives the same facts everywhere. Rates differ by factors, memories go from too little for
// anything to more than enough, some devices have no disk, GPUs with their own or shared memory, links that are missing or unlike
// each other.
#pragma once

#include "base/rng.h"
#include "pure/plan/facts.h"

// 1 to max_devices devices, 1 to max_layers layers of equal size.
void kin_random_facts(kin_facts *facts, kin_rng *rng, int max_devices, int max_layers);

// In [0, n).
int kin_random_below(kin_rng *rng, int n);
