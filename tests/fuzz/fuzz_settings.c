// Parses any bytes as a file of settings.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "pure/text/settings.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    static kin_setting settings[KIN_SETTINGS_MAX];
    char *text = malloc(size + 1);
    kin_err err = {""};
    int n, line;
    kin_assert(text);
    if (size > 0) memcpy(text, bytes, size);
    text[size] = '\0';
    int rc = kin_settings_parse(text, settings, &n, &line, &err);
    kin_assert(n >= 0 && n <= KIN_SETTINGS_MAX && (rc == 0) == (err.text[0] == '\0'));
    for (int i = 0; i < n; i++) {
        kin_assert(settings[i].name >= text && settings[i].name <= text + size && settings[i].line <= line);
        kin_assert(settings[i].name[0] != '\0' && settings[i].name[0] != '-');
    }
    free(text);
    return 0;
}
