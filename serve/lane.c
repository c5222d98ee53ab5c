#include "serve/lane.h"

#include <stddef.h>

#include "base/err.h"

void kin_lane_init(kin_lane *l, uv_loop_t *loop, int n_most) {
    *l = (kin_lane){.loop = loop, .n_most = n_most};
    l->end = &l->first;
}

static void run_lane(uv_work_t *work) {
    kin_lane_work *w = work->data;
    w->run(w);
}

static bool start(kin_lane *l, kin_lane_work *w);

static void ended(uv_work_t *work, int status) {
    kin_lane_work *w = work->data, *next;
    kin_lane *l = w->lane;
    l->is_running = false;
    w->done(w, status);
    while (!l->is_running && (next = l->first) != NULL) {
        kin_lane_remove(l, next);
        if (!start(l, next)) next->done(next, UV_ENOMEM);
    }
}

static bool start(kin_lane *l, kin_lane_work *w) {
    w->work.data = w;
    l->is_running = uv_queue_work(l->loop, &w->work, run_lane, ended) == 0;
    return l->is_running;
}

bool kin_lane_queue(kin_lane *l, kin_lane_work *w) {
    w->lane = l;
    w->next = NULL;
    if (!l->is_running && !l->first) return start(l, w);
    if (l->n_waiting == l->n_most) return false;
    *l->end = w;
    l->end = &w->next;
    l->n_waiting++;
    return true;
}

static void ended_beside(uv_work_t *work, int status) {
    kin_lane_work *w = work->data;
    w->done(w, status);
}

void kin_lane_run(kin_lane *l, kin_lane_work *w, bool is_long) {
    w->work.data = w;
    bool is_queued = is_long ? kin_lane_queue(l, w) : uv_queue_work(l->loop, &w->work, run_lane, ended_beside) == 0;
    kin_assert(is_queued);
}

bool kin_lane_remove(kin_lane *l, kin_lane_work *w) {
    kin_lane_work **at = &l->first;
    while (*at && *at != w) at = &(*at)->next;
    if (!*at) return false;
    *at = w->next;
    if (l->end == &w->next) l->end = at;
    l->n_waiting--;
    return true;
}
