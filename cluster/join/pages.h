// KV pages of sequences on this device's disk and on others'. Thread: the loop's, except init and fini.
#pragma once

#include "cluster/join/joining.h"

void kin_join_init_pages(kin_join *j);
void kin_join_open_pages(kin_join *j);
void kin_join_on_page_written(void *join, const kin_page_name *name, size_t n); // the store's thread
bool kin_join_is_busy(void *join);                                              // a step was computed within a second
void kin_join_register_page_peers(kin_join *j); // at a plan: registers the head, which then registers others
void kin_join_handle_kept(kin_join *j, const kin_proto_kept *kept);
void kin_join_fini_pages(kin_join *j);
