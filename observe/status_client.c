#include "observe/status_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "net/dial.h"
#include "net/discovery.h"
#include "net/endpoint.h"
#include "pure/proto/label.h"

enum {
    TICK_MS = 100,
    SEARCH_TICKS = 20,  // duration of a search
    QUESTION_TICKS = 5, // between questions of a search
    BETWEEN_TICKS = 10, // reports
    TIMEOUT_TICKS = 30, // for a report
};

typedef struct observer {
    const kin_status_client_options *o;
    uv_loop_t loop;
    uv_timer_t timer;
    kin_tls_ctx *tls;
    kin_dial *dial; // NULL: it has answered, or none yet
    kin_link *link; // NULL: none
    kin_discovery *discovery;
    int n_searching; // ticks; 0: not searching
    int n_waiting;   // ticks for an answer
    int n_until_ask; // ticks; 0: it has asked
    int n_reports;
    char *text;
    bool is_over, has_failed;
    kin_err *err;
} observer;

static void finish(observer *ob) {
    ob->is_over = true;
    kin_dial_cancel(ob->dial, NULL);
    ob->dial = NULL;
    kin_link_close(ob->link, "it has seen enough");
    ob->link = NULL;
    kin_discovery_close(ob->discovery);
    ob->discovery = NULL;
    uv_close((uv_handle_t *)&ob->timer, NULL);
}

static void fail(observer *ob, const char *what, const char *why) {
    if (ob->is_over) return;
    ob->has_failed = true;
    kin_err_set(ob->err, "%s%s%s", what, why[0] ? ": " : "", why);
    finish(ob);
}

// ---- the link

static void ask(observer *ob) {
    kin_endpoint_send_message(ob->link, 0, &(kin_proto_message){.type = KIN_FRAME_STATUS_WANTED});
    ob->n_waiting = 0;
}

static void store_report(observer *ob, const kin_proto_report *m) {
    free(ob->text);
    ob->text = malloc((size_t)m->n_bytes + 1);
    if (!ob->text) {
        fail(ob, "out of memory", "");
        return;
    }
    memcpy(ob->text, m->bytes, m->n_bytes);
    ob->text[m->n_bytes] = '\0';
    if (++ob->n_reports >= ob->o->n_reports)
        finish(ob);
    else
        ob->n_until_ask = BETWEEN_TICKS;
}

static void handle_frame(void *user, kin_link *link, const kin_frame *frame, const uint8_t *payload) {
    observer *ob = user;
    kin_err err;
    kin_proto_message *m = malloc(sizeof *m);
    if (!m || kin_proto_decode(frame->type, payload, frame->length, m, &err) != 0) {
        fail(ob, kin_link_name(link), m ? err.text : "out of memory");
    } else if (frame->type == KIN_FRAME_REPORT) {
        store_report(ob, &m->report);
    } else {
        fail(ob, kin_link_name(link), "it does not answer like a head");
    }
    free(m);
}

// ---- finding a head

static void closed(void *user, kin_link *link, const char *reason);

static void accepted(void *user, kin_link *link, const kin_proto_accept *accept) {
    static const kin_link_callbacks callbacks = {.frame = handle_frame, .closed = closed};
    observer *ob = user;
    (void)accept;
    ob->dial = NULL;
    ob->link = link;
    kin_link_accept(link, &callbacks, ob);
    kin_link_set_frame_max(link, kin_frame_cap(KIN_FRAME_REPORT));
    ask(ob);
}

static void failed(void *user, const kin_dial_failure *failure) {
    observer *ob = user;
    ob->dial = NULL;
    if (failure->end == KIN_DIAL_REFUSED || failure->end == KIN_DIAL_WRONG || failure->end == KIN_DIAL_STRANGER)
        fail(ob, failure->at, failure->reason);
    else
        closed(ob, NULL, failure->reason);
}

static void connect_to(observer *ob, const char *address, uint16_t port) {
    static const kin_dial_callbacks callbacks = {.accepted = accepted, .failed = failed};
    kin_dial_options o = kin_dial_options_default(ob->tls);
    kin_err err;
    o.to = kin_dial_address(address, port);
    o.open = (kin_proto_open){.role = KIN_PROTO_OBSERVE, .id = ob->o->id};
    kin_label_set(o.open.name, KIN_PROTO_MAX_STR, ob->o->name);
    kin_label_set(o.open.version, KIN_PROTO_MAX_STR, ob->o->version);
    if (kin_dial_start(&ob->dial, &ob->loop, &o, &callbacks, ob, &err) != 0) fail(ob, address, err.text);
}

static void found(void *user, const kin_beacon *head, const char *address) {
    observer *ob = user;
    if (ob->is_over || !ob->n_searching) return;
    ob->n_searching = 0;
    connect_to(ob, address, head->port);
}

static void search(observer *ob) {
    kin_discovery_options o = {.port = KIN_DISCOVERY_PORT};
    kin_err err;
    memcpy(o.key, ob->o->key.bytes, sizeof o.key);
    if (kin_discovery_search(&ob->discovery, &ob->loop, &o, found, ob, &err) == 0)
        ob->n_searching = 1;
    else
        fail(ob, "there is no head on this machine, and the local network cannot be searched", err.text);
}

static void closed(void *user, kin_link *link, const char *reason) {
    observer *ob = user;
    ob->link = NULL;
    if (!ob->o->head && !ob->discovery)
        search(ob);
    else
        fail(ob, ob->o->head ? ob->o->head : "the head", reason);
    (void)link;
}

static void on_tick(uv_timer_t *timer) {
    observer *ob = timer->data;
    kin_err err;
    if (ob->o->stop && atomic_load(ob->o->stop)) {
        fail(ob, "stopped", "");
    } else if (ob->n_searching > SEARCH_TICKS) {
        fail(ob, "there is no head on this machine, and none was found on the local network", "");
    } else if (ob->n_searching) {
        if (ob->n_searching++ % QUESTION_TICKS == 1) kin_discovery_ask(ob->discovery, &err); // if it fails, nothing answers
    } else if (ob->n_until_ask > 0) {
        if (--ob->n_until_ask == 0) ask(ob);
    } else if (ob->link && ++ob->n_waiting > TIMEOUT_TICKS) {
        fail(ob, "the head does not answer", "");
    }
}

int kin_status_client_run(const kin_status_client_options *o, char **text, kin_err *err) {
    observer ob = {.o = o, .err = err};
    *text = NULL;
    if (kin_tls_ctx_open(&ob.tls, o->key.bytes, err) != 0) return KIN_FAIL;
    if (uv_loop_init(&ob.loop) != 0) {
        kin_tls_ctx_close(ob.tls);
        return kin_err_set(err, "cannot create the event loop");
    }
    uv_timer_init(&ob.loop, &ob.timer);
    ob.timer.data = &ob;
    uv_timer_start(&ob.timer, on_tick, TICK_MS, TICK_MS);
    connect_to(&ob, o->head ? o->head : "127.0.0.1", o->port);
    uv_run(&ob.loop, UV_RUN_DEFAULT);
    kin_assert(uv_loop_close(&ob.loop) == 0);
    kin_tls_ctx_close(ob.tls);
    if (!ob.has_failed) {
        *text = ob.text;
        return 0;
    }
    free(ob.text);
    return KIN_FAIL;
}
