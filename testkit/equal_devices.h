// Facts for groups: n equal devices of 45 GB/s with an 8B-like model in Q4_K, on links of 1 Gbit/s with the given round trip.
#pragma once

#include "pure/plan/facts.h"

void kin_equal_devices(kin_facts *facts, int n, double rtt_s);
