// Requests in flight: steps, and pages to load, store or drop.
//
// Owner and thread: the scheduler's.
#pragma once

#include "pipeline/scheduling.h"

// True if a step, or a request for pages, may be sent.
bool kin_scheduler_has_room(const kin_scheduler *s);

// Prepares the next flight. The caller counts it (n_flights) once it is sent.
kin_flight *kin_scheduler_new_flight(kin_scheduler *s, kin_flight_kind kind);

// Sends a request for pages. tokens: those of the pages, if they are to be loaded; else NULL.
int kin_scheduler_send_pages(kin_scheduler *s, kin_flight *f, const kin_page_request *r, const int32_t *tokens, kin_err *err);
