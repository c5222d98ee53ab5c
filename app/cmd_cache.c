// kin cache: the prepacked weights that earlier runs left on the disk.
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "app/app.h"
#include "app/session.h"
#include "base/units.h"
#include "engine/packed.h"
#include "pure/text/escape.h"

enum { N_CACHE_OPTIONS = 2 };

static void fill_table(const char **dir, kin_option table[N_CACHE_OPTIONS]) {
    const kin_option own[N_CACHE_OPTIONS] = {
        {KIN_OPTION_STRING, "cache", 0, dir, "DIR", "where prepacked weights are kept (default: the user's cache directory)", 0,
         0},
        {0},
    };
    memcpy(table, own, sizeof own);
}

static bool is_pack(const char *name) {
    size_t n = strlen(name), suffix = strlen(KIN_PACKED_SUFFIX);
    return n > suffix && strcmp(name + n - suffix, KIN_PACKED_SUFFIX) == 0;
}

// Calls visit for every cache file; returns how many there were, or KIN_FAIL.
static int each_pack(const char *dir, int (*visit)(const char *path, const char *name, const struct stat *st, kin_err *err),
                     kin_err *err) {
    DIR *d = opendir(dir);
    if (!d && errno == ENOENT) return 0;
    if (!d) return kin_err_set(err, "%s: %s", dir, strerror(errno));
    int n = 0;
    for (struct dirent *entry; n >= 0 && (entry = readdir(d));) {
        char path[1024];
        struct stat st;
        snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        if (!is_pack(entry->d_name) || stat(path, &st) != 0) continue;
        n = visit(path, entry->d_name, &st, err) == 0 ? n + 1 : KIN_FAIL;
    }
    closedir(d);
    return n;
}

static int print_one(const char *path, const char *name, const struct stat *st, kin_err *err) {
    (void)path;
    (void)err;
    char size[32], when[32], shown[1024];
    strftime(when, sizeof when, "%Y-%m-%d %H:%M", localtime(&st->st_mtime));
    printf("%s  %10s  made %s\n", kin_escape(shown, sizeof shown, name, strlen(name)),
           kin_size_format((uint64_t)st->st_blocks * 512, size, sizeof size), when);
    return 0;
}

static const char *wanted; // the operand of rm

static int remove_one(const char *path, const char *name, const struct stat *st, kin_err *err) {
    (void)st;
    if (strcmp(wanted, "all") != 0 && strncmp(name, wanted, strlen(wanted)) != 0) return 0;
    if (unlink(path) != 0) return kin_err_set(err, "%s: %s", path, strerror(errno));
    char shown[1024];
    printf("removed %s\n", kin_escape(shown, sizeof shown, name, strlen(name)));
    return 0;
}

static int command_cache(int argc, char **argv) {
    const char *dir = NULL, *rest = NULL;
    char buf[1024];
    kin_option table[N_CACHE_OPTIONS];
    kin_err err;
    fill_table(&dir, table);
    const char *verb = argc > 0 ? argv[0] : "";
    bool remove = strcmp(verb, "rm") == 0;
    if (!remove && strcmp(verb, "ls") != 0) {
        kin_err_set(&err, "say what to do: ls, or rm NAME, or rm all");
        return kin_app_usage("cache", &err);
    }
    if (kin_options_parse((kin_option_tables){table}, argc - 1, argv + 1, remove ? &rest : NULL, &err) != 0)
        return kin_app_usage("cache", &err);
    if (remove && (!rest || !rest[0])) {
        kin_err_set(&err, "rm needs a name as ls shows it (its beginning is enough), or all");
        return kin_app_usage("cache", &err);
    }
    if (!dir) dir = kin_session_default_cache(buf, sizeof buf);
    wanted = rest;
    int n = dir ? each_pack(dir, remove ? remove_one : print_one, &err) : 0;
    if (n < 0) return kin_app_fail(&err);
    if (n == 0) kin_app_say("nothing is cached in %s", dir ? dir : "(no home directory)");
    return KIN_EXIT_OK;
}

static void options(void (*use)(kin_option_tables tables, void *user), void *user) {
    const char *dir = NULL;
    kin_option table[N_CACHE_OPTIONS];
    fill_table(&dir, table);
    use((kin_option_tables){table}, user);
}

const kin_command kin_command_cache = {
    .name = "cache",
    .args = "ls | rm NAME | rm all",
    .summary = "show or remove the prepacked weights on the disk",
    .help =
        "The first run of a model packs its weights into the layout that this CPU multiplies fastest and keeps them in a file;\n"
        "later runs map it. Removing it costs only the time to pack again.",
    .run = command_cache,
    .options = options,
    .operands = "ls rm all",
};
