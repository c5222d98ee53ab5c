// A ledger: what was measured of devices and of the links between them, for as long as the head runs. A device that comes back
// is known already.
//
// It believes what it asked for; what to refuse is the planner's to know (kin_facts_screen). Of more devices than it has places
// for, the one that was heard of least recently is forgotten, but never the first one: the head itself.
//
// Owner: ring/cluster.c. Thread: the loop's.
#pragma once

#include "pure/plan/facts.h"
#include "pure/proto/message.h"

typedef struct kin_ledger kin_ledger;

int kin_ledger_open(kin_ledger **out, kin_err *err);
void kin_ledger_close(kin_ledger *ledger); // NULL is allowed

void kin_ledger_set_device(kin_ledger *ledger, const kin_proto_id *id, const kin_device_facts *facts);
// NULL: nothing is known of it.
const kin_device_facts *kin_ledger_device(const kin_ledger *ledger, const kin_proto_id *id);

// `from` is asked to measure its link to `to`, both of whom are known. False: they are not.
bool kin_ledger_ask(kin_ledger *ledger, const kin_proto_id *from, const kin_proto_id *to);
// The answer, for both ways; NULL: it could not be measured, and what was known stays. False: nobody asked.
bool kin_ledger_take(kin_ledger *ledger, const kin_proto_id *from, const kin_proto_id *to, const kin_link_facts *there,
                     const kin_link_facts *back);

// Fills devices and links of `facts`; the first id is the head's. What is not known is zeros, which no planner accepts.
void kin_ledger_fill(kin_ledger *ledger, const kin_proto_id *const *ids, int n, kin_facts *facts);
