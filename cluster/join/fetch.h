// Fetches parts of the model, and knows which layers of it are here. Thread: the loop's.
#pragma once

#include "cluster/join/joining.h"

// Fetches what these windows of `plan`'s model need, with the plan's share of their layers. ahead: for a later plan; the sink for
// it receives the progress.
void kin_join_fetch(kin_join *j, const kin_proto_plan *plan, const kin_windows *windows, bool ahead);
// Closes the store if its files are not in the cache any more, so that they are fetched again.
void kin_join_check_store(kin_join *j);
void kin_join_handle_have(kin_join *j, const kin_proto_have *have);
void kin_join_send_have(kin_join *j); // offers its parts of the model, for a head that does not know them
// True if the device's own file is there and is the plan's model.
bool kin_join_has_own_file(const kin_join *j, const kin_proto_plan *plan);
// True if that share of all layers of these windows is on this device.
bool kin_join_has_layers(const kin_join *j, const kin_proto_plan *plan, const kin_windows *windows, const kin_share *share);
// Notes layers that are here, for one share at a time: chunks of other shares are found by the missing-chunk scan.
void kin_join_note_layers(kin_join *j, const kin_windows *windows, const kin_share *share);
bool kin_join_is_same_share(const kin_share *a, const kin_share *b);
