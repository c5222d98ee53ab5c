#include "serve/prepare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "pure/grammar/gbnf.h"
#include "pure/grammar/grammar_compile.h"
#include "pure/grammar/grammar_tokens.h"
#include "pure/grammar/schema.h"
#include "serve/history.h"

enum { LEAST_CHECKED = 1 << 20 }; // bytes of a text; shorter texts are tokenized without a check

static int out_of_memory(kin_api_error *err) {
    return kin_api_error_set(err, 500, NULL, "out of memory");
}

void kin_prepared_fini(kin_prepared *p) {
    for (int i = 0; i < p->n_sequences && p->jobs; i++) kin_job_options_fini(&p->jobs[i]);
    for (int i = 0; i < p->n_prompts && p->prompt_texts; i++) kin_text_fini(&p->prompt_texts[i]);
    for (size_t i = 0; i < p->n_tools && p->tool_schemas; i++) free(p->tool_schemas[i]);
    free(p->jobs);
    free(p->prompt_texts);
    free(p->prompts);
    free(p->seeds);
    free(p->tools);
    free(p->tool_schemas);
    kin_text_fini(&p->relaxed);
    kin_request_fini(&p->request);
    *p = (kin_prepared){0};
}

// ---- constraints

static int compile_plain(const kin_preparer *p, kin_prepared *out, kin_grammar_budget *budget, kin_grammar **grammar,
                         kin_err *why) {
    const kin_request *r = &out->request;
    const kin_grammar_options options = {.budget = budget};
    kin_text_buffer *relaxed = r->schema_is_strict ? NULL : &out->relaxed;
    if (r->schema) return kin_schema_compile(grammar, (kin_str){r->schema, strlen(r->schema)}, relaxed, budget, why);
    size_t len = strlen(r->grammar);
    if (kin_grammar_tokens_check((kin_str){r->grammar, len}, p->session->vocab, why) != 0) return KIN_FAIL;
    return kin_grammar_compile_with(grammar, r->grammar, len, &options, NULL, why);
}

// Compiles a grammar for a whole reply: reasoning, then text of a schema or calls of tools.
static int compile_reply(const kin_preparer *p, kin_prepared *out, kin_grammar_budget *budget, kin_grammar **grammar,
                         kin_err *why) {
    const kin_request *r = &out->request;
    const kin_tool_format *format = kin_prompter_format(p->prompter);
    kin_reply_rules rules = {.format = &format->chat,
                             .thinking = out->thinking,
                             .tools = out->tools,
                             .n_tools = out->n_tools,
                             .required = r->tool_choice == KIN_TOOLS_REQUIRED || r->tool_choice == KIN_TOOLS_NAMED,
                             .strict = r->schema_is_strict,
                             .relaxed = &out->relaxed,
                             .budget = budget,
                             .parallel = r->parallel_tool_calls && r->tool_choice != KIN_TOOLS_NAMED && !format->one_call};
    if (r->schema) rules.schema = (kin_str){r->schema, strlen(r->schema)};
    for (size_t i = 0; r->tool_choice == KIN_TOOLS_NAMED && i < out->n_tools; i++) {
        if (strcmp(r->tool_name, out->tools[i].name.at) != 0) continue;
        rules.tools = &out->tools[i];
        rules.n_tools = 1;
    }
    return kin_reply_grammar_new(grammar, &rules, p->session->vocab, why);
}

// Each sequence has its own matcher, with its position and cache.
static int constrain(const kin_preparer *p, kin_shared_grammar *grammar, kin_job_options *job, kin_api_error *err) {
    kin_err why;
    job->grammar = kin_shared_grammar_share(grammar);
    if (kin_matcher_new(&job->matcher, kin_shared_grammar_get(grammar), p->trie, &why) == 0 &&
        kin_constraint_new(&job->constraint, job->matcher, (kin_str){NULL, 0}, &why) == 0)
        return 0;
    return kin_api_error_set(err, 500, NULL, "%s", why.text);
}

static void drop_grammar(kin_prepared *p) {
    for (int i = 0; i < p->n_sequences; i++) {
        kin_job_options *job = &p->jobs[i];
        kin_constraint_free(job->constraint);
        kin_matcher_free(job->matcher);
        kin_shared_grammar_release(job->grammar);
        job->constraint = NULL;
        job->matcher = NULL;
        job->grammar = NULL;
    }
    p->relaxed.len = 0;
}

