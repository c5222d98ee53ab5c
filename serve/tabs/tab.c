#include "serve/tabs/tab.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "base/log.h"
#include "base/median.h"
#include "cluster/join.h"
#include "model/border.h"
#include "model/ranges.h"
#include "pipeline/watchdog.h"
#include "pure/proto/label.h"
#include "serve/http/websocket.h"
#include "serve/json_out.h"
#include "serve/tabs/tab_limit.h"
#include "sys/cond.h"

enum {
    MAX_HELLO = 16 << 10, // bytes of a message before the code is known
    MAX_OTHER = 64 << 10, // ... and after it, of messages that do not answer a step
    MAX_NAME = 60,        // bytes
    MAX_THREADS = 256,
    PING_MS = 500,
    LOOK_NS = 100000000, // interval for checking whether a prefetch is still wanted
    N_ECHOES = 9,        // before it joins
};

// A call from the join's threads to the tab, one at a time.
typedef enum call_state {
    CALL_NONE,
    CALL_NEW,  // to be sent
    CALL_SENT, // waiting for the answer
    CALL_DONE, // answered, or sent if no answer is expected
    CALL_FAILED,
} call_state;

typedef struct call {
    call_state state;
    kin_text_buffer *before; // a text sent before it; NULL: none
    kin_frame frame;
    uint8_t *payload;            // [frame.length], borrowed; receives the answer, too
    size_t cap;                  // room for the answer to a step or to pages
    bool is_answered;            // an answer is expected
    uint64_t limit_ms;           // time limit for the answer, or for the next sign of progress
    const kin_remote_open *open; // for a plan
    kin_proto_ready *ready;
    kin_err err;
} call;

// A prefetch for a later plan, concurrent with calls.
typedef struct ahead {
    call_state state;
    kin_text_buffer *text;
    uint32_t ticket;
} ahead;

struct kin_tab {
    const kin_tab_shared *shared;
    // The loop's thread.
    kin_http_exchange *x; // NULL: its WebSocket is closed
    kin_websocket *ws;
    bool is_admitted, is_ending, has_thread;
    kin_time opened_at, heard_at, ping_at, ticked_at;
    kin_time echo_at; // an echo is in flight since then; 0: none
    int n_echoes;
    double echo_s[N_ECHOES]; // round-trip times
    uint8_t *out;            // [out_cap] a frame with its header
    size_t out_cap;
    // Used once it has joined.
    pthread_t thread;
    char name[MAX_NAME + 1], cpu[KIN_PROTO_MAX_STR + 1], gpu[KIN_PROTO_MAX_STR + 1]; // gpu "": it computes without a GPU
    kin_device_facts facts;
    kin_remote_engine engine;
    int n_threads;
    atomic_bool stop;
    uint32_t n_plans;       // number of plans so far, used as the epoch of its frames
    uint64_t weights_bytes; // of the open plan
    pthread_mutex_t mutex;  // guards the fields below
    pthread_cond_t answered;
    call call;
    kin_watchdog watchdog; // for the call
    unsigned n_signs;      // signs of its progress so far
    double progress;       // bytes done of the plan being opened
    ahead ahead;
    bool is_over; // no answer will come any more
    bool has_ended;
    char status[256];
    bool has_status; // not sent yet
    kin_err why;     // why it has ended
};

// ---- to the tab

static void send_json(kin_tab *t, json_t *json) {
    kin_text_buffer text = {0};
    kin_json_put(json, &text);
    if (t->x && !text.failed) kin_websocket_send(t->ws, true, text.at, text.len);
    kin_text_fini(&text);
}

static void give_up_calls(kin_tab *t) {
    atomic_store(&t->stop, true);
    pthread_mutex_lock(&t->mutex);
    t->is_over = true;
    pthread_cond_broadcast(&t->answered);
    pthread_mutex_unlock(&t->mutex);
}

