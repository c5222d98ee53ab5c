// Hops: what it costs to send a hidden state to the next member, and the cheapest ring of given members.
//
// A hop from one device to another is half a round trip plus the bytes over the link's rate. Two that have no link pass through
// relays, by the cheapest path. Order matters only through hops: the cheapest ring is found exactly (Held and Karp) up to
// KIN_HOPS_EXACT members beside the head, and beyond by local search and then branch and bound, which a limit may end unproven.
#pragma once

#include <stdbool.h>

#include "pure/plan/plan.h"

enum { KIN_HOPS_EXACT = 10 };

typedef struct kin_hops {
    int n_device;
    kin_device_set usable;
    double cost[KIN_FACTS_MAX_DEVICES][KIN_FACTS_MAX_DEVICES]; // [from][to] seconds; on the diagonal 0, but of a head's group
                                                               // the way through it; INFINITY: no path
    bool direct[KIN_FACTS_MAX_DEVICES][KIN_FACTS_MAX_DEVICES]; // there is a link; then it is used
    int next[KIN_FACTS_MAX_DEVICES][KIN_FACTS_MAX_DEVICES];    // else the first stop on the cheapest path
} kin_hops;

// Hops of n_tokens hidden states between usable devices.
void kin_hops_init(kin_hops *hops, const kin_facts *facts, kin_device_set usable, int n_tokens);

// A bound on rings that uses no order: tour(S) >= sum over S of potential, for every S within `among` with the head and one more.
// None is negative. The smaller `among`, the better.
void kin_hops_potentials(const kin_hops *hops, kin_device_set among, double potential[KIN_FACTS_MAX_DEVICES]);

// Whether a token passes links: of one machine, none; of a group on its own, those from the head through it.
bool kin_hops_are_in(const kin_facts *facts, const kin_plan *plan);

// One link of the ring as facts have it.
double kin_hop_s(const kin_facts *facts, int from, int to, int n_tokens);

// The cheapest ring found through all members (the head is one) and its cost per round. order // [n members], the head first.
// *proven: there is no cheaper one.
double kin_hops_tour(const kin_hops *hops, kin_device_set members, int *order, bool *proven);

// Writes the stops of a plan: the members in this order, with relays where they are needed. False: more stops than a plan has.
bool kin_hops_lay(const kin_hops *hops, const int *order, int n_order, kin_plan *plan);
