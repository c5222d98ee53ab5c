// Looks up the addresses of a host without being held up by it: where name servers do not answer, getaddrinfo takes half a
// minute.
//
// Thread: any. A lookup that is given up goes on in a thread of its own, which frees all it has.
#pragma once

#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

// Addresses for TCP, in the system's order; the caller frees the list (freeaddrinfo). goes_on: asked ten times a second, false
// ends it with an error; NULL: always. Numbers need no lookup.
int kin_name_lookup(const char *host, uint16_t port, bool (*goes_on)(void *user), void *user, struct addrinfo **list,
                    kin_err *err);
