#include "observe/timeline.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct kin_timeline {
    kin_trace *own;
    int n_tokens;

    pthread_mutex_t mutex; // guards the following
    bool has_ended;        // later events are dropped
    int n_rows, n_bars, n_marks;
    size_t cap;
    char names[KIN_TIMELINE_ROWS][KIN_TIMELINE_NAME];
    char layers[KIN_TIMELINE_ROWS][KIN_TIMELINE_LAYERS];
    int64_t ahead_ns[KIN_TIMELINE_ROWS]; // the row's clock minus the head's
    kin_bar *bars;                       // [cap], times as received
    kin_time marks[KIN_TIMELINE_TOKENS + 1];
};

int kin_timeline_open(kin_timeline **out, int n_tokens, kin_err *err) {
    kin_assert(n_tokens >= 1 && n_tokens <= KIN_TIMELINE_TOKENS);
    kin_timeline *t = *out = calloc(1, sizeof *t);
    if (!t) return kin_err_set(err, "out of memory");
    t->n_tokens = n_tokens;
    pthread_mutex_init(&t->mutex, NULL);
    if (kin_trace_open(&t->own, err) == 0) {
        kin_trace_turn(t->own, true);
        return 0;
    }
    kin_timeline_close(t);
    *out = NULL;
    return KIN_FAIL;
}

void kin_timeline_close(kin_timeline *t) {
    if (!t) return;
    kin_trace_close(t->own);
    pthread_mutex_destroy(&t->mutex);
    free(t->bars);
    free(t);
}

kin_trace *kin_timeline_own(kin_timeline *t) {
    return t ? t->own : NULL;
}

static int find_row(kin_timeline *t, const char *name) {
    for (int i = 0; i < t->n_rows; i++) {
        if (strncmp(t->names[i], name, KIN_TIMELINE_NAME - 1) == 0) return i;
    }
    if (t->n_rows == KIN_TIMELINE_ROWS || t->has_ended) return -1;
    snprintf(t->names[t->n_rows], KIN_TIMELINE_NAME, "%s", name);
    return t->n_rows++;
}

int kin_timeline_row(kin_timeline *t, const char *name) {
    if (!t) return -1;
    pthread_mutex_lock(&t->mutex);
    int row = find_row(t, name);
    pthread_mutex_unlock(&t->mutex);
    return row;
}

// Ends with "..." if not all windows fit.
static void describe_windows(const kin_windows *windows, char text[KIN_TIMELINE_LAYERS]) {
    enum { END = KIN_TIMELINE_LAYERS - 32 };
    int used = windows->n == 0 ? snprintf(text, KIN_TIMELINE_LAYERS, "none") : 0;
    for (int i = 0; i < windows->n; i++) {
        const kin_window *w = &windows->at[i];
        const char *comma = i ? ", " : "";
        if (used > END) {
            snprintf(text + used, KIN_TIMELINE_LAYERS - (size_t)used, ", ...");
            return;
        }
        used += snprintf(text + used, KIN_TIMELINE_LAYERS - (size_t)used, w->layer_end - w->layer_begin > 1 ? "%s%d-%d" : "%s%d",
                         comma, w->layer_begin, w->layer_end - 1);
    }
}

int kin_timeline_place(kin_timeline *t, const char *name, const kin_windows *windows) {
    int row = kin_timeline_row(t, name);
    if (row < 0) return row;
    pthread_mutex_lock(&t->mutex);
    describe_windows(windows, t->layers[row]);
    pthread_mutex_unlock(&t->mutex);
    return row;
}

// Clocks may start anywhere: modulo 2^64.
static kin_bar on_heads_clock(const kin_timeline *t, kin_bar bar) {
    bar.event.begin -= (uint64_t)t->ahead_ns[bar.row];
    bar.event.end -= (uint64_t)t->ahead_ns[bar.row];
    return bar;
}

// Everything before the first mark belongs to the prompt.
static bool is_outside(const kin_timeline *t, kin_bar bar) {
    const kin_proto_event e = on_heads_clock(t, bar).event;
    bool whole = t->n_marks == t->n_tokens + 1;
    return t->n_marks == 0 || e.end < e.begin || e.end + KIN_TIMELINE_MARGIN_NS <= t->marks[0] ||
           (whole && e.begin >= t->marks[t->n_marks - 1] + KIN_TIMELINE_MARGIN_NS);
}

static bool grow_bars(kin_timeline *t) {
    if ((size_t)t->n_bars < t->cap) return true;
    size_t cap = t->cap ? 2 * t->cap : 1024;
    kin_bar *bars = cap <= KIN_TIMELINE_BARS ? realloc(t->bars, cap * sizeof *bars) : NULL;
    if (!bars) return false;
    t->bars = bars;
    t->cap = cap;
    return true;
}

void kin_timeline_add(kin_timeline *t, int row, const kin_proto_event *events, int n, int64_t clock_ahead_ns) {
    if (!t || row < 0) return;
    pthread_mutex_lock(&t->mutex);
    if (!t->has_ended) t->ahead_ns[row] = clock_ahead_ns;
    for (int i = 0; i < n && !t->has_ended; i++) {
        kin_bar bar = {row, events[i]};
        if (!is_outside(t, bar) && grow_bars(t)) t->bars[t->n_bars++] = bar;
    }
    pthread_mutex_unlock(&t->mutex);
}

void kin_timeline_add_own(kin_timeline *t, int row) {
    kin_proto_event events[64];
    int n;
    if (!t) return;
    while ((n = kin_trace_pop(t->own, events, 64)) > 0) kin_timeline_add(t, row, events, n, 0);
}

void kin_timeline_mark(kin_timeline *t, kin_time now) {
    if (!t) return;
    pthread_mutex_lock(&t->mutex);
    if (t->n_marks < t->n_tokens + 1 && !t->has_ended) t->marks[t->n_marks++] = now;
    pthread_mutex_unlock(&t->mutex);
}

bool kin_timeline_is_whole(kin_timeline *t) {
    if (!t) return true;
    pthread_mutex_lock(&t->mutex);
    bool whole = t->n_marks == t->n_tokens + 1;
    pthread_mutex_unlock(&t->mutex);
    return whole;
}

void kin_timeline_end(kin_timeline *t) {
    pthread_mutex_lock(&t->mutex);
    t->has_ended = true;
    pthread_mutex_unlock(&t->mutex);
}

int kin_timeline_n_rows(const kin_timeline *t) {
    return t->n_rows;
}

const char *kin_timeline_name(const kin_timeline *t, int row) {
    return t->names[row];
}

const char *kin_timeline_layers(const kin_timeline *t, int row) {
    return t->layers[row];
}

int kin_timeline_n_bars(const kin_timeline *t) {
    return t->n_bars;
}

kin_bar kin_timeline_bar(const kin_timeline *t, int i) {
    return on_heads_clock(t, t->bars[i]);
}

int kin_timeline_n_marks(const kin_timeline *t) {
    return t->n_marks;
}

kin_time kin_timeline_mark_at(const kin_timeline *t, int i) {
    return t->marks[i];
}
