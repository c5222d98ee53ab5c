#include "pipeline/scheduler_flights.h"

kin_flight *kin_scheduler_new_flight(kin_scheduler *s, kin_flight_kind kind) {
    kin_flight *f = &s->flights[(s->first_flight + s->n_flights) % KIN_STEPS_IN_FLIGHT];
    f->n_parts = f->n_tokens = f->n_out = f->n_prompt = f->n_prompt_rows = f->n_draft = 0;
    f->in_chain = f->follows_prompts = f->ends_prompts = false;
    f->kind = kind;
    return f;
}

bool kin_scheduler_has_room(const kin_scheduler *s) {
    return kin_head_has_room(s->head) && s->n_flights < KIN_STEPS_IN_FLIGHT;
}

int kin_scheduler_send_pages(kin_scheduler *s, kin_flight *f, const kin_page_request *r, const int32_t *tokens, kin_err *err) {
    if (kin_head_send_pages(s->head, r, tokens, &f->number, err) != 0) return KIN_FAIL;
    s->n_flights++;
    s->n_page_flights++;
    return 0;
}
