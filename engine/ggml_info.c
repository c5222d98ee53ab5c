#include "engine/ggml_info.h"

#include <ggml-backend.h>
#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

const char *kin_ggml_version(void) {
    return ggml_version();
}

// Adds a name to a list such as "CPU, vulkan".
static void add(char *text, size_t n, const char *name, int len) {
    size_t used = strlen(text);
    snprintf(text + used, n - used, "%s%.*s", used ? ", " : "", len, name);
}

void kin_ggml_list_backends(char *text, size_t n) {
    static const char prefix[] = KIN_GGML_BACKEND_DIR "/libggml-";
    glob_t found = {0};
    bool has_cpu = false; // its module has a variant for each kind of processor
    text[0] = '\0';
    for (size_t i = 0; i < ggml_backend_reg_count(); i++) {
        const char *name = ggml_backend_reg_name(ggml_backend_reg_get(i));
        add(text, n, name, (int)strlen(name));
    }
    if (glob(KIN_GGML_BACKEND_DIR "/libggml-*", 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            const char *name = found.gl_pathv[i] + sizeof prefix - 1;
            bool is_cpu = strncmp(name, "cpu", 3) == 0;
            if (!is_cpu || !has_cpu) add(text, n, name, is_cpu ? 3 : (int)strcspn(name, "."));
            has_cpu |= is_cpu;
        }
    }
    globfree(&found);
}
