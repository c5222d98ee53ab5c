#include "pure/text/settings.h"

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

// Removes blanks at both ends.
static char *trim(char *text) {
    size_t n = strlen(text);
    while (n > 0 && isspace((unsigned char)text[n - 1])) text[--n] = '\0';
    return text + strspn(text, " \t\r");
}

// True for a name as options and commands have one: letters, digits and '-', with a letter first.
static bool is_name(const char *text) {
    if (!isalpha((unsigned char)text[0])) return false;
    for (; *text; text++)
        if (!isalnum((unsigned char)*text) && *text != '-') return false;
    return true;
}

static bool has_control(const char *text) {
    for (; *text; text++)
        if (((unsigned char)*text < ' ' && *text != '\t') || *text == 127) return true;
    return false;
}

static int parse_section(char *line, const char **section, kin_err *err) {
    size_t n = strlen(line);
    if (line[n - 1] != ']') return kin_err_set(err, "a section is [COMMAND], such as [serve]");
    line[n - 1] = '\0';
    *section = trim(line + 1);
    return is_name(*section) ? 0 : kin_err_set(err, "a section is [COMMAND], such as [serve]");
}

static int parse_setting(char *line, kin_setting *s, kin_err *err) {
    char *equals = strchr(line, '=');
    if (equals) *equals = '\0';
    s->name = trim(line);
    s->value = equals ? trim(equals + 1) : NULL;
    if (s->name[0] == '-') return kin_err_set(err, "names are written without '--': %.60s", s->name + strspn(s->name, "-"));
    if (equals && is_name(s->name)) return 0;
    if (!equals && strpbrk(s->name, " \t")) return kin_err_set(err, "'=' is missing between the name and its value");
    return is_name(s->name) ? 0 : kin_err_set(err, "a line is NAME = VALUE, NAME, [COMMAND] or a comment after '#'");
}

int kin_settings_parse(char *text, kin_setting settings[KIN_SETTINGS_MAX], int *n, int *line, kin_err *err) {
    static const char mark[] = "\xef\xbb\xbf"; // the byte order mark that Notepad writes before UTF-8
    const char *section = "";
    *n = *line = 0;
    if (strncmp(text, mark, strlen(mark)) == 0) text += strlen(mark);
    for (char *next; text; text = next) {
        ++*line;
        next = strchr(text, '\n');
        if (next) *next++ = '\0';
        char *at = trim(text);
        if (at[0] == '\0' || at[0] == '#') continue;
        if (has_control(at)) return kin_err_set(err, "the line contains a control character");
        if (at[0] == '[') {
            if (parse_section(at, &section, err) != 0) return KIN_FAIL;
            continue;
        }
        if (*n == KIN_SETTINGS_MAX) return kin_err_set(err, "there are more than %d settings", KIN_SETTINGS_MAX);
        kin_setting *s = &settings[*n];
        *s = (kin_setting){.section = section, .line = *line};
        if (parse_setting(at, s, err) != 0) return KIN_FAIL;
        ++*n;
    }
    return 0;
}