static void end(kin_tab *t, int status, const char *reason) {
    if (t->is_ending) return;
    t->is_ending = true;
    give_up_calls(t);
    if (!t->x) return;
    send_json(t, json_pack("{s:s, s:s, s:b}", "type", "refused", "reason", reason, "again", status == KIN_WEBSOCKET_AWAY));
    kin_websocket_end(t->ws, status, reason);
    kin_http_tunnel_close(t->x);
}

void kin_tab_end(kin_tab *t, const char *reason) {
    end(t, KIN_WEBSOCKET_AWAY, reason);
}

static void refuse(kin_tab *t, const char *reason) {
    if (t->is_admitted) kin_log(KIN_LOG_WARN, "removed the tab '%s': %s", t->name, reason);
    end(t, KIN_WEBSOCKET_REFUSED, reason);
}

static bool send_frame(kin_tab *t, const kin_frame *frame, const uint8_t *payload) {
    size_t n = KIN_FRAME_HEADER + (size_t)frame->length;
    if (n > t->out_cap) {
        uint8_t *larger = realloc(t->out, n);
        if (!larger) return false;
        t->out = larger;
        t->out_cap = n;
    }
    kin_frame_encode(t->out, frame);
    if (frame->length > 0) memcpy(t->out + KIN_FRAME_HEADER, payload, frame->length);
    kin_websocket_set_max(t->ws, n > MAX_OTHER ? n : MAX_OTHER);
    return kin_websocket_send(t->ws, false, t->out, n);
}

// Call with the mutex held.
static void send_call(kin_tab *t) {
    call *c = &t->call;
    bool is_sent = t->x &&
                   (!c->before || (!c->before->failed && kin_websocket_send(t->ws, true, c->before->at, c->before->len))) &&
                   send_frame(t, &c->frame, c->payload);
    if (!is_sent) kin_err_set(&c->err, "cannot reach the tab '%s'", t->name);
    t->n_signs++;
    t->progress = 0;
    t->watchdog.least_ns = c->limit_ms * UINT64_C(1000000);
    if (c->open) t->watchdog.longest_ns = 0; // the time for its last layers says nothing about these
    c->state = !is_sent ? CALL_FAILED : c->is_answered ? CALL_SENT : CALL_DONE;
    if (c->state != CALL_SENT) pthread_cond_broadcast(&t->answered);
}

// ---- the join's computing thread: the remote engine

static int ask(kin_tab *t, call *c, kin_err *err) {
    pthread_mutex_lock(&t->mutex);
    t->call = *c;
    t->call.state = CALL_NEW;
    t->shared->wake(t->shared->user);
    while (!t->is_over && (t->call.state == CALL_NEW || t->call.state == CALL_SENT)) pthread_cond_wait(&t->answered, &t->mutex);
    int rc = t->call.state == CALL_DONE ? 0 : KIN_FAIL;
    if (rc != 0 && t->call.state == CALL_FAILED)
        kin_err_set(err, "%s", t->call.err.text);
    else if (rc != 0)
        kin_err_set(err, "the tab '%s' was closed", t->name);
    c->frame = t->call.frame;
    t->call.state = CALL_NONE;
    pthread_mutex_unlock(&t->mutex);
    return rc;
}

static json_t *files_json(const kin_manifest *m) {
    json_t *files = json_array();
    for (int i = 0; i < m->n_files; i++)
        json_array_append_new(files, json_pack("{s:s, s:I}", "name", m->files[i].name, "size", (json_int_t)m->files[i].size));
    return files;
}

static json_t *windows_json(const kin_proto_plan *plan) {
    json_t *windows = json_array();
    for (int i = 0; i < plan->n_windows; i++)
        json_array_append_new(windows, json_pack("[i, i]", plan->window[i].layer_begin, plan->window[i].layer_end));
    return windows;
}

