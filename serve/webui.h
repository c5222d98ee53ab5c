// The web page: the files of page/, which are in the program.
//
// It asks the server's own APIs, as any client does, and serve/events.h for what the cluster does. It needs no key to be read;
// what it asks for does.
//
// Plain functions; an exchange is the loop's thread's.
#pragma once

#include "serve/http_exchange.h"

typedef struct kin_webui_file {
    const char *name, *type; // "main.js", its Content-Type
    const uint8_t *begin, *end;
    bool is_gzip; // the bytes are compressed
} kin_webui_file;

// Of a table: a file that KIN_EMBED(kin_webui_ID, ...) has put into the program.
#define KIN_WEBUI_FILE(id, name, type, is_gzip) {name, type, kin_webui_##id##_begin, kin_webui_##id##_end, is_gzip},

// The file of that name among files // [n]; NULL: there is none.
const kin_webui_file *kin_webui_find_in(const kin_webui_file *files, size_t n, kin_str name);

// By its name; NULL: there is none.
const kin_webui_file *kin_webui_find(kin_str name);
const kin_webui_file *kin_webui_at(int i); // NULL: there are no more

// Whether the client wants to see a page at "/": its Accept says text/html.
bool kin_webui_is_wanted(const kin_http_exchange *x);

// Answers with the page. prefix: of all the server's paths, "/kin"; NULL: none.
void kin_webui_reply(kin_http_exchange *x, const char *prefix);
// Answers with the file, or 304 if the client has it; with a Content-Security-Policy.
void kin_webui_reply_with(kin_http_exchange *x, const char *policy, const kin_webui_file *file);
// /page/NAME: answers with that file, 304 if the client has it, or 404.
void kin_webui_reply_file(kin_http_exchange *x);
