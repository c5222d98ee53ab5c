// The links between the devices of a group (pipeline/exchange.h): each device opens one to every device with a higher rank, with
// role GROUP. Once it is accepted, its connection is taken out of the loop and given to the exchange.
//
// A device joins its ring only when it has all of them, and the head sends no step before every member has reported that. So
// nothing is read or written on them before both ends have been taken.
//
// Owner: a driver (cluster/cluster.h, cluster/join.h). Thread: the loop's.
#pragma once

#include "net/endpoint.h"
#include "pipeline/exchange.h"
#include "pure/proto/message.h"

typedef struct kin_group_links kin_group_links;

// Called when all links are open, or when one failed, with the reason; failed links are retried.
typedef void (*kin_group_links_report)(void *user, uint32_t epoch, bool is_complete, const char *reason);

// The endpoint and the exchange are borrowed until close.
int kin_group_links_open(kin_group_links **out, kin_endpoint *endpoint, kin_exchange *exchange, kin_group_links_report report,
                         void *user, kin_err *err);
void kin_group_links_close(kin_group_links *links); // NULL is allowed

// Enters a place in a group; group->n_ranks 0, or epoch 0: no group. The group's endpoints have addresses. The same epoch again
// has no effect.
void kin_group_links_enter(kin_group_links *links, uint32_t epoch, const kin_proto_group *group, kin_activation_type type);

bool kin_group_links_is_complete(const kin_group_links *links);

// Retries failed links. Call it several times a second.
void kin_group_links_tick(kin_group_links *links);

// Accepts or refuses a link of role GROUP that another process opened.
void kin_group_links_accept(kin_group_links *links, kin_link *link, uint32_t epoch, const kin_proto_open *open);
