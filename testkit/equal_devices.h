// Facts for groups: n equal devices of 45 GB/s with an 8B-like model of Q4_K, on links of 1 Gbit/s and that round trip.
#pragma once

#include "pure/plan/facts.h"

void kin_equal_devices(kin_facts *facts, int n, double rtt_s);
