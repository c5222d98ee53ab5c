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

// Maps a figure of a device to a metric labelled with the device's name.
typedef struct device_metric {
    const char *key, *name, *kind, *help;
} device_metric;

static const device_metric device_metrics[] = {
    {"compute_share", "kin:device_compute_ratio", "gauge", "Share of the last second in which the device computed."},
    {"wait_share", "kin:device_wait_ratio", "gauge", "Share of the last second in which the device waited for others."},
    {"disk_share", "kin:device_disk_ratio", "gauge", "Share of the last second in which the device's disk read weights."},
    {"memory_lent", "kin:device_memory_lent_bytes", "gauge", "Memory that the device lends to kin."},
    {"memory_free", "kin:device_memory_free_bytes", "gauge", "Free memory of the machine."},
    {"resident_bytes", "kin:device_weights_resident_bytes", "gauge", "Weights in memory."},
    {"streamed_bytes", "kin:device_weights_streamed_bytes", "gauge", "Weights read from disk for every step."},
    {"bytes_in", "kin:device_received_bytes_total", "counter", "Bytes received from other devices."},
    {"bytes_out", "kin:device_sent_bytes_total", "counter", "Bytes sent to other devices."},
};

// Writes a label's value: quotes, backslashes and line ends escaped, as Prometheus requires.
static void put_label(kin_text_buffer *out, const char *text) {
    for (; *text; text++) {
        if (*text == '\n')
            kin_text_print(out, "\\n");
        else
            kin_text_print(out, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    }
}

static void put_device_metric(const device_metric *m, const json_t *devices, kin_text_buffer *out) {
    bool has_head = false;
    size_t i;
    const json_t *device;
    json_array_foreach(devices, i, device) {
        const json_t *value = json_object_get(device, m->key);
        const char *name = json_string_value(json_object_get(device, "name"));
        if (!json_is_number(value) || !name) continue;
        if (!has_head) put_head(out, m->name, m->kind, m->help);
        has_head = true;
        kin_text_print(out, "%s{device=\"", m->name);
        put_label(out, name);
        kin_text_print(out, "\"} %.15g\n", json_number_value(value));
    }
}

void kin_metrics_put_devices(const json_t *cluster, kin_text_buffer *out) {
    const json_t *devices = json_object_get(cluster, "devices");
    const json_t *pages = json_object_get(json_object_get(cluster, "head"), "pages_bytes");
    for (size_t i = 0; i < sizeof device_metrics / sizeof *device_metrics; i++)
        put_device_metric(&device_metrics[i], devices, out);
    if (pages)
        put_count(out, "kin:page_copies_bytes_total", "KV pages stored by devices and replicated to others.",
                  (uint64_t)json_integer_value(pages));
}

static void put_by_source(kin_text_buffer *out, const char *name, const char *help, const uint64_t counts[KIN_DRAFT_N_SOURCES]) {
    put_head(out, name, "counter", help);
    for (int i = 0; i < KIN_DRAFT_N_SOURCES; i++) {
        if (i == KIN_DRAFT_ORACLE) continue; // of kin bench only
        kin_text_print(out, "%s{source=\"%s\"} %" PRIu64 "\n", name, kin_draft_source_name((kin_draft_source_kind)i), counts[i]);
    }
}

void kin_metrics_put(const struct kin_call_counters *c, const kin_service_status *status, kin_text_buffer *out) {
    const kin_scheduler_stats *t = &status->scheduler;
    put_count(out, "llamacpp:prompt_tokens_total", "Prompt tokens processed.", c->n_prompt - c->n_cached);
    put_count(out, "llamacpp:prompt_tokens_cached_total", "Prompt tokens found in the prefix cache.", c->n_cached);
    put_count(out, "llamacpp:tokens_predicted_total", "Tokens generated.", c->n_generated);
    put_count(out, "llamacpp:n_decode_total", "Steps computed.", t->n_steps);
    put_count(out, "llamacpp:n_tokens_max", "Tokens of the longest sequence, including its prompt.", c->n_longest);
    put_count(out, "llamacpp:spec_decode_num_draft_tokens_total", "Drafted tokens that were verified.",
              kin_draft_counts_drafted(&t->drafts));
    put_count(out, "llamacpp:spec_decode_num_accepted_tokens_total", "Drafted tokens that were accepted.",
              kin_draft_counts_accepted(&t->drafts));
    put_count(out, "llamacpp:spec_decode_num_drafts_total", "Drafts verified, of one or more tokens.", t->drafts.n_drafts);
    put_by_source(out, "kin:drafted_tokens_total", "Drafted tokens that were verified, by their source.", t->drafts.drafted);
    put_by_source(out, "kin:accepted_tokens_total", "Drafted tokens that were accepted, by their source.", t->drafts.accepted);
    put_number(out, "llamacpp:prompt_seconds_total", "counter", "Seconds until the first token.", c->prompt_s);
    put_number(out, "llamacpp:tokens_predicted_seconds_total", "counter", "Seconds after the first token.", c->generated_s);
    put_number(out, "llamacpp:prompt_tokens_seconds", "gauge", "Prompt tokens computed per second.",
               c->prompt_s > 0 ? (double)(c->n_prompt - c->n_cached) / c->prompt_s : 0);
    put_number(out, "llamacpp:predicted_tokens_seconds", "gauge",
               "Tokens generated per second and request, after the first token.",
               c->generated_s > 0 ? (double)c->n_after_first / c->generated_s : 0);
    put_number(out, "llamacpp:requests_processing", "gauge", "Requests in progress.", status->n_running);
    put_number(out, "llamacpp:requests_deferred", "gauge", "Requests waiting.", status->n_waiting);
    put_number(out, "llamacpp:n_busy_slots_per_decode", "gauge", "Sequences per step.",
               t->n_steps ? (double)t->n_decode_rows / (double)t->n_steps : 0);
    put_number(out, "kin:expected_tokens_per_second", "gauge",
               "Tokens per second that the plan predicts for the requests in progress; 0: unknown.", status->expected_rate);
    put_count(out, "kin:requests_total", "Completion requests.", c->n_requests);
    put_count(out, "kin:requests_failed_total", "Completion requests that failed.", c->n_failed);
    put_count(out, "kin:requests_cancelled_total", "Completion requests whose client disconnected.", c->n_cancelled);
    put_count(out, "kin:replayed_tokens_total", "Tokens recomputed after a change of the ring or a preemption.",
              t->n_replayed_tokens);
    put_count(out, "kin:partly_replayed_tokens_total", "Tokens recomputed in the layers of a lost device only.",
              t->n_partly_replayed_tokens);
    put_count(out, "kin:preemptions_total", "Sequences preempted from the KV cache.", t->n_preempted);
    put_number(out, "kin:kv_cache_usage_ratio", "gauge", "Share of KV cache blocks in use, including cached prefixes.",
               t->n_blocks ? 1 - (double)t->n_free_blocks / t->n_blocks : 0);
    put_histogram(out, "kin:time_to_first_token_seconds", "Time to the first token.", c->ttft_buckets, c->ttft_s);
    put_histogram(out, "kin:inter_token_latency_seconds", "Time between tokens.", c->gap_buckets, c->gap_s);
}