// Adds the chunks of the wanted ranges to list, and their bytes to *bytes.
static int add_chunks(json_t *list, uint64_t *bytes, bool *seen, const kin_session *s, const kin_ranges_wanted *wanted,
                      kin_err *err) {
    const kin_manifest *m = &s->fleet.manifest;
    kin_range *ranges = NULL;
    uint32_t *chunks = NULL;
    size_t n_ranges, n_chunks = 0;
    if (kin_ranges_list(s->model.gguf, wanted, &ranges, &n_ranges, err) != 0) return KIN_FAIL;
    int rc = kin_ranges_chunks(m, ranges, n_ranges, &chunks, &n_chunks, err);
    for (size_t i = 0; rc == 0 && i < n_chunks; i++) {
        kin_chunk c = kin_manifest_chunk(m, chunks[i]);
        if (seen[chunks[i]]) continue;
        seen[chunks[i]] = true;
        *bytes += c.bytes;
        json_array_append_new(list, json_pack("[s, i, I, I]", kin_hash_to_hex(m->hashes[chunks[i]]).text, c.i_file,
                                              (json_int_t)c.offset, (json_int_t)c.bytes));
    }
    free(chunks);
    free(ranges);
    return rc;
}

// Lists the chunks of the headers and of the layers in the plan's windows.
static json_t *chunks_json(const kin_session *s, const kin_proto_plan *plan, uint64_t *bytes, kin_err *err) {
    json_t *list = json_array();
    bool *seen = calloc(s->fleet.manifest.n_chunks, sizeof *seen);
    kin_ranges_wanted wanted = {.header = true};
    int rc = list && seen ? add_chunks(list, bytes, seen, s, &wanted, err) : kin_err_set(err, "out of memory");
    for (int i = 0; rc == 0 && i < plan->n_windows; i++) {
        wanted = (kin_ranges_wanted){.layer_begin = plan->window[i].layer_begin, .layer_end = plan->window[i].layer_end};
        rc = add_chunks(list, bytes, seen, s, &wanted, err);
    }
    free(seen);
    if (rc == 0) return list;
    json_decref(list);
    return NULL;
}

// Writes the message about the chunks to fetch for a plan. type: "weights" for the PLAN that follows, or "ahead" for a later one.
// *bytes: the total.
static int put_weights(const kin_tab *t, const char *type, uint32_t ticket, const kin_proto_plan *plan, kin_text_buffer *out,
                       uint64_t *bytes, kin_err *err) {
    const kin_session *s = t->shared->session;
    const kin_manifest *m = &s->fleet.manifest;
    *bytes = 0;
    json_t *chunks = chunks_json(s, plan, bytes, err);
    if (!chunks) return KIN_FAIL;
    kin_json_put(json_pack("{s:s, s:I, s:s, s:I, s:i, s:o, s:o, s:o}", "type", type, "ticket", (json_int_t)ticket, "token",
                           t->shared->token, "chunk_bytes", (json_int_t)m->chunk_bytes, "layers", s->model.hp.n_layer, "files",
                           files_json(m), "windows", windows_json(plan), "chunks", chunks),
                 out);
    return out->failed ? kin_err_set(err, "out of memory") : 0;
}

static int open_plan(void *user, const kin_remote_open *o, kin_proto_ready *ready, kin_err *err) {
    const kin_proto_plan *plan = o->plan;
    kin_tab *t = user;
    kin_text_buffer before = {0};
    size_t n = kin_proto_size_plan(plan);
    uint8_t *payload = malloc(n);
    int rc = payload ? put_weights(t, "weights", 0, plan, &before, &t->weights_bytes, err) : kin_err_set(err, "out of memory");
    if (rc == 0) {
        kin_proto_encode_plan(payload, n, plan);
        call c = {.before = &before,
                  .frame = {.type = KIN_FRAME_PLAN, .epoch = ++t->n_plans, .length = (uint32_t)n},
                  .payload = payload,
                  .is_answered = true,
                  .limit_ms = KIN_TAB_OPEN_MS,
                  .open = o,
                  .ready = ready};
        rc = ask(t, &c, err);
    }
    free(payload);
    kin_text_fini(&before);
    return rc;
}

