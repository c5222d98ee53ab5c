// The timeline as trace events: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
//
//   a device         a process (pid), named by a metadata event ("M")
//   a kind of event  a thread of it (tid): compute, wait, send, disk
//   an event         "X" with its begin and duration in microseconds, step and round in args
//   the end of a token, or of the prompt   "i", global
//
// Times count from the earliest event.
#include "observe/timeline_trace.h"

#include <jansson.h>

static const char *const lanes[] = {[KIN_PROTO_EVENT_COMPUTE] = "compute",
                                    [KIN_PROTO_EVENT_WAIT] = "wait",
                                    [KIN_PROTO_EVENT_SEND] = "send",
                                    [KIN_PROTO_EVENT_DISK] = "disk"};

enum { N_LANES = sizeof lanes / sizeof lanes[0] };

static double us_between(kin_time begin, kin_time end) {
    return 1e3 * kin_clock_ms(begin, end);
}

// Bars begin a little before the end of the prompt.
static kin_time find_begin(const kin_timeline *t) {
    kin_time begin = kin_timeline_mark_at(t, 0);
    for (int i = 0; i < kin_timeline_n_bars(t); i++) {
        kin_time at = kin_timeline_bar(t, i).event.begin;
        if ((int64_t)(at - begin) < 0) begin = at;
    }
    return begin;
}

static json_t *name_event(const char *what, int pid, int tid, const char *name) {
    return json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "name", what, "ph", "M", "pid", pid, "tid", tid, "args", "name", name);
}

static json_t *bar_event(const kin_timeline *t, const kin_bar *bar, kin_time origin) {
    const kin_proto_event *e = &bar->event;
    const char *layers = kin_timeline_layers(t, bar->row);
    char name[KIN_TIMELINE_LAYERS + 64];
    if (e->kind == KIN_PROTO_EVENT_DISK)
        snprintf(name, sizeof name, "%s", lanes[e->kind]);
    else if (e->kind == KIN_PROTO_EVENT_COMPUTE && layers[0])
        snprintf(name, sizeof name, "layers %s, step %llu", layers, (unsigned long long)e->step);
    else
        snprintf(name, sizeof name, "%s, step %llu", lanes[e->kind], (unsigned long long)e->step);
    return json_pack("{s:s, s:s, s:s, s:i, s:i, s:f, s:f, s:{s:I, s:i}}", "name", name, "cat", lanes[e->kind], "ph", "X", "pid",
                     bar->row + 1, "tid", (int)e->kind + 1, "ts", us_between(origin, e->begin), "dur",
                     us_between(e->begin, e->end), "args", "step", (json_int_t)e->step, "round", (int)e->round + 1);
}

static json_t *mark_event(const kin_timeline *t, int i, kin_time origin) {
    char name[32] = "end of the prompt";
    if (i > 0) snprintf(name, sizeof name, "token %d", i);
    return json_pack("{s:s, s:s, s:s, s:i, s:i, s:f}", "name", name, "ph", "i", "s", "g", "pid", 1, "tid", 1, "ts",
                     us_between(origin, kin_timeline_mark_at(t, i)));
}

int kin_timeline_trace(const kin_timeline *t, FILE *f) {
    json_t *events = json_array(), *root = json_pack("{s:s, s:o}", "displayTimeUnit", "ms", "traceEvents", events);
    kin_time origin = find_begin(t);
    int n_lost = 0; // out of memory
    for (int row = 0; row < kin_timeline_n_rows(t); row++) {
        n_lost -= json_array_append_new(events, name_event("process_name", row + 1, 0, kin_timeline_name(t, row)));
        for (int lane = 0; lane < N_LANES; lane++)
            n_lost -= json_array_append_new(events, name_event("thread_name", row + 1, lane + 1, lanes[lane]));
    }
    for (int i = 0; i < kin_timeline_n_bars(t); i++) {
        const kin_bar bar = kin_timeline_bar(t, i);
        n_lost -= json_array_append_new(events, bar_event(t, &bar, origin));
    }
    for (int i = 0; i < kin_timeline_n_marks(t); i++) n_lost -= json_array_append_new(events, mark_event(t, i, origin));
    int rc =
        n_lost == 0 && json_dumpf(root, f, JSON_COMPACT | JSON_REAL_PRECISION(15)) == 0 && fputc('\n', f) != EOF ? 0 : KIN_FAIL;
    json_decref(root);
    return rc;
}
