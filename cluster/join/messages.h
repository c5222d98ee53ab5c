// A device's messages to its head, and to the user. Thread: the loop's.
#pragma once

#include "cluster/join/joining.h"

void kin_join_report_status(kin_join *j);                                    // to the user, if it has changed
void kin_join_send(kin_join *j, uint32_t epoch, const kin_proto_message *m); // to the head, if there is one
void kin_join_send_facts(kin_join *j);
void kin_join_send_events(kin_join *j);
void kin_join_send_status(kin_join *j);
void kin_join_send_failed(kin_join *j, const kin_member_action *a);
void kin_join_send_next(kin_join *j, const kin_member_action *a);
void kin_join_send_progress(kin_join *j, uint32_t epoch);
void kin_join_send_ready(kin_join *j, uint32_t epoch);
