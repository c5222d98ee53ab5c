#include "serve/request/request.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "sys/memory.h"

enum { TRIMMED_FROM = 8 << 20 }; // bytes. Smaller amounts are soon reused, and trimming takes all of the allocator's locks

// Appends ".0" to integers of more than 18 digits, which may exceed 64 bits, so that they are read as floating-point numbers.
// text // [n] -> wide // [at most 2 n]; returns its length.
static size_t widen_integers(const char *text, size_t n, char *wide) {
    enum { DIGITS_OF_63_BITS = 18 };
    bool in_string = false;
    size_t n_wide = 0;
    for (size_t i = 0; i < n;) {
        size_t n_digits = 0;
        while (!in_string && i + n_digits < n && isdigit((unsigned char)text[i + n_digits])) n_digits++;
        bool is_number = n_digits > 0;
        size_t n_consumed = is_number ? n_digits : 1;
        memcpy(wide + n_wide, text + i, n_consumed);
        n_wide += n_consumed;
        char next = i + n_consumed < n ? text[i + n_consumed] : 0, before = i > 0 ? text[i - 1] : 0;
        bool is_whole = !strchr(".eE", next ? next : ' ') && !strchr(".eE+", before ? before : ' ');
        if (n_digits > DIGITS_OF_63_BITS && is_whole) {
            memcpy(wide + n_wide, ".0", 2);
            n_wide += 2;
        }
        if (!is_number && text[i] == '"') in_string = !in_string;
        if (in_string && text[i] == '\\' && i + 1 < n) wide[n_wide++] = text[++i]; // the escaped character, whatever it is
        i += n_consumed;
    }
    return n_wide;
}

static json_t *parse_widened(kin_str body, json_error_t *where) {
    char *wide = malloc(2 * body.len + 1);
    if (!wide) return NULL;
    json_t *json = json_loadb(wide, widen_integers(body.at, body.len, wide), JSON_ALLOW_NUL, where);
    free(wide);
    return json;
}

static bool is_escape(const char *at, const char *end, char low, char high) {
    if (end - at < 6 || at[0] != '\\' || at[1] != 'u' || !isxdigit((unsigned char)at[4]) || !isxdigit((unsigned char)at[5]))
        return false;
    int c = tolower((unsigned char)at[3]);
    return tolower((unsigned char)at[2]) == 'd' && c >= low && c <= high;
}

// Replaces unpaired surrogates, which clients send that cut text at a limit, by U+FFFD. Returns their number.
static int replace_lone_surrogates(char *at, const char *end) {
    int n = 0;
    for (; (at = memchr(at, '\\', (size_t)(end - at))); at += 2) {
        bool is_first = is_escape(at, end, '8', '9') || is_escape(at, end, 'a', 'b'), is_second = is_escape(at, end, 'c', 'f');
        if (is_first && is_escape(at + 6, end, 'c', 'f')) {
            at += 10;
        } else if (is_first || is_second) {
            memcpy(at, "\\ufffd", 6);
            n++;
        }
        if (end - at < 2) break;
    }
    return n;
}

static json_t *parse_again(kin_str body, json_error_t *where) {
    char *copy = malloc(body.len);
    json_t *json = NULL;
    if (copy) memcpy(copy, body.at, body.len);
    if (copy && replace_lone_surrogates(copy, copy + body.len) > 0) json = json_loadb(copy, body.len, JSON_ALLOW_NUL, where);
    free(copy);
    return json;
}

json_t *kin_request_parse(kin_str body, kin_api_error *err) {
    json_error_t where;
    if (body.len == 0) {
        kin_api_error_set(err, 400, NULL, "The body is empty; it must be JSON");
        return NULL;
    }
    json_t *json = json_loadb(body.at, body.len, JSON_ALLOW_NUL, &where);
    if (!json && json_error_code(&where) == json_error_numeric_overflow) json = parse_widened(body, &where);
    if (!json && json_error_code(&where) == json_error_invalid_syntax) json = parse_again(body, &where);
    if (!json && json_error_code(&where) == json_error_out_of_memory)
        kin_api_error_memory(err);
    else if (!json)
        kin_api_error_set(err, 400, NULL, "Bad JSON at line %d, column %d: %s", where.line, where.column, where.text);
    return json;
}

void kin_request_trim(size_t n) {
    if (n >= TRIMMED_FROM) kin_memory_trim();
}

void kin_request_fini(kin_request *r) {
    json_decref(r->body);
    free(r->bias);
    free(r->schema);
    *r = (kin_request){0};
}

int kin_request_begin(kin_request *out, json_t *body, const kin_request_defaults *defaults, kin_api_error *err) {
    *out = (kin_request){
        .body = body,
        .parallel_tool_calls = true,
        .thinking = KIN_UNSET,
        .thinking_budget = defaults->limits_thinking ? defaults->thinking_budget : -1,
        .add_generation_prompt = true,
        .add_special = true,
        .parse_special = true,
        .n_predict = defaults->n_predict,
        .n_choices = 1,
        .n_probs = -1,
        .sampler = defaults->sampler,
        .cache_prompt = true,
        .id_slot = -1,
        .reasoning_in_content = defaults->reasoning_in_content,
        .verbose = defaults->verbose,
        .sse_ping_s = KIN_REQUEST_PING_OF_SERVER,
    };
    return json_is_object(body) ? 0 : kin_api_error_set(err, 400, NULL, "The body must be a JSON object");
}

int kin_request_check(kin_request *r, kin_api_error *err) {
    if (r->grammar && r->schema) return kin_api_error_set(err, 400, "grammar", "Cannot use both json_schema and grammar");
    if (r->grammar && r->tools && r->tool_choice != KIN_TOOLS_NONE)
        return kin_api_error_set(err, 400, "grammar", "Cannot use a grammar together with tools");
    size_t n_prompts = r->is_chat ? 1 : json_array_size(r->prompts);
    if (n_prompts * (size_t)r->n_choices > KIN_REQUEST_MAX_PROMPTS)
        return kin_api_error_set(err, 400, "n", "Field 'n': %zu prompts with %d choices each; together at most %d are possible",
                                 n_prompts, r->n_choices, KIN_REQUEST_MAX_PROMPTS);
    if (r->sampler.penalty_last_n < 0) r->sampler.penalty_last_n = KIN_SAMPLER_MAX_LAST_N;
    if (r->t_max_predict_ms < 0) r->t_max_predict_ms = 0;
    return 0;
}
