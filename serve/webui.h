// The web page: the files of page/, embedded in the program.
//
// It uses the server's own APIs like any client, and serve/events.h for the state of the cluster. Reading the page needs no key;
// its requests do.
//
// Plain functions; exchanges belong to the loop's thread.
#pragma once

#include "serve/http/http_exchange.h"

typedef struct kin_webui_file {
    const char *name, *type; // "main.js", its Content-Type
    const uint8_t *begin, *end;
    bool is_gzip; // the bytes are compressed
} kin_webui_file;

// A table entry for a file that KIN_EMBED(kin_webui_ID, ...) has embedded.
#define KIN_WEBUI_FILE(id, name, type, is_gzip) {name, type, kin_webui_##id##_begin, kin_webui_##id##_end, is_gzip},

// Finds a file by name among files // [n]; NULL: none.
const kin_webui_file *kin_webui_find_in(const kin_webui_file *files, size_t n, kin_str name);

// Finds a file by name; NULL: none.
const kin_webui_file *kin_webui_find(kin_str name);
const kin_webui_file *kin_webui_at(int i); // NULL: past the end

// True if the client wants a page at "/": its Accept contains text/html.
bool kin_webui_is_wanted(const kin_http_exchange *x);

// Answers with the page. prefix: of all the server's paths, "/kin"; NULL: none.
void kin_webui_reply(kin_http_exchange *x, const char *prefix);
// Answers with the file and a Content-Security-Policy, or with 304 if the client has it.
void kin_webui_reply_with(kin_http_exchange *x, const char *policy, const kin_webui_file *file);
// Answers /page/NAME: the file, 304 if the client has it, or 404.
void kin_webui_reply_file(kin_http_exchange *x);