int kin_prepare_grammar(kin_prepared *out, const kin_preparer *p, kin_grammar_budget *budget, kin_api_error *err) {
    const kin_request *r = &out->request;
    kin_grammar *grammar;
    kin_shared_grammar *shared;
    kin_err why;
    bool is_reply = r->is_chat && !r->grammar && (r->schema || out->n_tools > 0);
    if (!is_reply && !r->grammar && !r->schema) return 0;
    drop_grammar(out); // of an earlier attempt
    int rc = is_reply ? compile_reply(p, out, budget, &grammar, &why) : compile_plain(p, out, budget, &grammar, &why);
    const char *field = r->grammar ? "grammar" : r->schema ? "response_format" : "tools";
    if (rc != 0) return kin_api_error_set(err, 400, field, "%s", why.text);
    if (kin_shared_grammar_new(&shared, grammar, &why) != 0) return kin_api_error_set(err, 500, NULL, "%s", why.text);
    for (int i = 0; i < out->n_sequences && rc == 0; i++) rc = constrain(p, shared, &out->jobs[i], err);
    kin_shared_grammar_release(shared);
    return rc;
}

// ---- sampling

static uint64_t draw_seed(void) {
    uint64_t seed = 0;
    uv_random(NULL, NULL, &seed, sizeof seed, 0, NULL);
    return seed & UINT32_MAX; // 32 bits, so that every client can send it back
}

// A bias given as text applies to each of its tokens.
static int add_text_bias(const kin_preparer *p, kin_request *r, kin_api_error *err) {
    size_t i;
    json_t *pair;
    json_array_foreach(r->text_bias, i, pair) {
        const json_t *value = json_array_get(pair, 1);
        float bias = json_is_number(value) ? (float)json_number_value(value) : -INFINITY;
        int32_t *ids;
        int n;
        if (kin_prompter_encode_json(p->prompter, json_array_get(pair, 0), false, true, &ids, &n, err) != 0) return KIN_FAIL;
        size_t n_bias = r->sampler.n_bias;
        kin_logit_bias *larger = realloc(r->bias, (n_bias + (size_t)n + 1) * sizeof *larger);
        if (!larger) {
            free(ids);
            return out_of_memory(err);
        }
        for (int k = 0; k < n; k++) larger[n_bias++] = (kin_logit_bias){ids[k], bias};
        free(ids);
        r->bias = larger;
        r->sampler.bias = larger;
        r->sampler.n_bias = n_bias;
        if (n_bias > KIN_REQUEST_MAX_BIAS)
            return kin_api_error_set(err, 400, "logit_bias", "at most %d tokens can have a bias", KIN_REQUEST_MAX_BIAS);
    }
    return 0;
}

// Checks that at least one token may be drawn.
static int check_bias(const kin_preparer *p, const kin_request *r, kin_api_error *err) {
    int n_tokens = kin_vocab_n_tokens(p->session->vocab), n_left = n_tokens;
    if ((size_t)n_tokens > r->sampler.n_bias) return 0;
    bool *forbidden = calloc((size_t)n_tokens, sizeof *forbidden);
    if (!forbidden) return out_of_memory(err);
    for (size_t i = 0; i < r->sampler.n_bias; i++) {
        const kin_logit_bias *b = &r->sampler.bias[i];
        if (b->id >= n_tokens || b->bias != -INFINITY || forbidden[b->id]) continue;
        forbidden[b->id] = true;
        n_left--;
    }
    free(forbidden);
    return n_left > 0 ? 0 : kin_api_error_set(err, 400, "logit_bias", "Field 'logit_bias': forbids every token");
}

static int open_sampler(const kin_preparer *p, const kin_request *r, kin_job_options *job, uint64_t seed, kin_api_error *err) {
    kin_sampler_options o = r->sampler;
    kin_err why;
    o.seed = seed;
    o.suppressed = kin_vocab_suppressed(p->session->vocab, &o.n_suppressed);
    // The sampler sees only ids that the vocabulary can print: an embedding may be padded beyond them.
    if (kin_sampler_new(&job->sampler, kin_vocab_n_tokens(p->session->vocab), &o, &why) != 0)
        return kin_api_error_set(err, 400, NULL, "%s", why.text);
    for (int i = 0; i < job->n_prompt; i++) kin_sampler_accept(job->sampler, job->prompt[i]);
    return 0;
}

