// The links between the devices of a group (pipeline/exchange.h): each device opens one to every device that comes after it, with
// role GROUP. As soon as one is accepted its connection is taken out of the loop and given to the exchange.
//
// A device is a part of its ring only when it has all of them; the head lets no step go before every member has said so. So
// nothing is read or written on them before both ends have been taken.
//
// Owner: a driver (cluster/cluster.h, cluster/join.h). Thread: the loop's.
#pragma once

#include "net/endpoint.h"
#include "pipeline/exchange.h"
#include "pure/proto/message.h"

typedef struct kin_group_links kin_group_links;

// All links are there; or one was not to be had, and why: it is tried again.
typedef void (*kin_group_links_told)(void *user, uint32_t epoch, bool is_complete, const char *reason);

// The endpoint and the exchange are borrowed until close.
int kin_group_links_open(kin_group_links **out, kin_endpoint *endpoint, kin_exchange *exchange, kin_group_links_told told,
                         void *user, kin_err *err);
void kin_group_links_close(kin_group_links *links); // NULL is allowed

// From now on this is the place; group->n_ranks 0, or epoch 0: in no group. Endpoints have addresses. The same epoch again
// changes nothing.
void kin_group_links_enter(kin_group_links *links, uint32_t epoch, const kin_proto_group *group, kin_activation_type type);

bool kin_group_links_is_complete(const kin_group_links *links);

// Several times a second: what was not to be had is tried again.
void kin_group_links_tick(kin_group_links *links);

// A link of role GROUP that another process opened: taken, or refused.
void kin_group_links_take(kin_group_links *links, kin_link *link, uint32_t epoch, const kin_proto_open *open);
