// The picture of a timeline.
#include "observe/timeline_svg.h"

enum { // in SVG units
    WIDTH = 1100,
    LEFT = 130, // start of the bars: room for names
    RIGHT = 20,
    TOP = 56,
    LANE = 18,     // height of the processor's lane
    DISK_LANE = 7, // height of the disk's lane
    LANE_GAP = 2,
    ROW = 42, // distance between rows
    BOTTOM = 40,
    MAX_TICKS = 12,
};

static const struct {
    const char *class, *what;
} kinds[] = {[KIN_PROTO_EVENT_COMPUTE] = {"compute", "computing"},
             [KIN_PROTO_EVENT_WAIT] = {"wait", "waiting"},
             [KIN_PROTO_EVENT_DISK] = {"disk", "reading from disk"},
             [KIN_PROTO_EVENT_SEND] = {"send", "sending"}};

enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

static const char style[] = "text{font:12px system-ui,sans-serif;fill:#1f2733}.small{font-size:10px;fill:#5c6675}"
                            ".ground{fill:#fff}.lane{fill:#f2f4f7}.compute{fill:#2f6fd0}.wait{fill:#cbd3df}.disk{fill:#e08a2e}"
                            ".send{fill:#27986a}.axis,.token{stroke:#8b95a5;stroke-width:1}.token{stroke-dasharray:2 3}"
                            "@media(prefers-color-scheme:dark){text{fill:#e6eaf0}.small{fill:#9aa5b5}.ground{fill:#14181f}"
                            ".lane{fill:#1d232d}.compute{fill:#6aa2f5}.wait{fill:#3c4657}.disk{fill:#f0a552}.send{fill:#4cc592}"
                            ".axis,.token{stroke:#6b7687}}";

typedef struct picture {
    const kin_timeline *t;
    FILE *f;
    kin_time begin, end;
    double ms; // of the shown interval
} picture;

static double x_of(const picture *p, kin_time at) {
    if (at < p->begin) at = p->begin;
    if (at > p->end) at = p->end;
    return LEFT + kin_clock_ms(p->begin, at) / p->ms * (WIDTH - LEFT - RIGHT);
}

static int row_y(int row) {
    return TOP + row * ROW;
}

static void write_text(FILE *f, const char *text) {
    for (; *text; text++) {
        switch (*text) {
        case '&': fputs("&amp;", f); break;
        case '<': fputs("&lt;", f); break;
        case '>': fputs("&gt;", f); break;
        default: fputc(*text, f);
        }
    }
}

// ---- rows

// Returns the percentage of the shown time that a row spends on one kind. Only bars for sending may overlap.
static double share_of(const picture *p, int row, kin_proto_event_kind kind) {
    double ms = 0;
    for (int i = 0; i < kin_timeline_n_bars(p->t); i++) {
        const kin_bar b = kin_timeline_bar(p->t, i);
        if (b.row != row || b.event.kind != kind || b.event.end <= p->begin || b.event.begin >= p->end) continue;
        kin_time begin = b.event.begin > p->begin ? b.event.begin : p->begin;
        ms += kin_clock_ms(begin, b.event.end < p->end ? b.event.end : p->end);
    }
    return 100 * ms / p->ms;
}

static void draw_bar(const picture *p, const kin_proto_event *e) {
    bool disk = e->kind == KIN_PROTO_EVENT_DISK;
    double x = x_of(p, e->begin), width = x_of(p, e->end) - x;
    fprintf(p->f, "<rect class=\"%s\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\"><title>%s, ", kinds[e->kind].class, x,
            disk ? LANE + LANE_GAP : 0, width < 0.3 ? 0.3 : width, disk ? DISK_LANE : LANE, kinds[e->kind].what);
    if (!disk) fprintf(p->f, "step %llu, round %u, ", (unsigned long long)e->step, e->round + 1u);
    fprintf(p->f, "%.3f ms</title></rect>\n", kin_clock_ms(e->begin, e->end));
}

