// The page /join for commands that have no other web server: browsers join the ring through it (serve/tabs/tabs.h).
//
// Owner and thread: the command's; the server answers on its own thread.
#pragma once

#include "app/https.h"
#include "cluster/session.h"

typedef struct kin_join_page kin_join_page;

// Listens on the head's address (--listen) with the certificate of `https` or kin's own; without TLS if that address is loopback.
// Requires a session with a cluster, which is borrowed and must outlive the page. port 0: any free port. Prints the address.
int kin_join_page_open(kin_join_page **out, const kin_session *session, int port, const kin_https_options *https, kin_err *err);
void kin_join_page_close(kin_join_page *page); // its tabs leave the ring; NULL is allowed

// Prints where browsers can join. Prints nothing if no join code exists, because tabs then cannot join and the server says so
// (serve/tabs/tabs.h). host: the address it listens on; prefix: of its URL paths, or NULL.
void kin_join_page_print(const kin_identity_options *net, const char *host, uint16_t port, bool is_https, const char *prefix);