static int send_step(void *user, kin_message_buffer *buffer, kin_err *err) {
    kin_tab *t = user;
    kin_proto_step step = {0};
    if (buffer->frame.type == KIN_FRAME_STEP && kin_proto_decode_step(buffer->payload, buffer->frame.length, &step, err) != 0)
        return KIN_FAIL;
    call c = {.frame = buffer->frame,
              .payload = buffer->payload,
              .cap = buffer->cap,
              .is_answered = true,
              .limit_ms = kin_tab_step_limit_ms(&t->facts, t->weights_bytes, step.n_tokens)};
    c.frame.epoch = t->n_plans;
    if (ask(t, &c, err) != 0) return KIN_FAIL;
    buffer->frame.length = c.frame.length;
    return 0;
}

static int reset(void *user, kin_err *err) {
    kin_tab *t = user;
    uint8_t no_reason[2] = {0};
    call c = {.frame = {.type = KIN_FRAME_END, .epoch = t->n_plans, .length = sizeof no_reason}, .payload = no_reason};
    return ask(t, &c, err);
}

// ---- the join's thread that prepares later plans

static int prefetch(void *user, const kin_proto_plan *plan, const atomic_bool *stop, kin_err *err) {
    kin_tab *t = user;
    kin_text_buffer text = {0};
    pthread_mutex_lock(&t->mutex);
    uint32_t ticket = t->ahead.ticket + 1;
    pthread_mutex_unlock(&t->mutex);
    uint64_t bytes;
    int rc = put_weights(t, "ahead", ticket, plan, &text, &bytes, err);
    pthread_mutex_lock(&t->mutex);
    t->ahead = (ahead){CALL_NEW, &text, ticket};
    if (rc == 0) t->shared->wake(t->shared->user);
    while (rc == 0 && !t->is_over && !atomic_load(stop) && t->ahead.state < CALL_DONE)
        kin_cond_wait_for(&t->answered, &t->mutex, LOOK_NS);
    if (rc == 0 && t->ahead.state != CALL_DONE) rc = kin_err_set(err, "the tab '%s' did not fetch it", t->name);
    t->ahead.state = CALL_NONE;
    pthread_mutex_unlock(&t->mutex);
    kin_text_fini(&text);
    return rc;
}

// ---- the join's threads

static void show_status(void *user, const char *line) {
    kin_tab *t = user;
    pthread_mutex_lock(&t->mutex);
    snprintf(t->status, sizeof t->status, "%s", line);
    t->has_status = true;
    pthread_mutex_unlock(&t->mutex);
    t->shared->wake(t->shared->user);
}

static void *run(void *arg) {
    kin_tab *t = arg;
    const kin_session *s = t->shared->session;
    kin_join_options o = {.name = t->name,
                          .version = KIN_VERSION,
                          .key = t->shared->key,
                          .head = s->fleet.o.net.listen ? s->fleet.o.net.listen : "127.0.0.1",
                          .head_port = kin_cluster_port(s->fleet.cluster),
                          .listen = s->fleet.o.net.listen,
                          .model_path = s->fleet.paths[0],
                          .no_cache = true,
                          .n_threads = t->n_threads,
                          .no_gpu = true,
                          .engine = &t->engine,
                          .facts = &t->facts,
                          .cpu = t->cpu,
                          .gpu = t->gpu[0] ? t->gpu : NULL,
                          .hang_ms = KIN_TAB_MOST_MS, // by then it has been disconnected
                          .stop = &t->stop,
                          .status = show_status,
                          .user = t};
    memcpy(o.model_hash.bytes, s->fleet.manifest.hash, sizeof o.model_hash.bytes);
    kin_err why;
    int rc = uv_random(NULL, NULL, o.id.bytes, sizeof o.id.bytes, 0, NULL) == 0 &&
                     uv_random(NULL, NULL, &o.run, sizeof o.run, 0, NULL) == 0
                 ? kin_join_run(&o, &why)
                 : kin_err_set(&why, "cannot get random numbers");
    kin_key_wipe(&o.key);
    pthread_mutex_lock(&t->mutex);
    t->has_ended = true;
    if (rc != 0) t->why = why;
    pthread_mutex_unlock(&t->mutex);
    t->shared->wake(t->shared->user);
    return NULL;
}

