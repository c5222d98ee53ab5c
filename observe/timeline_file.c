#include "observe/timeline_file.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "observe/timeline_svg.h"
#include "observe/timeline_trace.h"

static bool is_named_json(const char *path) {
    size_t n = strlen(path);
    return n >= 5 && strcasecmp(path + n - 5, ".json") == 0;
}

int kin_timeline_write(kin_timeline *t, const char *path, kin_err *err) {
    if (kin_timeline_n_marks(t) < 2) return kin_err_set(err, "%s: no token was generated after the prompt", path);
    kin_timeline_end(t);
    FILE *f = fopen(path, "w");
    if (!f) return kin_err_set(err, "cannot write %s", path);
    bool failed = false;
    if (is_named_json(path))
        failed = kin_timeline_trace(t, f) != 0;
    else
        kin_timeline_draw(t, f);
    failed = failed || ferror(f);
    return fclose(f) == 0 && !failed ? 0 : kin_err_set(err, "cannot write %s completely", path);
}