// ---- reasoning

// Returns what ends reasoning that has used up its budget. In channels the answer must be begun too.
static const char *end_of_thinking(const kin_chat_format *format) {
    bool has_channels = format->syntax == KIN_CALL_CHANNELS;
    return has_channels ? "<|end|><|start|>assistant<|channel|>final<|message|>" : format->think_end;
}

// Encodes the tokens that end the reasoning: the request's message, and the mark.
static int encode_end(const kin_preparer *p, const char *message, int32_t **ids, int *n, kin_api_error *err) {
    int32_t *marker = NULL, *text = NULL;
    int n_marker = 0, n_text = 0, rc = 0;
    json_t *first = json_string(message ? message : ""),
           *last = json_string(end_of_thinking(&kin_prompter_format(p->prompter)->chat));
    *ids = NULL;
    if (!first || !last) rc = out_of_memory(err);
    if (rc == 0 && message) rc = kin_prompter_encode_json(p->prompter, first, false, false, &text, &n_text, err);
    if (rc == 0) rc = kin_prompter_encode_json(p->prompter, last, false, true, &marker, &n_marker, err);
    if (rc == 0) {
        *n = n_text + n_marker;
        *ids = malloc((size_t)(*n + 1) * sizeof **ids);
        if (!*ids) rc = out_of_memory(err);
    }
    for (int i = 0; i < n_text && rc == 0; i++) (*ids)[i] = text[i];
    for (int i = 0; i < n_marker && rc == 0; i++) (*ids)[n_text + i] = marker[i];
    json_decref(first);
    json_decref(last);
    free(marker);
    free(text);
    return rc;
}

static int limit_thinking(const kin_preparer *p, const kin_prepared *out, kin_job_options *job, kin_api_error *err) {
    const kin_request *r = &out->request;
    int32_t *ids;
    int n = 0;
    kin_err why;
    if (!r->is_chat || r->thinking_budget < 0 || out->thinking == KIN_THINKING_NONE) return 0;
    if (encode_end(p, r->thinking_budget_message, &ids, &n, err) != 0) return KIN_FAIL;
    bool begun = out->thinking == KIN_THINKING_BEGUN;
    int rc = n == 0 ? 0
                    : kin_thinking_budget_new(&job->budget, &kin_prompter_format(p->prompter)->chat, r->thinking_budget, begun,
                                              ids, n, &why);
    free(ids);
    return rc == 0 ? 0 : kin_api_error_set(err, 500, NULL, "%s", why.text);
}

// ---- sequences

static int fill_job(const kin_preparer *p, kin_prepared *out, int i, const int32_t *ids, int n, kin_api_error *err) {
    const kin_request *r = &out->request;
    kin_job_options *job = &out->jobs[i];
    *job = (kin_job_options){.n_prompt = n,
                             .n_predict = r->n_predict,
                             .n_probs = r->n_probs > KIN_JOB_MAX_PROBS ? KIN_JOB_MAX_PROBS : r->n_probs,
                             .has_drawn_probs = r->post_sampling_probs,
                             .ignore_eos = r->ignore_eos,
                             .echoes = r->echo && r->n_probs >= 0,
                             .no_cache = !r->cache_prompt || (r->echo && r->n_probs >= 0),
                             .tag = r->id_slot < 0 ? 0 : r->id_slot,
                             .t_max_predict_ns = (uint64_t)(r->t_max_predict_ms > 0 ? r->t_max_predict_ms : 0) * 1000000};
    job->prompt = malloc((size_t)(n + 1) * sizeof *job->prompt);
    if (!job->prompt) return out_of_memory(err);
    memcpy(job->prompt, ids, (size_t)n * sizeof *ids);
    uint64_t seed = r->has_seed ? r->sampler.seed : p->seed;
    out->seeds[i] = r->has_seed || p->has_seed ? seed + (uint64_t)(i % r->n_choices) : draw_seed();
    if (open_sampler(p, r, job, out->seeds[i], err) != 0) return KIN_FAIL;
    return limit_thinking(p, out, job, err);
}

