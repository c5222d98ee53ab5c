#include "app/model_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "app/app.h"
#include "base/clock.h"
#include "base/units.h"
#include "cluster/model_needs.h"
#include "engine/governor.h"
#include "net/key.h"

enum { SHOW_MS = 200 };

// Beside the cluster's key: ~/.config/kin/models.
static const char *known_file(char *buf, size_t n) {
    if (!kin_key_default_path(buf, n)) return NULL;
    char *slash = strrchr(buf, '/');
    size_t at = slash ? (size_t)(slash - buf) + 1 : 0;
    return snprintf(buf + at, n - at, "models") < (int)(n - at) ? buf : NULL;
}

kin_pull_options kin_model_source_options(void) {
    static char dir[1024], known[1024];
    char cache[1000];
    kin_pull_options o = kin_pull_options_defaults();
    const char *base = kin_session_default_cache(cache, sizeof cache);
    if (!o.models_dir || !o.models_dir[0]) {
        if (base) snprintf(dir, sizeof dir, "%s/models", base);
        o.models_dir = base ? dir : NULL;
    }
    o.known_file = known_file(known, sizeof known);
    o.stop = &kin_app_stop;
    o.needs = kin_model_needs;
    return o;
}

bool kin_model_source_is_name(const char *word) {
    struct stat st;
    kin_pull_options o = kin_model_source_options();
    return stat(word, &st) != 0 && o.models_dir && kin_pull_is_name(&o, word);
}

// ---- what the user sees

static void log_sentence(void *user, const char *sentence) {
    (void)user;
    kin_app_log("%s", sentence);
}

static void format_time(double s, char *to, size_t n) {
    if (s >= 3600)
        snprintf(to, n, "%d:%02d h", (int)(s / 3600), (int)(s / 60) % 60);
    else
        snprintf(to, n, "%d:%02d", (int)(s / 60), (int)s % 60);
}

static void show(void *user, const char *file, const char *digest, const kin_download_progress *p) {
    static kin_time shown;
    kin_time now = kin_clock_now();
    char line[400], done[32], total[32], rate[32], left[32];
    (void)user, (void)digest;
    if (p->phase == KIN_DOWNLOAD_FETCHING && kin_clock_ms(shown, now) < SHOW_MS) return;
    shown = now;
    kin_size_format(p->done, done, sizeof done);
    kin_size_format(p->total, total, sizeof total);
    kin_size_format((uint64_t)p->bytes_s, rate, sizeof rate);
    format_time(p->bytes_s > 0 ? (double)(p->total - p->done) / p->bytes_s : 0, left, sizeof left);
    if (p->phase == KIN_DOWNLOAD_CHECKING)
        snprintf(line, sizeof line, "checking %.200s: %d %%", file, (int)(100 * p->done / p->total));
    else if (p->phase == KIN_DOWNLOAD_WAITING)
        snprintf(line, sizeof line, "another kin fetches %.200s; %s of %s", file, done, total);
    else if (p->phase == KIN_DOWNLOAD_PAUSED)
        snprintf(line, sizeof line, "fetching %.200s: %s of %s, waiting for the server", file, done, total);
    else if (p->bytes_s > 0)
        snprintf(line, sizeof line, "fetching %.200s: %s of %s, %s/s, %s left", file, done, total, rate, left);
    else
        snprintf(line, sizeof line, "fetching %.200s: %s of %s", file, done, total);
    kin_app_status(line);
}

int kin_model_source_pull(kin_pull_options *o, const char *name, kin_model_record *record, kin_err *err) {
    o->log = log_sentence;
    o->progress = show;
    int rc = kin_pull(o, name, record, err);
    kin_app_progress_clear();
    if (rc != 0 && atomic_load(&kin_app_stop)) kin_app_log("stopped; the same command continues the download");
    return rc;
}

int kin_model_source_resolve(kin_session_options *o, kin_err *err) {
    static kin_model_record record;
    if (!o->model || !kin_model_source_is_name(o->model)) return 0;
    kin_pull_options po = kin_model_source_options();
    po.mirror = o->mirror;
    po.offline = o->offline;
    po.room = kin_governor_room(o->memory);
    if (kin_model_source_pull(&po, o->model, &record, err) != 0) return KIN_FAIL;
    o->model = record.path;
    return 0;
}