static void join_ring(kin_tab *t) {
    t->facts.window_s += kin_median(t->echo_s, N_ECHOES);
    t->engine = (kin_remote_engine){.os = "browser",
                                    .memory = (uint64_t)t->facts.memory_bytes,
                                    .features = t->gpu[0] ? KIN_PROTO_INEXACT : 0,
                                    .user = t,
                                    .open = open_plan,
                                    .prefetch = prefetch,
                                    .handle = send_step,
                                    .reset = reset};
    if (pthread_create(&t->thread, NULL, run, t) == 0)
        t->has_thread = true;
    else
        end(t, KIN_WEBSOCKET_NORMAL, "the head cannot start a thread");
}

// ---- the path to the tab, before it joins

// Measures the round trip of a token's step without the computation: a message of a step's size, which the tab's computing worker
// returns, after a pause as in a ring. Browsers split large messages, and resting workers wake up late, so small echoes in quick
// succession would give too short a time.
static void send_echo(kin_tab *t) {
    const kin_session *s = t->shared->session;
    size_t n = kin_activations_bytes((uint64_t)kin_border_mean(&s->model.hp), kin_fleet_wire_type(&s->fleet.o));
    uint8_t *filler = calloc(1, n);
    kin_frame frame = {.type = KIN_FRAME_ECHO, .length = (uint32_t)n};
    t->echo_at = kin_clock_now();
    if (!filler || !send_frame(t, &frame, filler)) end(t, KIN_WEBSOCKET_NORMAL, "the head is out of memory");
    free(filler);
}

static void handle_echo(kin_tab *t) {
    t->echo_s[t->n_echoes++] = kin_clock_ms(t->echo_at, t->heard_at) / 1e3;
    t->echo_at = 0;
}

static void finish_rest(kin_tab *t) {
    if (t->n_echoes == N_ECHOES)
        join_ring(t);
    else
        send_echo(t);
}

// ---- from the tab: texts

static double number(const json_t *json, const char *key, double least, double most, double otherwise) {
    const json_t *v = json_object_get(json, key);
    double is = json_is_number(v) ? json_number_value(v) : otherwise;
    return is >= least && is <= most ? is : otherwise;
}

static void read_label(char *to, size_t most, const json_t *json, const char *key, const char *otherwise) {
    const char *text = json_string_value(json_object_get(json, key));
    kin_label_set(to, most, text && text[0] ? text : otherwise);
}

