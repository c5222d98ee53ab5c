// A ledger: what was measured of devices and of the links between them, for as long as the head runs. A device that comes back
// is known already.
//
// It believes everything; what to refuse is the planner's to know (kin_facts_screen). Of more devices than it has places for, the
// one that was heard of least recently is forgotten.
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

// One way; both must have been set with kin_ledger_set_device, else nothing happens.
void kin_ledger_set_link(kin_ledger *ledger, const kin_proto_id *from, const kin_proto_id *to, const kin_link_facts *link);
bool kin_ledger_has_link(const kin_ledger *ledger, const kin_proto_id *from, const kin_proto_id *to);

// Fills devices and links of `facts`; the first id is the head's. What is not known is zeros, which no planner accepts.
void kin_ledger_fill(const kin_ledger *ledger, const kin_proto_id *const *ids, int n, kin_facts *facts);
