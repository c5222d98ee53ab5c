#include "serve/request/request_sampling.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "serve/json_out.h"

// ---- seed, stop, logit_bias

enum { MAX_SEED = UINT32_MAX }; // llama-server's value for "draw one", like -1

// Numbers beyond 63 bits arrive rounded. 2^64 is the rounded value of the largest 64-bit number, which is -1 as a signed one.
static int read_seed(kin_request *r, const char *name, json_t *value, kin_api_error *err) {
    double real = json_real_value(value);
    int64_t seed;
    if (json_is_integer(value))
        seed = json_integer_value(value); // all 64 bits
    else if (real >= 0x1p63 && real <= 0x1p64)
        seed = real == 0x1p64 ? -1 : (int64_t)(real - 0x1p64);
    else if (kin_request_whole(name, value, -9e15, 9e15, &seed, err) < 0)
        return KIN_FAIL;
    r->has_seed = seed != -1 && seed != (int64_t)MAX_SEED;
    r->sampler.seed = r->has_seed ? (uint64_t)seed : 0;
    return 0;
}

static int add_stop(kin_request *r, const char *name, const json_t *value, kin_api_error *err) {
    if (!json_is_string(value)) return kin_request_type_error(err, name, "string", value);
    size_t n = json_string_length(value);
    if (n == 0) return 0;
    if (n > KIN_REQUEST_MAX_STOP_BYTES)
        return kin_api_error_set(err, 400, name, "Field '%s': a stop string has %zu bytes, but at most %d are allowed", name, n,
                                 KIN_REQUEST_MAX_STOP_BYTES);
    if (r->n_stops == KIN_REQUEST_MAX_STOPS)
        return kin_api_error_set(err, 400, name, "Field '%s': more than %d stop strings", name, KIN_REQUEST_MAX_STOPS);
    r->stops[r->n_stops++] = (kin_str){json_string_value(value), n};
    return 0;
}

static int read_stop(kin_request *r, const char *name, json_t *value, kin_api_error *err) {
    size_t i;
    json_t *one;
    if (json_is_string(value)) return add_stop(r, name, value, err);
    if (!json_is_array(value)) return kin_request_type_error(err, name, "string or array", value);
    json_array_foreach(value, i, one) {
        if (add_stop(r, name, one, err) < 0) return KIN_FAIL;
    }
    return 0;
}

// Adds one bias: of an id, or of a text, which is appended to `texts` unchanged.
static int add_bias(kin_request *r, const char *name, json_t *texts, json_t *which, json_t *bias, kin_api_error *err) {
    if (!json_is_number(bias) && !json_is_false(bias))
        return kin_api_error_set(err, 400, name, "Field '%s': a bias must be a number, or false to forbid the token", name);
    if (json_is_string(which)) {
        json_t *pair = json_pack("[O, O]", which, bias);
        return !pair || json_array_append_new(texts, pair) < 0 ? kin_api_error_memory(err) : 0;
    }
    int64_t id;
    if (kin_request_whole(name, which, 0, INT32_MAX, &id, err) < 0) return KIN_FAIL;
    double v = json_is_false(bias) ? -INFINITY : fmax(-FLT_MAX, fmin(FLT_MAX, json_number_value(bias)));
    r->bias[r->sampler.n_bias++] = (kin_logit_bias){(int32_t)id, (float)v};
    return 0;
}

// {"ID or text": bias}: a numeric key is an id.
static int read_bias_object(kin_request *r, const char *name, json_t *texts, json_t *object, kin_api_error *err) {
    const char *key;
    json_t *bias;
    json_object_foreach(object, key, bias) {
        char *end;
        long long id = strtoll(key, &end, 10);
        json_t *which = key[0] >= '0' && key[0] <= '9' && *end == '\0' ? json_integer(id) : json_string(key);
        if (!which) return kin_api_error_memory(err);
        int rc = add_bias(r, name, texts, which, bias, err);
        json_decref(which);
        if (rc < 0) return KIN_FAIL;
    }
    return 0;
}

