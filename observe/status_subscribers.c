#include "observe/status_subscribers.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/log.h"
#include "pure/proto/message.h"

enum { ASK_TICKS = 10, TIMEOUT_TICKS = 5 };

typedef struct observer {
    kin_status_subscribers *subscribers;
    kin_link *link; // NULL: unused
    bool wants;
    int n_waited; // ticks since it asked
} observer;

// The client in this process.
typedef struct own_observer {
    kin_status_report_fn receive; // NULL: none
    void *user;
    int n_waited;
} own_observer;

struct kin_status_subscribers {
    kin_status_subscribers_callbacks callbacks;
    void *user;
    observer observers[KIN_STATUS_SUBSCRIBERS_MAX];
    own_observer own;
    int n_since_ask; // ticks
};

int kin_status_subscribers_open(kin_status_subscribers **out, const kin_status_subscribers_callbacks *callbacks, void *user,
                                kin_err *err) {
    kin_status_subscribers *a = *out = calloc(1, sizeof *a);
    if (!a) return kin_err_set(err, "out of memory");
    a->callbacks = *callbacks;
    a->user = user;
    a->n_since_ask = ASK_TICKS;
    return 0;
}

void kin_status_subscribers_close(kin_status_subscribers *a, const char *reason) {
    if (!a) return;
    for (int i = 0; i < KIN_STATUS_SUBSCRIBERS_MAX; i++) {
        if (a->observers[i].link) kin_link_close(a->observers[i].link, reason);
    }
    free(a);
}

static void ask_for_status(kin_status_subscribers *a) {
    a->n_since_ask = 0;
    a->callbacks.ask(a->user);
}

static void observer_frame(void *user, kin_link *link, const kin_frame *frame, const uint8_t *payload) {
    observer *o = user;
    (void)payload;
    if (frame->type != KIN_FRAME_STATUS_WANTED) {
        kin_log(KIN_LOG_WARN, "%s sent %s, which is not allowed on a status link", kin_link_name(link),
                kin_frame_name(frame->type));
        kin_link_close(link, "only status requests are allowed on this link");
        o->link = NULL;
        return;
    }
    if (o->wants) return;
    o->wants = true;
    o->n_waited = 0;
    if (o->subscribers->n_since_ask >= ASK_TICKS) ask_for_status(o->subscribers);
}

static void observer_closed(void *user, kin_link *link, const char *reason) {
    observer *o = user;
    (void)link, (void)reason;
    o->link = NULL;
}

bool kin_status_subscribers_add(kin_status_subscribers *a, kin_link *link) {
    static const kin_link_callbacks callbacks = {.frame = observer_frame, .closed = observer_closed};
    for (int i = 0; i < KIN_STATUS_SUBSCRIBERS_MAX; i++) {
        observer *o = &a->observers[i];
        if (o->link) continue;
        *o = (observer){.subscribers = a, .link = link};
        kin_link_accept(link, &callbacks, o);
        return true;
    }
    return false;
}

static void send_report(kin_link *link, const char *text) {
    uint8_t n[4];
    size_t length = strlen(text);
    kin_assert(length <= KIN_FRAME_REPORT_BYTES);
    kin_put_u32(n, (uint32_t)length);
    kin_frame_part parts[] = {{n, sizeof n}, {text, length}};
    kin_link_send(link, KIN_FRAME_REPORT, 0, 2, parts);
}

void kin_status_subscribers_ask(kin_status_subscribers *a, kin_status_report_fn receive, void *user) {
    if (a->own.receive) return;
    a->own = (own_observer){receive, user, 0};
    if (a->n_since_ask >= ASK_TICKS) ask_for_status(a);
}

static void answer_own(kin_status_subscribers *a, bool answered) {
    own_observer o = a->own;
    if (!o.receive || (!answered && a->own.n_waited++ < TIMEOUT_TICKS)) return;
    a->own.receive = NULL;
    o.receive(o.user, a->callbacks.report(a->user));
}

void kin_status_subscribers_tick(kin_status_subscribers *a) {
    bool any = a->own.receive != NULL, answered = a->callbacks.has_answered(a->user);
    char *text = NULL;
    answer_own(a, answered);
    for (int i = 0; i < KIN_STATUS_SUBSCRIBERS_MAX; i++) {
        observer *o = &a->observers[i];
        any = any || o->link;
        if (!o->link || !o->wants || (!answered && o->n_waited++ < TIMEOUT_TICKS)) continue;
        o->wants = false;
        if (!text) text = a->callbacks.report(a->user);
        if (text) send_report(o->link, text);
    }
    free(text);
    if (a->n_since_ask < ASK_TICKS) a->n_since_ask++;
    if (any && a->n_since_ask >= ASK_TICKS) ask_for_status(a);
}