// Reads the speeds that a tab has measured; those not measured default to those of a slow phone.
static void read_facts(kin_tab *t, const json_t *m) {
    const json_t *rates = json_object_get(m, "rates");
    kin_engine_facts *cpu = &t->facts.cpu;
    t->facts = (kin_device_facts){.os = t->gpu[0] ? KIN_OS_BROWSER_GPU : KIN_OS_BROWSER,
                                  .memory_bytes = number(m, "memory", 1 << 20, 0x1p32, 0x1p30)};
    double bytes_s = number(rates, "bytes_s", 1e6, 1e12, 2e9), flop_s = number(rates, "flop_s", 1e6, 1e14, 1e10);
    for (int q = 0; q < KIN_N_QUANT; q++) {
        cpu->token_bytes_s[q] = number(json_object_get(rates, "token_bytes_s"), kin_quant_name((kin_quant)q), 1e6, 1e12, bytes_s);
        cpu->prompt_flop_s[q] = number(json_object_get(rates, "prompt_flop_s"), kin_quant_name((kin_quant)q), 1e6, 1e14, flop_s);
    }
    cpu->read_bytes_s = number(rates, "read_bytes_s", 1e6, 1e13, cpu->token_bytes_s[KIN_QUANT_F16]);
    cpu->prompt_read_bytes_s = number(rates, "prompt_read_bytes_s", 1e6, 1e13, 0);
    if (cpu->prompt_read_bytes_s > 0) cpu->kv_bytes_s = number(rates, "kv_bytes_s", 1e6, 1e13, 0);
    cpu->kv_copy_s = number(rates, "kv_copy_s", 0, 1, 1e-6);
    cpu->op_s = number(rates, "op_s", 0, 1, 5e-6);
    t->facts.window_s = number(rates, "window_s", 0, 1, 0);
    kin_label_set(t->facts.name, sizeof t->facts.name - 1, t->name);
    t->n_threads = (int)number(m, "threads", 1, MAX_THREADS, 1);
}

static void handle_hello(kin_tab *t, const json_t *m) {
    const kin_session *s = t->shared->session;
    const char *code = json_string_value(json_object_get(m, "code"));
    kin_tab_code answer = t->shared->check(t->shared->user, code ? code : "");
    if (answer == KIN_TAB_LATER) {
        refuse(t, "too many wrong codes: try again in a second");
        return;
    }
    if (answer == KIN_TAB_MANY) {
        refuse(t, "too many tabs have joined");
        return;
    }
    if (answer == KIN_TAB_WRONG) {
        refuse(t, "wrong code: run 'kin code' on the head to see it");
        return;
    }
    t->is_admitted = true;
    read_label(t->name, MAX_NAME, m, "name", "a browser");
    read_label(t->cpu, KIN_PROTO_MAX_STR, m, "cpu", "a browser");
    read_label(t->gpu, KIN_PROTO_MAX_STR, m, "gpu", "");
    read_facts(t, m);
    kin_websocket_set_max(t->ws, MAX_OTHER);
    send_json(t, json_pack("{s:s, s:s, s:s}", "type", "welcome", "head", s->fleet.self.name, "model", s->model_name));
    send_echo(t);
}

// Handles progress of the plan being opened.
static void handle_progress(kin_tab *t, const json_t *m) {
    double total = number(m, "total", 1, 0x1p53, 0), done = number(m, "done", 0, total, 0);
    pthread_mutex_lock(&t->mutex);
    const kin_remote_open *o = t->call.state == CALL_SENT ? t->call.open : NULL;
    t->n_signs += o && done > t->progress;
    if (o) t->progress = done;
    if (o && o->progress && total > 0) o->progress(o->progress_user, "weights", (uint64_t)done, (uint64_t)total);
    pthread_mutex_unlock(&t->mutex);
}

static void handle_prefetched(kin_tab *t, const json_t *m) {
    json_int_t ticket = json_integer_value(json_object_get(m, "ticket"));
    pthread_mutex_lock(&t->mutex);
    if (t->ahead.state == CALL_SENT && ticket == t->ahead.ticket)
        t->ahead.state = json_is_true(json_object_get(m, "here")) ? CALL_DONE : CALL_FAILED;
    pthread_cond_broadcast(&t->answered);
    pthread_mutex_unlock(&t->mutex);
}