static int check_length(const kin_preparer *p, int n, const char *at_least, kin_api_error *err) {
    int n_ctx = p->session->n_ctx;
    if (n == 0) return kin_api_error_set(err, 400, NULL, "the prompt is empty, and the model has no beginning-of-sequence token");
    if (n < n_ctx) return 0;
    kin_api_error_set(err, 400, NULL, "the prompt has %s%d tokens, but the context is %d: start the server with a larger --ctx",
                      at_least, n, n_ctx);
    err->type = "exceed_context_size_error";
    err->n_prompt = n;
    err->n_ctx = n_ctx;
    return KIN_FAIL;
}

// Refuses a text that must have more tokens than the context without tokenizing it, which takes many times its bytes.
static int check_bytes(const kin_preparer *p, size_t n_bytes, kin_api_error *err) {
    size_t n_longest = 1;
    if (n_bytes <= LEAST_CHECKED) return 0;
    for (int32_t id = 0; id < kin_vocab_n_tokens(p->session->vocab); id++) {
        size_t len = kin_vocab_piece(p->session->vocab, id).len;
        if (len > n_longest) n_longest = len;
    }
    size_t n_least = n_bytes / n_longest;
    return n_least < (size_t)p->session->n_ctx
               ? 0
               : check_length(p, n_least > INT32_MAX ? INT32_MAX : (int)n_least, "at least ", err);
}

static size_t bytes_of(const json_t *prompt) {
    size_t i, n = json_string_length(prompt);
    const json_t *part;
    json_array_foreach(prompt, i, part) n += json_string_length(part);
    return n;
}

static int fill_prompt(const kin_preparer *p, kin_prepared *out, int i_prompt, const int32_t *ids, int n, kin_api_error *err) {
    int n_choices = out->request.n_choices;
    kin_err why;
    if (check_length(p, n, "", err) != 0) return KIN_FAIL;
    kin_text_buffer *text = &out->prompt_texts[i_prompt];
    bool is_repeated = !out->request.is_chat || out->request.verbose;
    if (is_repeated && kin_prompter_text(p->prompter, ids, n, true, text, &why) != 0) return out_of_memory(err);
    out->prompts[i_prompt] = (kin_str){text->at ? text->at : "", text->len};
    for (int k = 0; k < n_choices; k++) {
        if (fill_job(p, out, i_prompt * n_choices + k, ids, n, err) != 0) return KIN_FAIL;
    }
    return 0;
}

// Collects the callable tools for the reply's parser and grammar. The grammar takes arguments in the order of the schema. gemma
// 4, the model with arguments between quotes of its own, writes them in the order of their names, as its template does.
static int collect_tools(const kin_preparer *p, kin_prepared *out, kin_api_error *err) {
    bool is_sorted = kin_prompter_format(p->prompter)->chat.syntax == KIN_CALL_QUOTED;
    const kin_request *r = &out->request;
    size_t n = r->tool_choice == KIN_TOOLS_NONE ? 0 : json_array_size(r->tools);
    if (n == 0) return 0;
    if (n > KIN_REPLY_MAX_TOOLS) return kin_api_error_set(err, 400, "tools", "at most %d tools", KIN_REPLY_MAX_TOOLS);
    out->tools = calloc(n, sizeof *out->tools);
    out->tool_schemas = calloc(n, sizeof *out->tool_schemas);
    if (!out->tools || !out->tool_schemas) return out_of_memory(err);
    for (size_t i = 0; i < n; i++) {
        const json_t *function = json_object_get(json_array_get(r->tools, i), "function");
        json_t *name = json_object_get(function, "name"), *schema = json_object_get(function, "parameters");
        json_t *ordered = is_sorted ? kin_history_sort_keys(schema) : json_incref(schema);
        char *text = out->tool_schemas[i] = json_dumps(ordered, JSON_COMPACT);
        json_decref(ordered);
        if (!text) return out_of_memory(err);
        out->tools[i] = (kin_reply_tool){.name = {json_string_value(name), json_string_length(name)},
                                         .parameters = {text, strlen(text)},
                                         .strict = json_is_true(json_object_get(function, "strict"))};
        out->n_tools++;
    }
    return 0;
}

