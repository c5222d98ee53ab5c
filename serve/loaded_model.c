#include "serve/loaded_model.h"

#include <stdlib.h>

#include "sys/whole_file.h"

enum { MAX_TEMPLATE = 1 << 20 };

int kin_loaded_model_open(kin_loaded_model *m, const kin_loaded_model_options *o, kin_err *err) {
    kin_session *s = &m->session;
    kin_session_options session = o->session;
    size_t n;
    *m = (kin_loaded_model){0};
    session.n_sequences = o->service.n_parallel;
    if (kin_session_open_model(s, &session, err) != 0) return KIN_FAIL;
    if (o->chat_template_file && kin_whole_input_read(o->chat_template_file, MAX_TEMPLATE, &m->template, &n, err) != 0)
        return KIN_FAIL;
    const char *source = m->template ? (const char *)m->template : o->chat_template;
    if (kin_prompter_open(&m->prompter, s, source, err) != 0) return KIN_FAIL;
    if (kin_token_trie_new(&m->trie, s->vocab, err) != 0) return KIN_FAIL;
    if (kin_session_open(s, &session, o->n_ctx, err) != 0) return KIN_FAIL;
    m->preparer =
        (kin_preparer){.session = s, .prompter = m->prompter, .trie = m->trie, .has_seed = o->has_seed, .seed = o->seed};
    kin_service_options so = o->service;
    so.session = s;
    return kin_service_open(&m->service, &so, err);
}

void kin_loaded_model_close(kin_loaded_model *m) {
    kin_service_close(m->service);
    kin_session_close(&m->session);
    kin_token_trie_free(m->trie);
    kin_prompter_close(m->prompter);
    free(m->template);
    *m = (kin_loaded_model){0};
}
