// The page /join and its files: web/page, and the engine's modules (web/) if the build made them. All are embedded in the
// program. The page contacts no server but this one.
//
// Plain functions; exchanges belong to the loop's thread.
#pragma once

#include "serve/webui.h"

bool kin_tab_page_has_engine(void); // true if the modules are embedded

const kin_webui_file *kin_tab_page_at(int i); // "page/join.js", "engine_relaxed.wasm"; NULL: past the end

// Answers /join with the page, and /join/ with a redirect to it.
void kin_tab_page_reply(kin_http_exchange *x);
// Answers /join/NAME: the file, 304 if the client has it, or 404.
void kin_tab_page_reply_file(kin_http_exchange *x);
