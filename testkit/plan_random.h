// Random facts for tests of planning: clusters and models of all kinds that a home could have.
//
// The same stream of random numbers gives the same facts everywhere. Rates differ by factors, and memory ranges from too little
// for anything to more than enough. Some devices have no disk, or a GPU with its own or shared memory; links may be missing or
// differ from each other.
#pragma once

#include "base/rng.h"
#include "pure/plan/facts.h"

// Sets facts of 1 to max_devices devices and 1 to max_layers layers of equal size.
void kin_random_facts(kin_facts *facts, kin_rng *rng, int max_devices, int max_layers);

// Returns a random number in [0, n).
int kin_random_below(kin_rng *rng, int n);
