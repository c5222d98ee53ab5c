// What is done with a slot, /slots/ID?action=...: a text's place in llama-server. kin has none. A request's id_slot is a tag of
// its text: `erase` takes the texts of a tag out of the prefix cache when they have ended.
//
// Thread: the loop's.
#pragma once

#include "serve/http_exchange.h"
#include "serve/service.h"

// *n_open counts what is under way.
void kin_slots_begin(kin_service *service, int *n_open, kin_http_exchange *x);
void kin_slots_take(kin_job_event *event); // KIN_TEXTS_ERASED
