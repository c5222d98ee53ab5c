#include "serve/apis/openai/embeddings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "serve/request/fields.h"
#include "serve/request/request_prompts.h"

// ---- requests

static int read_options(kin_embeddings_request *out, const kin_fields *fields, int n_embd, kin_api_error *err) {
    const json_t *model, *format, *dimensions, *normalize, *truncate;
    if (kin_fields_get(fields, "model", KIN_FIELD_STRING, &model, err) < 0) return KIN_FAIL;
    if (model) out->model = json_string_value(model);
    if (kin_fields_get(fields, "encoding_format", KIN_FIELD_STRING, &format, err) < 0) return KIN_FAIL;
    out->is_base64 = kin_fields_is(fields, "encoding_format", "base64");
    if (format && !out->is_base64 && !kin_fields_is(fields, "encoding_format", "float"))
        return kin_fields_wrong(fields, "encoding_format", err, 400, "must be \"float\" or \"base64\"");
    if (kin_fields_get(fields, "dimensions", KIN_FIELD_INTEGER, &dimensions, err) < 0) return KIN_FAIL;
    if (dimensions && json_number_value(dimensions) != n_embd)
        return kin_fields_wrong(fields, "dimensions", err, 400, "must be %d for this model", n_embd);
    if (kin_fields_get(fields, "truncate", KIN_FIELD_BOOL, &truncate, err) < 0) return KIN_FAIL;
    out->truncates = json_is_true(truncate);
    if (kin_fields_get(fields, "embd_normalize", KIN_FIELD_INTEGER, &normalize, err) < 0) return KIN_FAIL;
    if (!normalize) return 0;
    double kind = json_number_value(normalize);
    if (kind != -1 && kind != 2)
        return kin_fields_wrong(fields, "embd_normalize", err, 400, "must be 2 (Euclidean norm 1) or -1 (none)");
    out->is_raw = kind == -1;
    return 0;
}

static int read_request(kin_embeddings_request *out, int n_embd, kin_api_error *err) {
    kin_fields fields;
    if (kin_fields_open(&fields, out->body, err) < 0 || read_options(out, &fields, n_embd, err) < 0) return KIN_FAIL;
    const char *name = kin_fields_any(&fields, "input") ? "input" : "content";
    if (!kin_fields_any(&fields, name)) return kin_api_error_set(err, 400, "input", "\"input\" or \"content\" must be provided");
    return kin_request_prompts(out->body, name, &out->inputs, err);
}

int kin_embeddings_parse(kin_embeddings_request *out, json_t *body, int n_embd, kin_api_error *err) {
    *out = (kin_embeddings_request){.body = body};
    if (read_request(out, n_embd, err) == 0) return 0;
    kin_embeddings_fini(out);
    return KIN_FAIL;
}

void kin_embeddings_fini(kin_embeddings_request *request) {
    json_decref(request->body);
    *request = (kin_embeddings_request){0};
}

// ---- vectors

void kin_embedding_normalize(float *vector, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)vector[i] * (double)vector[i];
    double scale = sum > 0 ? 1 / sqrt(sum) : 0;
    for (int i = 0; i < n; i++) vector[i] = (float)((double)vector[i] * scale);
}

static json_t *numbers_json(const float *vector, int n) {
    json_t *numbers = json_array();
    for (int i = 0; i < n; i++) {
        if (json_array_append_new(numbers, json_real((double)vector[i])) == 0) continue;
        json_decref(numbers);
        return NULL;
    }
    return numbers;
}

// Encodes n bytes as Base64 to `out`, 4 characters for each started group of 3 bytes.
static void put_base64(const uint8_t *bytes, size_t n, char *out) {
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3, out += 4) {
        size_t left = n - i;
        uint32_t bits = (uint32_t)bytes[i] << 16 | (left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) | (left > 2 ? bytes[i + 2] : 0);
        out[0] = alphabet[bits >> 18];
        out[1] = alphabet[bits >> 12 & 63];
        out[2] = left > 1 ? alphabet[bits >> 6 & 63] : '=';
        out[3] = left > 2 ? alphabet[bits & 63] : '=';
    }
}

// Encodes the floats in little-endian order, as OpenAI's SDKs decode them.
static json_t *base64_json(const float *vector, int n) {
    size_t n_bytes = (size_t)n * 4, n_chars = (n_bytes + 2) / 3 * 4;
    uint8_t *bytes = malloc(n_bytes + 1);
    char *text = malloc(n_chars + 1);
    json_t *json = NULL;
    if (bytes && text) {
        for (int i = 0; i < n; i++) {
            uint32_t bits;
            memcpy(&bits, &vector[i], 4);
            kin_put_u32(bytes + 4 * (size_t)i, bits);
        }
        put_base64(bytes, n_bytes, text);
        json = json_stringn(text, n_chars);
    }
    free(bytes);
    free(text);
    return json;
}

// ---- answers

json_t *kin_embeddings_answer(const kin_embeddings_request *request, const char *model, const float *vectors, int n, int n_embd,
                              int64_t n_tokens) {
    json_t *data = json_array();
    for (int i = 0; i < n; i++) {
        const float *vector = vectors + (size_t)i * (size_t)n_embd;
        json_t *embedding = request->is_base64 ? base64_json(vector, n_embd) : numbers_json(vector, n_embd);
        json_t *one = embedding ? json_pack("{s:s, s:i, s:o}", "object", "embedding", "index", i, "embedding", embedding) : NULL;
        if (json_array_append_new(data, one) == 0) continue;
        json_decref(data);
        return NULL;
    }
    return json_pack("{s:s, s:s, s:o, s:{s:I, s:I}}", "object", "list", "model", model, "data", data, "usage", "prompt_tokens",
                     (json_int_t)n_tokens, "total_tokens", (json_int_t)n_tokens);
}

json_t *kin_embedding_answer(const float *vectors, int n, int n_embd) {
    json_t *all = json_array();
    for (int i = 0; i < n; i++) {
        json_t *embedding = numbers_json(vectors + (size_t)i * (size_t)n_embd, n_embd);
        json_t *one = embedding ? json_pack("{s:i, s:[o]}", "index", i, "embedding", embedding) : NULL;
        if (json_array_append_new(all, one) == 0) continue;
        json_decref(all);
        return NULL;
    }
    return all;
}
