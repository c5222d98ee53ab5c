// Measurements of devices and of the links between them, for as long as the head runs. A device that returns is already known.
//
// Every answer to a question is accepted; the planner rejects implausible figures (kin_facts_screen). When there are more devices
// than places, the least recently heard one is evicted, but never the first one: the head itself.
//
// Owner: cluster/head/link_tests.h. Thread: the loop's.
#pragma once

#include "pure/plan/facts.h"
#include "pure/proto/message.h"

typedef struct kin_measurements kin_measurements;

int kin_measurements_open(kin_measurements **out, kin_err *err);
void kin_measurements_close(kin_measurements *measurements); // NULL is allowed

void kin_measurements_set_device(kin_measurements *measurements, const kin_proto_id *id, const kin_device_facts *facts);
// Returns NULL if the device is not known.
const kin_device_facts *kin_measurements_device(const kin_measurements *measurements, const kin_proto_id *id);

// Notes that `from` is asked to measure its link to `to`. False: one of them is not known. Clears earlier failures; ask_back
// keeps the failure of `to` to reach `from`.
bool kin_measurements_ask(kin_measurements *measurements, const kin_proto_id *from, const kin_proto_id *to);
bool kin_measurements_ask_back(kin_measurements *measurements, const kin_proto_id *from, const kin_proto_id *to);
// Stores the answer, for both directions; NULL: the measurement failed, and earlier figures stay unless the other end has failed,
// too. False: it was not asked for.
bool kin_measurements_store(kin_measurements *measurements, const kin_proto_id *from, const kin_proto_id *to,
                            const kin_link_facts *there, const kin_link_facts *back);

// True if the last measurement of the link that `from` was asked for has failed.
bool kin_measurements_has_failed(const kin_measurements *measurements, const kin_proto_id *from, const kin_proto_id *to);
// True if the measurements from both ends have failed: neither reaches the other.
bool kin_measurements_is_apart(const kin_measurements *measurements, const kin_proto_id *a, const kin_proto_id *b);
// Returns true once for each pair: the user must be informed.
bool kin_measurements_note_unreachable(kin_measurements *measurements, const kin_proto_id *a, const kin_proto_id *b);

// Fills devices and links of `facts`; the first id is the head's. Unknown figures are zeros, which no planner accepts. For
// members that do not reach each other the link is the path through the head: both its links, one after the other.
void kin_measurements_fill(kin_measurements *measurements, const kin_proto_id *ids, int n, kin_facts *facts);
