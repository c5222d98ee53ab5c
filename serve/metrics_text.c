#include "serve/metrics_text.h"

#include <inttypes.h>
#include <math.h>

static void put_head(kin_text_buffer *out, const char *name, const char *kind, const char *help) {
    kin_text_print(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind);
}

static void put_count(kin_text_buffer *out, const char *name, const char *help, uint64_t value) {
    put_head(out, name, "counter", help);
    kin_text_print(out, "%s %" PRIu64 "\n", name, value);
}

static void put_number(kin_text_buffer *out, const char *name, const char *kind, const char *help, double value) {
    put_head(out, name, kind, help);
    kin_text_print(out, "%s %.6g\n", name, value);
}

static void put_histogram(kin_text_buffer *out, const char *name, const char *help, const uint64_t buckets[16], double sum) {
    uint64_t n = 0;
    put_head(out, name, "histogram", help);
    for (int i = 0; i < 16; i++) {
        n += buckets[i];
        if (isinf(kin_call_bucket_s[i]))
            kin_text_print(out, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, n);
        else
            kin_text_print(out, "%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, kin_call_bucket_s[i], n);
    }
    kin_text_print(out, "%s_sum %.6g\n%s_count %" PRIu64 "\n", name, sum, name, n);
}

void kin_metrics_put(const struct kin_call_counters *c, const kin_service_status *status, kin_text_buffer *out) {
    const kin_scheduler_stats *t = &status->scheduler;
    put_count(out, "llamacpp:prompt_tokens_total", "Prompt tokens of all requests.", c->n_prompt);
    put_count(out, "llamacpp:prompt_tokens_cached_total", "... of these, tokens that were in the prefix cache.", c->n_cached);
    put_count(out, "llamacpp:tokens_predicted_total", "Tokens written.", c->n_generated);
    put_count(out, "llamacpp:n_decode_total", "Steps computed.", t->n_steps);
    put_number(out, "llamacpp:prompt_seconds_total", "counter", "Seconds until first tokens.", c->prompt_s);
    put_number(out, "llamacpp:tokens_predicted_seconds_total", "counter", "Seconds after first tokens.", c->generated_s);
    put_number(out, "llamacpp:prompt_tokens_seconds", "gauge", "Prompt tokens per second.",
               c->prompt_s > 0 ? (double)c->n_prompt / c->prompt_s : 0);
    put_number(out, "llamacpp:predicted_tokens_seconds", "gauge", "Tokens written per second, of one text.",
               c->generated_s > 0 ? (double)c->n_generated / c->generated_s : 0);
    put_number(out, "llamacpp:requests_processing", "gauge", "Texts that are computed.", status->n_running);
    put_number(out, "llamacpp:requests_deferred", "gauge", "Texts that wait.", status->n_waiting);
    put_number(out, "llamacpp:n_busy_slots_per_decode", "gauge", "Texts in a step.",
               t->n_steps ? (double)t->n_decode_rows / (double)t->n_steps : 0);
    put_number(out, "kin:expected_tokens_per_second", "gauge",
               "What the plan lets expect of the texts that are computed now, all together; 0: not known.",
               status->expected_rate);
    put_count(out, "kin:requests_total", "Requests for texts.", c->n_requests);
    put_count(out, "kin:requests_failed_total", "... that ended with an error.", c->n_failed);
    put_count(out, "kin:requests_cancelled_total", "... whose client went away.", c->n_cancelled);
    put_count(out, "kin:preemptions_total", "Texts that lost their place in the KV cache for a while.", t->n_preempted);
    put_number(out, "kin:kv_cache_usage_ratio", "gauge", "Blocks of the KV cache in use, prefixes among them.",
               t->n_blocks ? 1 - (double)t->n_free_blocks / t->n_blocks : 0);
    put_histogram(out, "kin:time_to_first_token_seconds", "Time to the first token.", c->ttft_buckets, c->ttft_s);
    put_histogram(out, "kin:inter_token_latency_seconds", "Time between tokens.", c->gap_buckets, c->gap_s);
}