// Draws waiting below other activity.
static void draw_bars(const picture *p, int row, bool waiting) {
    for (int i = 0; i < kin_timeline_n_bars(p->t); i++) {
        const kin_bar b = kin_timeline_bar(p->t, i);
        if (b.row != row || (b.event.kind == KIN_PROTO_EVENT_WAIT) != waiting) continue;
        if (b.event.end > p->begin && b.event.begin < p->end) draw_bar(p, &b.event);
    }
}

static void draw_row(const picture *p, int row) {
    fprintf(p->f, "<g class=\"device\" transform=\"translate(0 %d)\">\n<text x=\"8\" y=\"12\">", row_y(row));
    write_text(p->f, kin_timeline_name(p->t, row));
    fprintf(p->f, "</text>\n<text class=\"small\" x=\"8\" y=\"26\">computes %.0f %%</text>\n",
            share_of(p, row, KIN_PROTO_EVENT_COMPUTE));
    for (int lane = 0; lane < 2; lane++) {
        fprintf(p->f, "<rect class=\"lane\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", LEFT, lane ? LANE + LANE_GAP : 0,
                WIDTH - LEFT - RIGHT, lane ? DISK_LANE : LANE);
    }
    draw_bars(p, row, true);
    draw_bars(p, row, false);
    fprintf(p->f, "</g>\n");
}

// ---- axis, tokens, legend

static double tick_step(double ms) {
    double step = 1e-3;
    static const double factors[] = {2, 2.5, 2}; // 1, 2, 5, 10
    for (int i = 0; ms / step > MAX_TICKS; i++) step *= factors[i % 3];
    return step;
}

static void draw_axis(const picture *p, int y) {
    double step = tick_step(p->ms);
    fprintf(p->f, "<path class=\"axis\" d=\"M%d %dH%d\"/>\n", LEFT, y, WIDTH - RIGHT);
    for (int i = 0; i * step <= p->ms; i++) {
        double x = LEFT + i * step / p->ms * (WIDTH - LEFT - RIGHT);
        fprintf(
            p->f,
            "<path class=\"axis\" d=\"M%.2f %dv4\"/><text class=\"small\" text-anchor=\"middle\" x=\"%.2f\" y=\"%d\">%g</text>\n",
            x, y, x, y + 16, i * step);
    }
    fprintf(p->f, "<text class=\"small\" x=\"8\" y=\"%d\">ms after the prompt</text>\n", y + 16);
}

static void draw_tokens(const picture *p, int y) {
    for (int i = 1; i < kin_timeline_n_marks(p->t); i++) {
        double x = x_of(p, kin_timeline_mark_at(p->t, i));
        fprintf(p->f,
                "<path class=\"token\" d=\"M%.2f %dV%d\"/><text class=\"small\" text-anchor=\"end\" x=\"%.2f\" y=\"%d\">token "
                "%d</text>\n",
                x, TOP - 12, y, x - 3, TOP - 6, i);
    }
}

static void draw_legend(const picture *p) {
    int x = LEFT;
    for (int i = 0; i < N_KINDS; i++) {
        fprintf(p->f, "<rect class=\"%s\" x=\"%d\" y=\"12\" width=\"14\" height=\"12\"/><text x=\"%d\" y=\"22\">%s</text>\n",
                kinds[i].class, x, x + 20, kinds[i].what);
        x += i == KIN_PROTO_EVENT_DISK ? 180 : 110;
    }
}

void kin_timeline_draw(const kin_timeline *t, FILE *f) {
    int n_marks = kin_timeline_n_marks(t), n_rows = kin_timeline_n_rows(t);
    picture p = {.t = t, .f = f, .begin = kin_timeline_mark_at(t, 0), .end = kin_timeline_mark_at(t, n_marks - 1)};
    p.ms = p.end > p.begin ? kin_clock_ms(p.begin, p.end) : 1e-3;
    int y = row_y(n_rows), height = y + BOTTOM;
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\">\n<title>What each "
            "device did during %d tokens</title>\n<style>%s</style>\n<rect class=\"ground\" width=\"%d\" height=\"%d\"/>\n",
            WIDTH, height, WIDTH, height, n_marks - 1, style, WIDTH, height);
    draw_legend(&p);
    for (int row = 0; row < n_rows; row++) draw_row(&p, row);
    draw_axis(&p, y);
    draw_tokens(&p, y);
    fprintf(f, "</svg>\n");
}
