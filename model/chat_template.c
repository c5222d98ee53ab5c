#include "model/chat_template.h"

#include <stdio.h>

int kin_chat_template_source(const kin_gguf *gguf, const char *name, kin_str *source, kin_err *err) {
    char key[128];
    int n = snprintf(key, sizeof key, "tokenizer.chat_template%s%s", name ? "." : "", name ? name : "");
    if (n >= (int)sizeof key) return kin_err_set(err, "the name of a chat template is longer than 100 bytes");
    return kin_gguf_get_str(gguf, key, source, err);
}
