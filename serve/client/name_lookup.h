// Looks up the addresses of a host and can be stopped: getaddrinfo takes half a minute if name servers do not answer.
//
// Thread: any. An abandoned lookup continues in its own thread, which frees its memory.
#pragma once

#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

// Returns addresses for TCP in the system's order; free the list with freeaddrinfo. goes_on: called ten times per second; false
// ends the lookup with an error; NULL: never stopped. IP addresses need no lookup.
int kin_name_lookup(const char *host, uint16_t port, bool (*goes_on)(void *user), void *user, struct addrinfo **list,
                    kin_err *err);
