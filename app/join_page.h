// The page /join for commands that serve nothing else: browsers join the ring of a text (serve/tabs.h).
//
// Owner and thread: the command's; a thread of its own answers.
#pragma once

#include "app/https.h"
#include "node/session.h"

typedef struct kin_join_page kin_join_page;

// Where devices reach the head (--listen), with the certificate of `https`, or else kin's own; on loopback without one. The
// session has others, is borrowed, and outlives the page. port 0: any. Says the address.
int kin_join_page_open(kin_join_page **out, const kin_session *session, int port, const kin_https_options *https, kin_err *err);
void kin_join_page_close(kin_join_page *page); // its tabs leave; NULL is allowed

// Says where browsers join; nothing without a code to type there, of which the server says that they cannot (serve/tabs.h).
// host: where it listens; prefix: of its paths, or NULL.
void kin_join_page_say(const kin_identity_options *net, const char *host, uint16_t port, bool is_https, const char *prefix);
