// What was measured of devices and of the links between them, for as long as the head runs. A device that comes back is known
// already.
//
// It believes what it asked for; what to refuse is the planner's to know (kin_facts_screen). Of more devices than it has places
// for, the one that was heard of least recently is forgotten, but never the first one: the head itself.
//
// Owner: cluster/cluster.c. Thread: the loop's.
#pragma once

#include "pure/plan/facts.h"
#include "pure/proto/message.h"

typedef struct kin_measurements kin_measurements;

int kin_measurements_open(kin_measurements **out, kin_err *err);
void kin_measurements_close(kin_measurements *measurements); // NULL is allowed

void kin_measurements_set_device(kin_measurements *measurements, const kin_proto_id *id, const kin_device_facts *facts);
// NULL: nothing is known of it.
const kin_device_facts *kin_measurements_device(const kin_measurements *measurements, const kin_proto_id *id);

// `from` is asked to measure its link to `to`, both of whom are known. False: they are not. What has failed before is forgotten;
// ask_back does not forget that `to` has just failed to reach `from`.
bool kin_measurements_ask(kin_measurements *measurements, const kin_proto_id *from, const kin_proto_id *to);
bool kin_measurements_ask_back(kin_measurements *measurements, const kin_proto_id *from, const kin_proto_id *to);
// The answer, for both directions; NULL: it could not be measured, and what was known stays unless the other end has failed, too.
// False: nobody asked.
bool kin_measurements_take(kin_measurements *measurements, const kin_proto_id *from, const kin_proto_id *to,
                           const kin_link_facts *there, const kin_link_facts *back);

// The last measurement of the link between them that `from` was asked for has failed.
bool kin_measurements_has_failed(const kin_measurements *measurements, const kin_proto_id *from, const kin_proto_id *to);
// So has the one from the other end: neither reaches the other.
bool kin_measurements_is_apart(const kin_measurements *measurements, const kin_proto_id *a, const kin_proto_id *b);
// Whether a person has to be told, which is once.
bool kin_measurements_tells_apart(kin_measurements *measurements, const kin_proto_id *a, const kin_proto_id *b);

// Fills devices and links of `facts`; the first id is the head's. What is not known is zeros, which no planner accepts. Between
// members that do not reach each other the link is the way by the head: both its links, one after the other.
void kin_measurements_fill(kin_measurements *measurements, const kin_proto_id *const *ids, int n, kin_facts *facts);
