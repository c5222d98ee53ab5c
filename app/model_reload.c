#include "app/model_reload.h"

#include <string.h>
#include <uv.h>

#include "app/app.h"

enum { LOOK_MS = 100 };

kin_model_wait kin_reload_wait(const kin_session_options *o, const char *chat_template_file) {
    bool is_file = chat_template_file && strcmp(chat_template_file, "-") != 0;
    kin_model_wait wait = {.path = o->model, .other = is_file ? chat_template_file : NULL};
    kin_draft_mode mode;
    if (o->draft && kin_draft_words_read(o->draft, &mode, &wait.draft, NULL) != 0) wait.draft = NULL;
    return wait;
}

bool kin_reload_is_due(const kin_loaded_model *model) {
    kin_err why;
    return model->service && kin_service_has_changed(model->service, &why);
}

void kin_reload_await(kin_model_wait *wait, kin_server *server, kin_loaded_model *model, const kin_err *why, bool prints) {
    kin_err told = *why;
    if (prints) kin_app_say("%s", why->text);
    kin_server_drop_model(server, why);
    kin_loaded_model_close(model);
    while (!atomic_load(&kin_app_stop) && !kin_model_wait_is_over(wait, kin_clock_now())) {
        const kin_err *now = wait->missing.text[0] ? &wait->missing : why;
        if (strcmp(now->text, told.text) != 0) {
            told = *now;
            if (prints) kin_app_say("%s", told.text);
            kin_server_set_missing(server, &told);
        }
        uv_sleep(LOOK_MS);
    }
}
