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
    kin_err last = *why;
    if (prints) kin_app_log("%s", why->text);
    kin_server_drop_model(server, why);
    kin_loaded_model_close(model);
    while (!atomic_load(&kin_app_stop) && !kin_model_wait_is_over(wait, kin_clock_now())) {
        const kin_err *now = wait->missing.text[0] ? &wait->missing : why;
        if (strcmp(now->text, last.text) != 0) {
            last = *now;
            if (prints) kin_app_log("%s", last.text);
            kin_server_set_missing(server, &last);
        }
        uv_sleep(LOOK_MS);
    }
}
