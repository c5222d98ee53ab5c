// Hops: the cost of sending a hidden state to the next member, and the cheapest ring of given members.
//
// A hop from one device to another takes half a round trip plus the bytes over the link's rate. Two devices without a link use
// relays, along the cheapest path. Order matters only through hops: the cheapest ring is found exactly (Held and Karp) for up to
// KIN_HOPS_EXACT members besides the head. For more it is found by local search, then branch and bound, whose limit may leave it
// unproven.
#pragma once

#include <stdbool.h>

#include "pure/plan/plan.h"

enum { KIN_HOPS_EXACT = 10 };

typedef struct kin_hops {
    int n_device;
    kin_device_set usable;
    double cost[KIN_FACTS_MAX_DEVICES][KIN_FACTS_MAX_DEVICES]; // [from][to] seconds; INFINITY: no path; [a][a] is 0, but in a
                                                               // head's group the path through it
    bool direct[KIN_FACTS_MAX_DEVICES][KIN_FACTS_MAX_DEVICES]; // there is a link, so it is used
    int next[KIN_FACTS_MAX_DEVICES][KIN_FACTS_MAX_DEVICES];    // otherwise the first stop on the cheapest path
} kin_hops;

// Computes the hops of n_tokens hidden states between usable devices.
void kin_hops_init(kin_hops *hops, const kin_facts *facts, kin_device_set usable, int n_tokens);

// Computes a lower bound on rings that does not depend on their order: tour(S) >= sum over S of potential, for every S within
// `among` that contains the head and at least one more device. No potential is negative. The smaller `among`, the tighter the
// bound.
void kin_hops_potentials(const kin_hops *hops, kin_device_set among, double potential[KIN_FACTS_MAX_DEVICES]);

// True if a token crosses links: it does not on one machine, but does in the head's group even if that is alone in the ring.
bool kin_hops_are_in(const kin_facts *facts, const kin_plan *plan);

// Returns the time of a hop over the direct link; INFINITY if there is none.
double kin_hop_s(const kin_facts *facts, int from, int to, int n_tokens);

// Finds the cheapest ring through all members, which include the head. Returns its cost per round. order // [n members], the head
// first. *proven: no ring is cheaper.
double kin_hops_tour(const kin_hops *hops, kin_device_set members, int *order, bool *proven);

// Writes the stops of a plan: the members in this order, and relays where they are needed. False if there are too many stops.
bool kin_hops_lay(const kin_hops *hops, const int *order, int n_order, kin_plan *plan);
