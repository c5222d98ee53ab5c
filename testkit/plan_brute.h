// Finds plans by brute force: every number of rounds, every division of layers, every GPU share, every order.
#pragma once

#include "pure/plan/facts.h"

enum { KIN_BRUTE_DEVICES = 5, KIN_BRUTE_LAYERS = 8 };

// Returns the least TPOT of plans in which these devices have layers, by the closed form; INFINITY: there is no plan.
double kin_plan_brute(const kin_facts *facts, kin_device_set force_in);