static void handle_text(kin_tab *t, const uint8_t *bytes, size_t n) {
    json_t *m = json_loadb((const char *)bytes, n, 0, NULL);
    const char *type = json_string_value(json_object_get(m, "type"));
    if (!type)
        refuse(t, "unexpected message from the tab");
    else if (strcmp(type, "hello") == 0 && !t->is_admitted)
        handle_hello(t, m);
    else if (!t->is_admitted)
        refuse(t, "the first message must be the code");
    else if (strcmp(type, "progress") == 0)
        handle_progress(t, m);
    else if (strcmp(type, "ahead") == 0)
        handle_prefetched(t, m);
    else if (strcmp(type, "leave") == 0)
        end(t, KIN_WEBSOCKET_NORMAL, "the tab has left");
    else if (strcmp(type, "rested") == 0 && !t->has_thread && t->echo_at == 0)
        finish_rest(t);
    else if (strcmp(type, "pong") != 0) // a pong only shows that the tab is alive
        refuse(t, "unexpected message for a head");
    json_decref(m);
}

// ---- from the tab: frames

// Call with the mutex held. Returns false if the frame does not answer the current call.
static bool handle_answer(kin_tab *t, const kin_frame *frame, const uint8_t *payload) {
    call *c = &t->call;
    kin_proto_message *m;
    kin_err err;
    if (c->state != CALL_SENT || frame->epoch != c->frame.epoch) return false;
    if (frame->type == c->frame.type && frame->type != KIN_FRAME_PLAN) {
        if (frame->length > c->cap) return false;
        if (frame->length > 0) memcpy(c->payload, payload, frame->length);
        c->frame.length = frame->length;
        c->state = CALL_DONE;
        return true;
    }
    bool is_ready = frame->type == KIN_FRAME_READY && c->frame.type == KIN_FRAME_PLAN;
    if (!is_ready && frame->type != KIN_FRAME_FAILED) return false;
    m = malloc(sizeof *m);
    bool is_right = m && kin_proto_decode(frame->type, payload, frame->length, m, &err) == 0;
    if (is_right && is_ready) *c->ready = m->ready;
    if (is_right && !is_ready) kin_err_set(&c->err, "%.900s", m->failed.reason);
    if (is_right) c->state = is_ready ? CALL_DONE : CALL_FAILED;
    free(m);
    return is_right;
}

static void handle_frame(kin_tab *t, const uint8_t *bytes, size_t n) {
    kin_frame frame;
    kin_err err;
    if (kin_frame_decode(bytes, n, &frame, &err) != KIN_FRAME_HEADER || frame.length != n - KIN_FRAME_HEADER) {
        refuse(t, "invalid frame");
        return;
    }
    if (t->echo_at > 0 && frame.type == KIN_FRAME_ECHO) {
        handle_echo(t);
        return;
    }
    if (!t->has_thread) {
        refuse(t, "unexpected frame before a request");
        return;
    }
    pthread_mutex_lock(&t->mutex);
    bool is_answer = handle_answer(t, &frame, bytes + KIN_FRAME_HEADER);
    if (is_answer) pthread_cond_broadcast(&t->answered);
    pthread_mutex_unlock(&t->mutex);
    if (!is_answer) refuse(t, "the answer does not match the request");
}

static void on_message(void *user, bool is_text, const uint8_t *bytes, size_t n) {
    kin_tab *t = user;
    if (t->is_ending) return;
    t->heard_at = kin_clock_now();
    if (is_text)
        handle_text(t, bytes, n);
    else
        handle_frame(t, bytes, n);
}

// ---- the WebSocket

static void on_send(void *user, const uint8_t *bytes, size_t n) {
    kin_tab *t = user;
    if (t->x) kin_http_tunnel_send(t->x, bytes, n);
}

static void on_bytes(void *user, const uint8_t *bytes, size_t n) {
    kin_tab *t = user;
    if (t->is_ending) return;
    if (!kin_websocket_feed(t->ws, bytes, n))
        end(t, KIN_WEBSOCKET_NORMAL, "the tab was closed");
    else if (t->x && kin_http_tunnel_pending(t->x) > MAX_OTHER + 2 * t->out_cap)
        refuse(t, "the tab does not read its messages"); // for example, answers to its pings
}