// [[ID or text, bias], ...]
static int read_bias_array(kin_request *r, const char *name, json_t *texts, json_t *array, kin_api_error *err) {
    size_t i;
    json_t *pair;
    json_array_foreach(array, i, pair) {
        if (!json_is_array(pair) || json_array_size(pair) != 2)
            return kin_api_error_set(err, 400, name, "Field '%s': each element must be a pair: a token or text, and its bias",
                                     name);
        if (add_bias(r, name, texts, json_array_get(pair, 0), json_array_get(pair, 1), err) < 0) return KIN_FAIL;
    }
    return 0;
}

static int read_bias(kin_request *r, const char *name, json_t *value, kin_api_error *err) {
    bool is_object = json_is_object(value);
    if (!is_object && !json_is_array(value)) return kin_request_type_error(err, name, "object or array", value);
    size_t n = is_object ? json_object_size(value) : json_array_size(value);
    if (n == 0) return 0;
    if (n > KIN_REQUEST_MAX_BIAS)
        return kin_api_error_set(err, 400, name, "Field '%s': more than %d biases", name, KIN_REQUEST_MAX_BIAS);
    json_t *texts = json_array();
    r->bias = calloc(n, sizeof *r->bias);
    if (!texts || !r->bias) {
        json_decref(texts);
        return kin_api_error_memory(err);
    }
    int rc = is_object ? read_bias_object(r, name, texts, value, err) : read_bias_array(r, name, texts, value, err);
    r->sampler.bias = r->bias;
    if (rc == 0 && json_array_size(texts) > 0) r->text_bias = texts;
    if (json_object_set_new(r->body, name, texts) < 0 && rc == 0) rc = kin_api_error_memory(err); // the body owns it
    return rc;
}

// ---- stages of the sampler

typedef enum stage { STAGE_PENALTIES, STAGE_TOP_K, STAGE_TOP_P, STAGE_MIN_P, STAGE_TEMPERATURE, STAGE_ABSENT } stage;

static const struct {
    const char *name;
    char letter;
    stage stage;
} stages[] = {
    {"penalties", 'e', STAGE_PENALTIES},
    {"top_k", 'k', STAGE_TOP_K},
    {"top_p", 'p', STAGE_TOP_P},
    {"min_p", 'm', STAGE_MIN_P},
    {"temperature", 't', STAGE_TEMPERATURE},
    {"dry", 'd', STAGE_ABSENT},
    {"top_n_sigma", 's', STAGE_ABSENT},
    {"typ_p", 'y', STAGE_ABSENT},
    {"typical_p", 0, STAGE_ABSENT},
    {"xtc", 'x', STAGE_ABSENT},
    {"adaptive_p", 'a', STAGE_ABSENT},
};
enum { N_STAGE_NAMES = sizeof stages / sizeof stages[0] };

static bool is_off(const kin_sampler_options *o, stage s) {
    switch (s) {
    case STAGE_PENALTIES:
        return o->penalty_last_n == 0 || (o->penalty_repeat == 1 && o->penalty_frequency == 0 && o->penalty_presence == 0);
    case STAGE_TOP_K: return o->top_k == 0;
    case STAGE_TOP_P: return o->top_p == 1;
    case STAGE_MIN_P: return o->min_p == 0;
    case STAGE_TEMPERATURE: return o->temperature == 1;
    default: return true; // the fields that turn it on are refused
    }
}

static void turn_off(kin_sampler_options *o, stage s) {
    switch (s) {
    case STAGE_PENALTIES: o->penalty_last_n = 0; break;
    case STAGE_TOP_K: o->top_k = 0; break;
    case STAGE_TOP_P: o->top_p = 1; break;
    case STAGE_MIN_P: o->min_p = 0; break;
    case STAGE_TEMPERATURE: o->temperature = 1; break;
    default: break;
    }
}

static int find_stage(const char *name, size_t len, bool is_letter) {
    for (int i = 0; i < N_STAGE_NAMES; i++) {
        if (is_letter ? stages[i].letter == name[0] : strlen(stages[i].name) == len && !memcmp(stages[i].name, name, len))
            return i;
    }
    return -1;
}

