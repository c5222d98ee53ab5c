#include "observe/json_text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

int kin_json_text_save(const char *path, const json_t *json, kin_err *err) {
    FILE *file = fopen(path, "w");
    if (!file) return kin_err_set(err, "%s: %s", path, strerror(errno));
    bool failed = json_dumpf(json, file, JSON_INDENT(2)) != 0 || fputc('\n', file) == EOF;
    if (fclose(file) != 0 || failed) return kin_err_set(err, "cannot write %s: %s", path, strerror(errno));
    return 0;
}

json_t *kin_json_text_load(const char *path, kin_err *err) {
    json_error_t where;
    FILE *file = fopen(path, "r");
    if (!file) {
        kin_err_set(err, "%s: %s", path, strerror(errno));
        return NULL;
    }
    json_t *json = json_loadf(file, JSON_REJECT_DUPLICATES, &where);
    if (!json && ferror(file)) kin_err_set(err, "%s: %s", path, strerror(errno)); // a directory, or a broken disk
    if (!json && !ferror(file) && where.line > 0) kin_err_set(err, "%s, line %d: %s", path, where.line, where.text);
    if (!json && !ferror(file) && where.line <= 0) kin_err_set(err, "%s: %s", path, where.text);
    fclose(file);
    return json;
}
