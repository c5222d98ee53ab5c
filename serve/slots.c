#include "serve/slots.h"

#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "serve/json_out.h"
#include "serve/refuse.h"

typedef struct erasing {
    kin_exchange_data data;
    kin_http_exchange *x; // NULL: the client is gone
    int id;
    int *n_open;
} erasing;

static void gone(void *self) {
    ((erasing *)self)->x = NULL;
}

// The number in "/slots/12"; -1: it is none.
static int id_of(kin_str path) {
    static const char folder[] = "/slots/";
    size_t i = sizeof folder - 1;
    int id = path.len > i ? 0 : -1;
    for (; i < path.len && id >= 0; i++) {
        int digit = path.at[i] - '0';
        id = digit < 0 || digit > 9 || id > (INT_MAX - digit) / 10 ? -1 : 10 * id + digit;
    }
    return id;
}

static void begin_erasing(kin_service *service, int id, int *n_open, kin_http_exchange *x) {
    erasing *e = malloc(sizeof *e);
    if (e) *e = (erasing){.data = {gone, e}, .x = x, .id = id, .n_open = n_open};
    if (!e || kin_service_erase(service, id, e) != 0) {
        free(e);
        kin_http_reply_error(x, 500, "out of memory");
        return;
    }
    ++*n_open;
    kin_http_set_data(x, &e->data);
}

static bool is(kin_str a, const char *b) {
    return a.at && a.len == strlen(b) && memcmp(a.at, b, a.len) == 0;
}

void kin_slots_begin(kin_service *service, int *n_open, kin_http_exchange *x) {
    kin_str action = kin_http_query(x, "action");
    int id = id_of(kin_http_path(x));
    if (id < 0)
        kin_http_reply_error(x, 400, "a slot is a number: /slots/0?action=erase");
    else if (is(action, "erase"))
        begin_erasing(service, id, n_open, x);
    else if (is(action, "save") || is(action, "restore"))
        kin_http_reply_error(x, 501, "this server does not write its KV cache to files, only 'erase' is there");
    else
        kin_http_reply_error(x, 400, "action must be erase, save or restore");
}

void kin_slots_take(kin_job_event *event) {
    erasing *e = event->user;
    --*e->n_open;
    if (e->x) {
        kin_text_buffer body = {0};
        kin_json_put(json_pack("{s:i, s:i}", "id_slot", e->id, "n_erased", event->n_done), &body);
        kin_http_reply(e->x, 200, "application/json; charset=utf-8", body.at ? body.at : "", body.len);
        kin_text_fini(&body);
    }
    free(e);
}