// Active stages must be listed in the order of kin's sampler; stages that are not listed are turned off.
static int read_stage(kin_request *r, const char *field, const char *name, size_t len, bool is_letter, bool listed[],
                      kin_api_error *err) {
    int i = find_stage(name, len, is_letter);
    if (i < 0)
        return kin_api_error_set(err, 400, field, "Field '%s': unknown sampler '%.*s'", field, (int)(len < 40 ? len : 40), name);
    if (is_off(&r->sampler, stages[i].stage)) return 0;
    for (int later = stages[i].stage; later < STAGE_ABSENT; later++) {
        if (listed[later])
            return kin_api_error_set(
                err, 400, field, "Field '%s': the order must be penalties, top_k, top_p, min_p, temperature; '%s' comes too late",
                field, stages[i].name);
    }
    listed[stages[i].stage] = true;
    return 0;
}

static int read_samplers(kin_request *r, const char *name, json_t *value, kin_api_error *err) {
    bool listed[STAGE_ABSENT] = {0};
    bool is_letters = json_is_string(value);
    if (!is_letters && !json_is_array(value)) return kin_request_type_error(err, name, "string or array", value);
    size_t n = is_letters ? json_string_length(value) : json_array_size(value);
    for (size_t i = 0; i < n; i++) {
        const json_t *one = is_letters ? value : json_array_get(value, i);
        if (!json_is_string(one)) return kin_request_type_error(err, name, "string", one);
        const char *text = json_string_value(one) + (is_letters ? i : 0);
        if (read_stage(r, name, text, is_letters ? 1 : json_string_length(one), is_letters, listed, err) < 0) return KIN_FAIL;
    }
    for (int s = 0; s < STAGE_ABSENT; s++) {
        if (!listed[s] && !is_off(&r->sampler, (stage)s)) turn_off(&r->sampler, (stage)s);
    }
    return 0;
}

static int read_lora(kin_request *r, const char *name, json_t *value, kin_api_error *err) {
    (void)r;
    size_t i;
    json_t *one;
    if (!json_is_array(value)) return kin_request_type_error(err, name, "array", value);
    json_array_foreach(value, i, one) {
        if (json_number_value(json_object_get(one, "scale")) != 0)
            return kin_api_error_set(err, 400, name, "Field '%s': LoRA adapters are not supported", name);
    }
    return 0;
}

// ---- probabilities, format, streaming

// Like llama-server's: 0 means none. Larger numbers are clamped to kin's maximum.
static int read_n_probs(kin_request *r, const char *name, json_t *value, kin_api_error *err) {
    int64_t n;
    if (kin_request_whole(name, value, -1, INT32_MAX, &n, err) < 0) return KIN_FAIL;
    r->n_probs = n <= 0 ? -1 : n < KIN_REQUEST_MAX_PROBS ? (int)n : KIN_REQUEST_MAX_PROBS;
    return 0;
}

static int read_stream_options(kin_request *r, const char *name, json_t *value, kin_api_error *err) {
    kin_fields body = kin_request_body(r), options;
    const json_t *usage;
    (void)value;
    if (kin_fields_object(&body, name, &options, err) < 0) return KIN_FAIL;
    if (kin_fields_get(&options, "include_usage", KIN_FIELD_BOOL, &usage, err) < 0) return KIN_FAIL;
    r->include_usage = json_is_true(usage);
    return 0;
}

int kin_request_set_schema(kin_request *r, const char *name, const json_t *schema, kin_api_error *err) {
    if (!json_is_object(schema) && !json_is_boolean(schema)) return kin_request_type_error(err, name, "object", schema);
    kin_text_buffer text = {0};
    kin_json_put(json_incref((json_t *)schema), &text);
    free(r->schema);
    r->schema = text.at;
    return text.failed ? kin_api_error_memory(err) : 0;
}

static int read_schema(kin_request *r, const char *name, json_t *value, kin_api_error *err) {
    return kin_request_set_schema(r, name, value, err);
}

