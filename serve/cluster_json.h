// JSON about machines for the web page: the plan with its reasons, and the state of a standalone machine in the form of a
// cluster's (observe/status_json.h).
//
// Plain functions.
#pragma once

#include <jansson.h>

#include "cluster/session.h"
#include "serve/service.h"

// Returns the state of a standalone machine; free it. NULL: out of memory.
char *kin_alone_status_json(const kin_session *session, const char *model, const kin_service_status *status);

// Returns the address at which devices reach this head: {address, port, hidden}. hidden: devices do not find it by discovery.
// NULL: the head has no cluster, or out of memory.
json_t *kin_head_address_json(const kin_session *session);

// The active plan, and the facts that it was computed from (cluster/planner.h).
typedef struct kin_plan_basis {
    kin_facts facts;
    kin_plan plan;
} kin_plan_basis;

// Returns kin_plan_view_json plus `links` of the ring: [{from, to, rtt_ms, bytes_s}]. If nothing was measured: only `ring`,
// `devices` with their layers, and `groups` with their devices, shares and layers. Takes up to seconds with several devices.
// NULL: out of memory.
json_t *kin_plan_basis_json(const kin_plan_basis *basis);