static void choose_reply(const kin_preparer *p, kin_prepared *out, kin_str prompt) {
    const kin_tool_format *format = kin_prompter_format(p->prompter);
    out->thinking = kin_reply_thinking_of(format, prompt);
    out->reply = (kin_reply_options){.format = &format->chat,
                                     .tools = out->tools,
                                     .n_tools = out->n_tools,
                                     .reasoning = kin_chat_format_thinks(&format->chat),
                                     .begins_in_reasoning = out->thinking == KIN_THINKING_BEGUN,
                                     .reasoning_in_text = out->request.reasoning_in_content};
}

static int prepare_chat(const kin_preparer *p, kin_prepared *out, kin_api_error *err) {
    kin_prompt prompt;
    int32_t *ids;
    int n;
    if (collect_tools(p, out, err) != 0 || kin_prompter_render(p->prompter, &out->request, &prompt, err) != 0) return KIN_FAIL;
    choose_reply(p, out, (kin_str){prompt.text.at ? prompt.text.at : "", prompt.text.len});
    int rc = check_bytes(p, prompt.text.len, err);
    if (rc == 0) rc = kin_prompter_encode(p->prompter, &prompt, &ids, &n, err);
    kin_prompt_fini(&prompt);
    if (rc != 0) return KIN_FAIL;
    rc = fill_prompt(p, out, 0, ids, n, err);
    free(ids);
    return rc;
}

// Keeps a prompt as it was written, without the token that begins every text.
static int keep_written(kin_prepared *out, int i, const json_t *prompt, kin_api_error *err) {
    kin_text_buffer *text = &out->prompt_texts[i];
    if (!out->request.echo || !json_is_string(prompt)) return 0;
    kin_text_fini(text);
    *text = (kin_text_buffer){0};
    kin_text_put(text, json_string_value(prompt), json_string_length(prompt));
    if (text->failed) return out_of_memory(err);
    out->prompts[i] = (kin_str){text->at ? text->at : "", text->len};
    return 0;
}

static int prepare_prompts(const kin_preparer *p, kin_prepared *out, kin_api_error *err) {
    const kin_request *r = &out->request;
    for (int i = 0; i < out->n_prompts; i++) {
        int32_t *ids;
        int n;
        if (check_bytes(p, bytes_of(json_array_get(r->prompts, (size_t)i)), err) != 0) return KIN_FAIL;
        if (kin_prompter_encode_json(p->prompter, json_array_get(r->prompts, (size_t)i), r->add_special, r->parse_special, &ids,
                                     &n, err) != 0)
            return KIN_FAIL;
        int rc = fill_prompt(p, out, i, ids, n, err);
        free(ids);
        if (rc != 0 || keep_written(out, i, json_array_get(r->prompts, (size_t)i), err) != 0) return KIN_FAIL;
    }
    return 0;
}

int kin_prepare(kin_prepared *out, const kin_preparer *p, kin_request *request, kin_api_error *err) {
    *out = (kin_prepared){.request = *request};
    *request = (kin_request){0};
    kin_request *r = &out->request;
    if (r->bias) r->sampler.bias = r->bias;
    out->n_prompts = r->is_chat ? 1 : (int)json_array_size(r->prompts);
    out->n_sequences = out->n_prompts * r->n_choices;
    out->jobs = calloc((size_t)out->n_sequences, sizeof *out->jobs);
    out->seeds = calloc((size_t)out->n_sequences, sizeof *out->seeds);
    out->prompt_texts = calloc((size_t)out->n_prompts, sizeof *out->prompt_texts);
    out->prompts = calloc((size_t)out->n_prompts, sizeof *out->prompts);
    int rc = out->jobs && out->seeds && out->prompt_texts && out->prompts ? add_text_bias(p, r, err) : out_of_memory(err);
    if (rc == 0) rc = check_bias(p, r, err);
    if (rc == 0) rc = r->is_chat ? prepare_chat(p, out, err) : prepare_prompts(p, out, err);
    if (rc != 0) kin_prepared_fini(out);
    return rc;
}

int kin_prepare_count(const kin_preparer *p, const kin_request *request, int *n, kin_api_error *err) {
    kin_prompt prompt;
    int32_t *ids;
    if (kin_prompter_render(p->prompter, request, &prompt, err) != 0) return KIN_FAIL;
    int rc = kin_prompter_encode(p->prompter, &prompt, &ids, n, err);
    kin_prompt_fini(&prompt);
    if (rc == 0) free(ids);
    return rc;
}