const kin_request_field kin_request_common_fields[] = {
    KIN_ROW_STRING("model", model),
    KIN_ROW_BOOL("stream", stream),
    KIN_ROW_OTHER("stream_options", read_stream_options),
    KIN_ROW_BOOL("return_progress", return_progress),
    KIN_ROW_BOOL("return_tokens", return_tokens),
    KIN_ROW_BOOL("timings_per_token", timings_per_token),
    KIN_ROW_BOOL("verbose", verbose),
    KIN_ROW_WHOLE("sse_ping_interval", sse_ping_s, -1, INT32_MAX),
    KIN_ROW_BOOL("cache_prompt", cache_prompt),
    KIN_ROW_WHOLE("id_slot", id_slot, -1, INT32_MAX),
    // Length. The order of precedence is llama-server's.
    KIN_ROW_WHOLE("max_tokens", n_predict, -1, INT32_MAX),
    KIN_ROW_WHOLE("max_completion_tokens", n_predict, -1, INT32_MAX),
    KIN_ROW_WHOLE("n_predict", n_predict, -1, INT32_MAX),
    KIN_REQUEST_ROW("t_max_predict_ms", INT64, t_max_predict_ms, .min = -1, .max = 9e15, .must_be_between = true),
    KIN_ROW_WHOLE("n_indent", n_indent, 0, INT32_MAX),
    KIN_ROW_OTHER("stop", read_stop),
    KIN_ROW_BOOL("ignore_eos", ignore_eos),
    KIN_ROW_WHOLE("n", n_choices, 1, KIN_REQUEST_MAX_CHOICES),
    KIN_ROW_WHOLE("n_cmpl", n_choices, 1, KIN_REQUEST_MAX_CHOICES),
    // Constraints
    KIN_ROW_STRING("grammar", grammar),
    KIN_ROW_OTHER("json_schema", read_schema),
    // Sampling
    KIN_ROW_OTHER("seed", read_seed),
    KIN_ROW_CLAMPED("temperature", FLOAT, sampler.temperature, 0, FLT_MAX),
    KIN_ROW_CLAMPED("top_k", INT, sampler.top_k, 0, INT32_MAX),
    KIN_ROW_CLAMPED("top_p", FLOAT, sampler.top_p, FLT_MIN, 1),
    KIN_ROW_CLAMPED("min_p", FLOAT, sampler.min_p, 0, 1),
    KIN_ROW_CLAMPED("repeat_last_n", INT, sampler.penalty_last_n, -1, KIN_SAMPLER_MAX_LAST_N),
    KIN_REQUEST_ROW("repeat_penalty", FLOAT, sampler.penalty_repeat, .min = 0.001, .max = FLT_MAX, .must_be_between = true),
    KIN_ROW_CLAMPED("frequency_penalty", FLOAT, sampler.penalty_frequency, -FLT_MAX, FLT_MAX),
    KIN_ROW_CLAMPED("presence_penalty", FLOAT, sampler.penalty_presence, -FLT_MAX, FLT_MAX),
    KIN_ROW_OTHER("logit_bias", read_bias),
    KIN_ROW_OTHER("n_probs", read_n_probs),
    KIN_ROW_BOOL("post_sampling_probs", post_sampling_probs),
    KIN_ROW_OFF("dynatemp_range", -HUGE_VAL, 0),
    KIN_ROW_OFF("mirostat", 0, 0),
    KIN_ROW_OFF("typical_p", 1, HUGE_VAL),
    KIN_ROW_OFF("top_n_sigma", -HUGE_VAL, 0),
    KIN_ROW_OFF("xtc_probability", -HUGE_VAL, 0),
    KIN_ROW_OFF("dry_multiplier", -HUGE_VAL, 0),
    KIN_ROW_OFF("adaptive_target", -HUGE_VAL, -FLT_MIN),
    KIN_ROW_OFF("min_keep", -HUGE_VAL, 1), // kin's sampler always keeps one
    KIN_ROW_OTHER("lora", read_lora),
    KIN_ROW_OTHER("samplers", read_samplers), // after all fields that turn stages on or off
    {.name = NULL},
};
