// A kin whose model says what a script wants: linked with all of app/. Everything from the sockets to the choice of a token is
// real; a prompt is cut to its last token before it is computed, and the sampler's choice is replaced. For tests/agents.
//
// The script is a program at the other end of file descriptor 3, a stream socket. For each generation the computing thread sends
// the prompt and waits for the reply; u32 are little-endian:
//
//   | to the script   | u32 n | u8 prompt[n], control tokens as text   |
//   | from the script | u32 n | u8 reply[n], control tokens recognized |
//
// A token that the request's grammar forbids ends the request with an error. SCRIPTED_MARKS names the control tokens of the
// vocabulary, one on each line, instead of the demo model's; they replace its last merged tokens. The first ends a reply.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/err.h"
#include "cluster/session.h"
#include "pipeline/scheduler.h"
#include "pure/sampling/sampler.h"
#include "pure/text/text_buffer.h"
#include "pure/tokenizer/detok.h"
#include "serve/service.h"

enum {
    SCRIPT_FD = 3,
    MAX_MARKS = 64,
    MAX_REPLY = 1 << 20,
    N_CONTROL = 3
}; // N_CONTROL: of the demo model, behind the merged tokens

int __real_kin_vocab_new(kin_vocab **out, const kin_vocab_spec *spec, kin_err *err);
int __wrap_kin_vocab_new(kin_vocab **out, const kin_vocab_spec *spec, kin_err *err);
int __real_kin_service_open(kin_service **out, const kin_service_options *options, kin_err *err);
int __wrap_kin_service_open(kin_service **out, const kin_service_options *options, kin_err *err);
int __real_kin_scheduler_submit(kin_scheduler *s, const kin_generation_options *o, kin_generation **out, kin_err *err);
int __wrap_kin_scheduler_submit(kin_scheduler *s, const kin_generation_options *o, kin_generation **out, kin_err *err);
int32_t __wrap_kin_sampler_sample_constrained(kin_sampler *sampler, float *logits, kin_constraint *constraint);

// ---- the vocabulary

static const kin_str control_names[N_CONTROL] = {{"<scripted_bos>", 14}, {"<scripted_1>", 12}, {"<scripted_2>", 12}};

int __wrap_kin_vocab_new(kin_vocab **out, const kin_vocab_spec *spec, kin_err *err) {
    const char *marks = getenv("SCRIPTED_MARKS");
    kin_vocab_spec scripted = *spec;
    kin_str *tokens = calloc((size_t)spec->n_tokens, sizeof *tokens);
    int32_t *types = calloc((size_t)spec->n_tokens, sizeof *types);
    int32_t id = spec->n_tokens - N_CONTROL;
    kin_assert(tokens && types && spec->types);
    memcpy(tokens, spec->tokens, (size_t)spec->n_tokens * sizeof *tokens);
    memcpy(types, spec->types, (size_t)spec->n_tokens * sizeof *types);
    for (int32_t i = 0; i < N_CONTROL; i++) tokens[id + i] = control_names[i];
    scripted.eos = id - 1;
    scripted.eot = KIN_TOKEN_NONE;
    for (size_t n; marks && *marks; marks += n + (marks[n] == '\n')) {
        n = strcspn(marks, "\n");
        tokens[--id] = (kin_str){marks, n};
        types[id] = KIN_TOKEN_CONTROL;
        scripted.n_merges--;
    }
    scripted.tokens = tokens;
    scripted.types = types;
    int rc = __real_kin_vocab_new(out, &scripted, err);
    free(types);
    free(tokens);
    return rc;
}

// ---- the script

typedef struct script {
    kin_generation_options real;
    int32_t *ids; // [n] the reply
    int64_t n, at;
} script;

static const kin_session *session;
static script *current; // whose next() runs

static bool transfer(bool writes, void *bytes, size_t n) {
    for (size_t at = 0; at < n;) {
        ssize_t k = writes ? write(SCRIPT_FD, (char *)bytes + at, n - at) : read(SCRIPT_FD, (char *)bytes + at, n - at);
        if (k <= 0) return false;
        at += (size_t)k;
    }
    return true;
}

static bool send_prompt(const int32_t *ids, int n) {
    kin_text_buffer text = {0};
    kin_detok *detok;
    uint8_t length[4];
    kin_err err;
    if (kin_detok_new(&detok, session->vocab, KIN_DETOK_SPECIAL, &err) != 0) return false;
    for (int i = 0; i < n; i++) {
        kin_str piece = kin_detok_push(detok, ids[i]);
        kin_text_put(&text, piece.at, piece.len);
    }
    kin_detok_free(detok);
    kin_put_u32(length, (uint32_t)text.len);
    bool ok = !text.failed && transfer(true, length, sizeof length) && transfer(true, text.at, text.len);
    kin_text_fini(&text);
    return ok;
}

static bool read_reply(script *s) {
    uint8_t length[4];
    kin_err err;
    if (!transfer(false, length, sizeof length) || kin_get_u32(length) > MAX_REPLY) return false;
    size_t n = kin_get_u32(length);
    char *text = malloc(n + 1);
    s->ids = calloc(n + 1, sizeof *s->ids);
    kin_assert(text && s->ids);
    bool ok = transfer(false, text, n);
    s->n = ok ? kin_tokenizer_encode(session->tokenizer, text, n, KIN_ENCODE_PARSE_SPECIAL, s->ids, n + 1, &err) : -1;
    free(text);
    return s->n >= 0;
}

int32_t __wrap_kin_sampler_sample_constrained(kin_sampler *sampler, float *logits, kin_constraint *constraint) {
    (void)sampler, (void)logits;
    int32_t id = current->at < current->n ? current->ids[current->at] : kin_vocab_eos(session->vocab);
    if (!constraint || kin_constraint_allows(constraint, id)) {
        current->at++;
        return id;
    }
    kin_str text = kin_vocab_text(session->vocab, id);
    fprintf(stderr, "the grammar forbids token %lld of the reply, '%.*s'\n", (long long)current->at, (int)text.len, text.at);
    return KIN_FAIL;
}

// ---- a generation

static int32_t next(void *user, float *logits) {
    current = user;
    return current->real.next(current->real.user, logits);
}

static void progress(void *user, int n_done, int n_cached) {
    const script *s = user;
    (void)n_done;
    s->real.progress(s->real.user, s->real.n_prompt, n_cached);
}

static void ended(void *user, kin_generation_end how, const kin_err *why) {
    script *s = user;
    s->real.ended(s->real.user, how, why);
    free(s->ids);
    free(s);
}

int __wrap_kin_scheduler_submit(kin_scheduler *scheduler, const kin_generation_options *o, kin_generation **out, kin_err *err) {
    script *s = calloc(1, sizeof *s);
    kin_generation_options scripted = *o;
    kin_assert(s);
    s->real = *o;
    scripted.prompt = o->prompt + o->n_prompt - 1;
    scripted.n_prompt = 1;
    scripted.no_cache = true;
    scripted.next = next;
    scripted.progress = progress;
    scripted.ended = ended;
    scripted.drafts = NULL;
    scripted.user = s;
    if (!send_prompt(o->prompt, o->n_prompt) || !read_reply(s))
        kin_err_set(err, "the script has ended");
    else if (__real_kin_scheduler_submit(scheduler, &scripted, out, err) == 0)
        return 0;
    free(s->ids);
    free(s);
    return KIN_FAIL;
}

int __wrap_kin_service_open(kin_service **out, const kin_service_options *options, kin_err *err) {
    session = options->session;
    return __real_kin_service_open(out, options, err);
}