static void on_closed(void *user) {
    kin_tab *t = user;
    t->x = NULL;
    t->is_ending = true;
    give_up_calls(t);
    t->shared->wake(t->shared->user);
}

// ---- open, step and tick

int kin_tab_open(kin_tab **out, const kin_tab_shared *shared, kin_http_exchange *x, kin_err *err) {
    static const kin_websocket_callbacks callbacks = {.send = on_send, .message = on_message};
    kin_tab *t = *out = calloc(1, sizeof *t);
    if (!t) return kin_err_set(err, "out of memory");
    if (kin_websocket_open(&t->ws, MAX_HELLO, &callbacks, t, err) != 0) {
        free(t);
        *out = NULL;
        return KIN_FAIL;
    }
    t->shared = shared;
    t->x = x;
    t->opened_at = t->heard_at = kin_clock_now();
    pthread_mutex_init(&t->mutex, NULL);
    kin_cond_init(&t->answered);
    kin_http_upgrade(x, "websocket", &(kin_http_tunnel){.bytes = on_bytes, .closed = on_closed, .user = t});
    return 0;
}

void kin_tab_free(kin_tab *t) {
    if (t->has_thread) pthread_join(t->thread, NULL);
    kin_websocket_close(t->ws);
    pthread_cond_destroy(&t->answered);
    pthread_mutex_destroy(&t->mutex);
    free(t->out);
    free(t);
}

bool kin_tab_step(kin_tab *t) {
    char status[sizeof t->status] = "";
    pthread_mutex_lock(&t->mutex);
    if (t->call.state == CALL_NEW) send_call(t);
    if (t->ahead.state == CALL_NEW && t->x && kin_websocket_send(t->ws, true, t->ahead.text->at, t->ahead.text->len))
        t->ahead.state = CALL_SENT;
    if (t->has_status) memcpy(status, t->status, sizeof status);
    t->has_status = false;
    bool has_ended = t->has_ended;
    pthread_mutex_unlock(&t->mutex);
    if (status[0]) send_json(t, json_pack("{s:s, s:s}", "type", "status", "line", status));
    if (has_ended) end(t, KIN_WEBSOCKET_NORMAL, t->why.text[0] ? t->why.text : "the tab has left");
    return t->x || (t->has_thread && !has_ended);
}

static bool is_call_late(kin_tab *t, kin_time now, bool *is_open) {
    pthread_mutex_lock(&t->mutex);
    bool is_late = kin_watchdog_check(&t->watchdog, now, t->call.state == CALL_SENT, t->n_signs);
    *is_open = t->call.open != NULL;
    pthread_mutex_unlock(&t->mutex);
    return is_late;
}

void kin_tab_tick(kin_tab *t, kin_time now) {
    bool is_open;
    if (t->is_ending) return;
    if (!t->is_admitted) {
        if (kin_clock_ms(t->opened_at, now) > KIN_TAB_HELLO_MS) refuse(t, "no code was sent in time");
        return;
    }
    // After a late tick, this process was stopped or busy, and the tab's messages are still unread.
    if (t->ticked_at && kin_clock_ms(t->ticked_at, now) > KIN_TAB_SILENCE_MS / 2) t->heard_at = now;
    t->ticked_at = now;
    if (kin_clock_ms(t->heard_at, now) > KIN_TAB_SILENCE_MS)
        refuse(t, "the tab sent nothing for too long: some browsers suspend hidden pages");
    else if (is_call_late(t, now, &is_open))
        refuse(t, is_open ? "the tab did not prepare its layers in time" : "the tab responds, but its computation hangs");
    else if (t->has_thread && kin_clock_ms(t->ping_at, now) >= PING_MS) {
        t->ping_at = now;
        send_json(t, json_pack("{s:s}", "type", "ping"));
    }
}

bool kin_tab_is_admitted(const kin_tab *t) {
    return t->is_admitted;
}
