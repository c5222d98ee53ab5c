#include "app/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/suggest.h"
#include "net/key.h"
#include "sys/whole_file.h"

enum { MAX_BYTES = 64 << 10, PATH_BYTES = 1024 };

static char path[PATH_BYTES];
static char *text; // of the file; the settings point into it
static kin_setting settings[KIN_SETTINGS_MAX];
static int n_settings;
static kin_option_preset presets[KIN_SETTINGS_MAX];

const char *kin_settings_path(char *buf, size_t n) {
    const char *named = getenv("KIN_CONFIG");
    if (named && named[0]) return (size_t)snprintf(buf, n, "%s", named) < n ? buf : NULL;
    if (!kin_key_default_path(buf, n)) return NULL;
    char *name = strrchr(buf, '/') + 1;
    size_t room = n - (size_t)(name - buf);
    return (size_t)snprintf(name, room, "kin.conf") < room ? buf : NULL;
}

// ---- which options there are

typedef struct search {
    const char *name;
    bool is_found;
    kin_suggestion suggestion; // best: an option of any table that was searched
} search;

static void search_tables(kin_option_tables tables, void *user) {
    search *s = user;
    s->is_found = s->is_found || kin_options_have(tables, s->name);
    for (int t = 0; t < KIN_MAX_TABLES && tables[t]; t++)
        for (const kin_option *o = tables[t]; o->kind != KIN_OPTION_END; o++) kin_suggest(&s->suggestion, o->name);
}

bool kin_settings_concern(const char *option, const kin_command *command) {
    search s = {.name = option, .suggestion = {.word = option}};
    command->options(search_tables, &s);
    return s.is_found;
}

static const kin_command *find_section(const char *name) {
    for (int i = 0; kin_commands[i]; i++)
        if (strcmp(kin_commands[i]->name, name) == 0) return kin_commands[i];
    return NULL;
}

typedef struct trial {
    const kin_setting *setting;
    int n_fit, n_wrong; // commands whose option takes the value, or does not
    kin_err why;        // of the last that does not
} trial;

static void try_value(kin_option_tables tables, void *user) {
    trial *t = user;
    if (!kin_options_have(tables, t->setting->name)) return;
    bool fits = kin_options_check(tables, t->setting->name, t->setting->value, &t->why) == 0;
    t->n_fit += fits;
    t->n_wrong += !fits;
}

// A name alone must be a flag wherever it is an option. A value for all commands must fit one of them; a command's own value is
// checked when it is used.
static int check_value(const kin_setting *setting, const kin_command *section, kin_err *err) {
    trial t = {.setting = setting};
    if (section && setting->value) return 0;
    for (int i = 0; kin_commands[i]; i++)
        if (!section || kin_commands[i] == section) kin_commands[i]->options(try_value, &t);
    if (setting->value ? t.n_fit > 0 : t.n_wrong == 0) return 0;
    *err = t.why;
    return KIN_FAIL;
}

static int check_setting(const kin_setting *setting, kin_err *err) {
    search s = {.name = setting->name, .suggestion = {.word = setting->name}};
    const kin_command *section = find_section(setting->section);
    if (setting->section[0] && !section)
        return kin_err_set(err, "there is no command '%s'; sections are named after commands", setting->section);
    for (int i = 0; kin_commands[i]; i++)
        if (!section || kin_commands[i] == section) kin_commands[i]->options(search_tables, &s);
    if (s.is_found) return check_value(setting, section, err);
    if (section) kin_err_set(err, "kin %s has no option '%s'", section->name, setting->name);
    if (!section) kin_err_set(err, "unknown option '%s'", setting->name);
    if (!s.suggestion.best) return KIN_FAIL;
    kin_err unknown = *err;
    return kin_err_set(err, "%s; did you mean '%s'?", unknown.text, s.suggestion.best);
}

// ---- the file

// Replaces "~/" at the beginning of a value, as a shell would.
static int expand_home(kin_setting *s, kin_err *err) {
    const char *home = getenv("HOME");
    if (!s->value || strncmp(s->value, "~/", 2) != 0 || !home) return 0;
    size_t n = strlen(home) + strlen(s->value);
    char *whole = malloc(n);
    if (!whole) return kin_err_set(err, "out of memory");
    snprintf(whole, n, "%s%s", home, s->value + 1);
    s->value = whole;
    return 0;
}

static int read_lines(int *line, kin_err *err) {
    int rc = kin_settings_parse(text, settings, &n_settings, line, err);
    for (int i = 0; rc == 0 && i < n_settings; i++) {
        *line = settings[i].line;
        rc = check_setting(&settings[i], err) == 0 ? expand_home(&settings[i], err) : KIN_FAIL;
    }
    return rc;
}

int kin_settings_read(kin_err *err) {
    const char *named = getenv("KIN_CONFIG");
    uint8_t *bytes;
    size_t n;
    int line;
    if (text || !kin_settings_path(path, sizeof path)) return 0;
    int rc = kin_whole_file_read(path, MAX_BYTES, &bytes, &n, err);
    if (rc == KIN_ABSENT && !(named && named[0])) return 0;
    if (rc == KIN_ABSENT) return kin_err_set(err, "environment variable KIN_CONFIG: there is no file %s", path);
    if (rc != 0) return KIN_FAIL;
    text = (char *)bytes;
    if (memchr(bytes, 0, n)) return kin_err_set(err, "%s: is not UTF-8 text (perhaps UTF-16): save it as UTF-8", path);
    return read_lines(&line, err) == 0 ? 0 : kin_err_prefix(err, "%s:%d", path, line);
}

const kin_setting *kin_settings_list(int *n) {
    *n = n_settings;
    return settings;
}

void kin_settings_use(const kin_command *command) {
    int n = 0;
    for (int own = 0; own < 2; own++) { // those of the command come last, so they win
        for (int i = 0; i < n_settings; i++) {
            const kin_setting *s = &settings[i];
            bool is_meant = own ? strcmp(s->section, command->name) == 0 : !s->section[0];
            if (is_meant) presets[n++] = (kin_option_preset){s->name, s->value ? s->value : "1", path, s->line, own};
        }
    }
    kin_options_preset(presets, n);
}
