#include "serve/request/settings.h"

#include <math.h>

#include "serve/json_out.h"

static void set_number(json_t *o, const char *name, double value) {
    json_object_set_new(o, name, json_real(value));
}

static void set_whole(json_t *o, const char *name, int64_t value) {
    json_object_set_new(o, name, json_integer(value));
}

static void set_bool(json_t *o, const char *name, bool value) {
    json_object_set_new(o, name, json_boolean(value));
}

static void set_text(json_t *o, const char *name, const char *value) {
    json_object_set_new(o, name, json_string(value ? value : ""));
}

// Reports samplers that kin does not have as off. Clients show these values as sliders.
static void set_absent(json_t *o) {
    static const struct {
        const char *name;
        double value;
    } absent[] = {
        {"dynatemp_range", 0},  {"dynatemp_exponent", 1}, {"top_n_sigma", -1},     {"xtc_probability", 0},
        {"xtc_threshold", 0.1}, {"typical_p", 1},         {"dry_multiplier", 0},   {"dry_base", 1.75},
        {"mirostat_tau", 5},    {"mirostat_eta", 0.1},    {"adaptive_target", -1}, {"adaptive_decay", 0.9},
    };
    for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++) set_number(o, absent[i].name, absent[i].value);
    set_whole(o, "dry_allowed_length", 2);
    set_whole(o, "mirostat", 0);
    json_object_set_new(o, "lora", json_array());
}

static void set_sampler(json_t *o, const kin_sampler_options *s) {
    set_number(o, "temperature", (double)s->temperature);
    set_whole(o, "top_k", s->top_k);
    set_number(o, "top_p", (double)s->top_p);
    set_number(o, "min_p", (double)s->min_p);
    set_whole(o, "repeat_last_n", s->penalty_last_n);
    set_number(o, "repeat_penalty", (double)s->penalty_repeat);
    set_number(o, "presence_penalty", (double)s->penalty_presence);
    set_number(o, "frequency_penalty", (double)s->penalty_frequency);
    json_object_set_new(o, "samplers", json_pack("[s, s, s, s, s]", "penalties", "top_k", "top_p", "min_p", "temperature"));
}

static json_t *bias_json(const kin_sampler_options *s) {
    json_t *all = json_array();
    for (size_t i = 0; i < s->n_bias; i++) {
        json_t *bias = isinf(s->bias[i].bias) ? json_false() : json_real((double)s->bias[i].bias);
        json_array_append_new(all, json_pack("{s:i, s:o}", "token", s->bias[i].id, "bias", bias));
    }
    return all;
}

static json_t *stops_json(const kin_request *r) {
    json_t *stops = json_array();
    for (int i = 0; i < r->n_stops; i++) json_array_append_new(stops, kin_json_text(r->stops[i]));
    return stops;
}

json_t *kin_settings_json(const kin_request *r, uint64_t seed) {
    json_t *o = json_object();
    set_whole(o, "seed", (int64_t)seed);
    set_sampler(o, &r->sampler);
    set_absent(o);
    json_object_set_new(o, "stop", stops_json(r));
    set_whole(o, "max_tokens", r->n_predict);
    set_whole(o, "n_predict", r->n_predict);
    set_whole(o, "n_keep", 0);
    set_whole(o, "n_discard", 0);
    set_bool(o, "ignore_eos", r->ignore_eos);
    set_bool(o, "stream", r->stream);
    json_object_set_new(o, "logit_bias", bias_json(&r->sampler));
    set_whole(o, "n_probs", r->n_probs > 0 ? r->n_probs : 0);
    set_whole(o, "min_keep", 0);
    set_text(o, "grammar", r->grammar);
    set_text(o, "reasoning_format", r->is_chat && !r->reasoning_in_content ? "deepseek" : "none");
    set_bool(o, "reasoning_in_content", r->reasoning_in_content);
    set_bool(o, "timings_per_token", r->timings_per_token);
    set_bool(o, "post_sampling_probs", r->post_sampling_probs);
    return o;
}
