// Link measurements that the head asks a device for. Thread: the loop's.
#pragma once

#include "cluster/join/joining.h"

int kin_join_open_probes(kin_join *j, kin_err *err);
void kin_join_handle_measure(kin_join *j, const kin_proto_measure *wanted);
