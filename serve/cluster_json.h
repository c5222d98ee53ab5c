// What the page shows of the machines: the plan with its reasons as JSON, and the state of a machine on its own in the shape of a
// cluster's (observe/status_json.h).
//
// Plain functions.
#pragma once

#include <jansson.h>

#include "node/session.h"
#include "serve/service.h"

// The state of a machine on its own; from malloc. NULL: out of memory.
char *kin_alone_status_json(const kin_session *session, const char *model, const kin_service_status *status);

// How devices reach this head: {address, port, hidden}, where `hidden` says that they do not find it by themselves. NULL: it has
// no cluster, or out of memory.
json_t *kin_head_address_json(const kin_session *session);

// The plan in force, its groups, and the facts that it was made of (node/planner.h).
typedef struct kin_plan_basis {
    kin_facts facts;
    kin_grouping grouping;
    kin_plan plan;
} kin_plan_basis;

// kin_plan_view_json and `links` of the ring: [{from, to, rtt_ms, bytes_s}]; where nothing was measured only `ring`, `devices`
// with their layers, and `groups` with their devices, shares and layers. With several devices it takes up to seconds. NULL: out
// of memory.
json_t *kin_plan_basis_json(const kin_plan_basis *basis);
