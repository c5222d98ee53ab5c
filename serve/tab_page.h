// The page /join and what it loads: the files of web/page, and the engine's modules (web/) where the build made them. All of it
// is in the program. It asks nobody but this server.
//
// Plain functions; an exchange is the loop's thread's.
#pragma once

#include "serve/webui.h"

bool kin_tab_page_has_engine(void); // the modules are here

const kin_webui_file *kin_tab_page_at(int i); // "page/join.js", "engine_relaxed.wasm"; NULL: there are no more

// Answers /join with the page, and /join/ with where that is.
void kin_tab_page_reply(kin_http_exchange *x);
// /join/NAME: answers with that file, 304 if the client has it, or 404.
void kin_tab_page_reply_file(kin_http_exchange *x);
