#include "pure/proto/member.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/hash.h"
#include "base/sentence.h"
#include "pure/proto/epoch.h"
#include "pure/proto/goodbye.h"
#include "pure/proto/label.h"

#define MS ((uint64_t)1000000)

enum {
    MAX_DUPLICATES = 3,      // refusals in a row, then the duplicate is real
    SEARCHES_UNTIL_HINT = 4, // about ten seconds
    SEARCHES_UNTIL_GATEWAYS = 3,
};

// A head with another key does not answer, so it cannot be distinguished from no head.
static const char no_answer[] =
    "; none has answered. Start one in this network (kin run --cluster) with the same code: 'kin code' shows it "
    "there, 'kin join --ask-code' enters it here. Or give its address: kin join ADDRESS";

// An action that is tried repeatedly.
typedef struct retry {
    uint64_t wait_ns; // the next wait; 0: the shortest
    kin_time at;      // when to try next
    bool is_trying;   // no try is due: one is in progress, or has succeeded
} retry;

// The ring link on one side. Its sender connects at once, its receiver after a while; later both connect to the head instead.
typedef struct hop {
    retry retry;
    bool is_open;
    bool by_head;   // the hop is known to go through the head
    kin_time since; // when the hop was first needed
} hop;

// An answer to a search.
typedef struct answer {
    char name[64], address[KIN_MEMBER_ADDRESS];
    uint16_t port;
    bool is_gateway;
    kin_time since; // when it arrived; 0: no message
} answer;

typedef enum shard_state { SHARD_NONE, SHARD_PREPARING, SHARD_HELD } shard_state;

struct kin_member {
    kin_member_options options;
    kin_time now;
    kin_rng rng;

    kin_member_state state;
    char head[64]; // name of the head, or its address if only that is known
    retry control;
    unsigned n_searches; // without an answer
    unsigned n_asked;    // searches since it had a head
    answer held;         // used if no preferred answer arrives
    bool is_by_gateway, prefers_gateways;
    kin_time tried_at, joined_at;
    bool has_served;                     // it was ready since it joined
    int n_duplicates;                    // consecutive refusals because another process has its identity
    char why_no_head[KIN_MEMBER_REASON]; // why there is no head
    char left_out[KIN_MEMBER_REASON];    // why the last plan has no layers for it; "": it has layers, or the reason is not known

    uint32_t epoch;      // in force, 0: none
    uint32_t epoch_last; // newest epoch from this head on this link
    uint64_t work;       // hash of the work that the plan wants prepared
    hop next, previous;
    char next_error[KIN_MEMBER_REASON]; // why the next hop is not open; "": not known yet

    shard_state shard;
    uint64_t shard_work; // hash of the work that it is (being) prepared for
    uint32_t ticket;     // of the current or last preparation
    kin_time reported_at;

    kin_member_actions actions; // of the current step
};

kin_member_options kin_member_options_default(void) {
    return (kin_member_options){
        .wait_min_ns = 250 * MS,
        .wait_max_ns = 5000 * MS,
        .connect_ns = 4000 * MS,
        .steady_ns = 5000 * MS,
        .refused_ns = 30000 * MS,
        .duplicate_ns = 2500 * MS,
        .progress_ns = 250 * MS,
        .back_ns = 700 * MS,
        .hold_ns = 300 * MS,
        .relay_ns = 2000 * MS,
    };
}

// ---- actions

static kin_member_action *act(kin_member *m, kin_member_action_kind kind) {
    kin_assert(m->actions.n < KIN_MEMBER_ACTIONS);
    kin_member_action *action = &m->actions.at[m->actions.n++];
    action->kind = kind;
    action->epoch = m->epoch;
    action->ticket = m->ticket;
    action->port = 0;
    action->is_open = action->by_head = false;
    action->level = KIN_LOG_INFO;
    action->address[0] = action->stage[0] = action->text[0] = '\0';
    return action;
}

static void log_line(kin_member *m, kin_log_level level, const char *fmt, ...) KIN_PRINTF(3, 4);

static void log_line(kin_member *m, kin_log_level level, const char *fmt, ...) {
    kin_member_action *action = act(m, KIN_MEMBER_LOG);
    action->level = level;
    va_list args;
    va_start(args, fmt);
    kin_sentence_vprint(action->text, sizeof action->text, fmt, args);
    va_end(args);
}

static void set_state(kin_member *m, kin_member_state state) {
    if (m->state == state) return;
    m->state = state;
    act(m, KIN_MEMBER_STATUS);
}

static bool is_joined(const kin_member *m) {
    return m->state == KIN_MEMBER_JOINED || m->state == KIN_MEMBER_PREPARING || m->state == KIN_MEMBER_READY;
}

// ---- trying again

static void retry_later(kin_member *m, retry *r) {
    uint64_t wait = r->wait_ns > m->options.wait_min_ns ? r->wait_ns : m->options.wait_min_ns;
    if (wait > m->options.wait_max_ns) wait = m->options.wait_max_ns;
    // Jitter: devices that lost the same head must not all come back at the same instant.
    r->at = m->now + wait / 2 + (uint64_t)(kin_rng_unit(&m->rng) * (double)(wait / 2));
    r->wait_ns = wait * 2;
    r->is_trying = false;
}

static bool retry_is_due(const kin_member *m, const retry *r) {
    return !r->is_trying && m->now >= r->at;
}

// ---- the head

static void connect_to(kin_member *m, const char *address, uint16_t port) {
    m->control.is_trying = true;
    m->tried_at = m->now;
    set_state(m, KIN_MEMBER_CONNECTING);
    kin_member_action *connect = act(m, KIN_MEMBER_CONNECT);
    snprintf(connect->address, sizeof connect->address, "%s", address);
    connect->port = port;
}

static void search_head(kin_member *m) {
    if (!retry_is_due(m, &m->control)) return;
    if (m->options.address[0]) {
        connect_to(m, m->options.address, m->options.port);
        return;
    }
    set_state(m, KIN_MEMBER_SEARCHING);
    act(m, KIN_MEMBER_SEARCH);
    m->n_asked++;
    if (++m->n_searches == SEARCHES_UNTIL_HINT) act(m, KIN_MEMBER_STATUS);
    retry_later(m, &m->control); // searches overlap: an answer to any of them is accepted
}

static void end_epoch(kin_member *m) {
    if (m->epoch == 0) return;
    act(m, KIN_MEMBER_CLOSE_RING);
    m->next_error[0] = '\0';
    m->next = m->previous = (hop){.retry.is_trying = true};
    m->epoch = 0;
}

static void lose_head(kin_member *m, const char *reason) {
    // If commands run one after the other on the head, each of them finds its devices at once.
    if (is_joined(m) && (m->has_served || m->now - m->joined_at >= m->options.steady_ns)) m->control.wait_ns = 0;
    char why[sizeof m->why_no_head];
    kin_label_set_sentence(why, sizeof why - 1, kin_goodbye_words(reason));
    bool was_said = strcmp(why, m->why_no_head) == 0;
    if (is_joined(m))
        log_line(m, KIN_LOG_WARN, "the head '%s' is gone (%s)", m->head, why);
    else if (!was_said)
        log_line(m, KIN_LOG_INFO, "no head at '%s' yet: %s", m->head, why);
    end_epoch(m);
    m->epoch_last = 0;
    m->prefers_gateways = !is_joined(m) && !m->is_by_gateway;
    memcpy(m->why_no_head, why, sizeof why);
    set_state(m, m->options.address[0] ? KIN_MEMBER_CONNECTING : KIN_MEMBER_SEARCHING);
    retry_later(m, &m->control);
}

static void follow(kin_member *m, const answer *a) {
    m->n_searches = 0;
    memcpy(m->head, a->name, sizeof m->head);
    m->is_by_gateway = a->is_gateway;
    log_line(m, KIN_LOG_INFO,
             a->is_gateway ? "found the head '%s' through the device at %s, port %u" : "found the head '%s' at %s, port %u",
             m->head, a->address, (unsigned)a->port);
    connect_to(m, a->address, a->port);
    m->held.since = 0;
}

static void handle_found(kin_member *m, const kin_member_event *event) {
    if (m->state != KIN_MEMBER_SEARCHING) return;
    if (event->is_gateway && !m->prefers_gateways && m->n_asked < SEARCHES_UNTIL_GATEWAYS) return;
    answer a = {.port = event->port, .is_gateway = event->is_gateway, .since = m->now};
    kin_label_set(a.name, sizeof a.name - 1, event->name);
    snprintf(a.address, sizeof a.address, "%s", event->address);
    if (a.is_gateway == m->prefers_gateways)
        follow(m, &a);
    else if (m->held.since == 0)
        m->held = a;
}

static void follow_held(kin_member *m) {
    const answer a = m->held;
    if (m->state == KIN_MEMBER_SEARCHING && a.since && m->now - a.since >= m->options.hold_ns) follow(m, &a);
}

static void handle_accepted(kin_member *m, const kin_member_event *event) {
    if (m->state != KIN_MEMBER_CONNECTING || !m->control.is_trying) return;
    kin_label_set(m->head, sizeof m->head - 1, event->name);
    m->joined_at = m->now;
    m->has_served = false;
    m->n_asked = 0;
    m->n_duplicates = 0;
    set_state(m, KIN_MEMBER_JOINED);
    act(m, KIN_MEMBER_SEND_FACTS);
    m->why_no_head[0] = m->left_out[0] = '\0';
    log_line(m, KIN_LOG_DEBUG, "joined the head '%s'", m->head); // the status reports it
}

static void handle_refused(kin_member *m, const char *reason) {
    if (!m->control.is_trying) return;
    if (kin_refusal_of(reason) == KIN_REFUSAL_NO_HEAD) {
        snprintf(act(m, KIN_MEMBER_DROP)->text, KIN_MEMBER_SENTENCE, "it has no head");
        lose_head(m, kin_refusal_words(reason));
        return;
    }
    end_epoch(m); // a head may find out late that the device has another model
    m->epoch_last = 0;
    kin_label_set_sentence(m->why_no_head, sizeof m->why_no_head - 1, kin_refusal_words(reason));
    kin_member_action *drop = act(m, KIN_MEMBER_DROP);
    snprintf(drop->text, sizeof drop->text, "it was refused");
    m->control.is_trying = false;
    kin_refusal refusal = kin_refusal_of(reason);
    m->n_duplicates = refusal == KIN_REFUSAL_DUPLICATE ? m->n_duplicates + 1 : 0;
    if (kin_refusal_is_final(refusal) || m->n_duplicates == MAX_DUPLICATES) {
        set_state(m, KIN_MEMBER_GIVEN_UP);
        kin_member_action *give_up = act(m, KIN_MEMBER_GIVE_UP);
        snprintf(give_up->text, sizeof give_up->text, "the head '%s' refuses this device: %s", m->head, m->why_no_head);
        return;
    }
    m->control.at = m->now + (m->n_duplicates > 0 ? m->options.duplicate_ns : m->options.refused_ns);
    set_state(m, KIN_MEMBER_IS_REFUSED);
    if (m->n_duplicates <= 1) // the status reports it, too
        log_line(m, KIN_LOG_DEBUG, "the head '%s' refuses this device for now: %s", m->head, m->why_no_head);
}

// ---- the shard

static void be_ready(kin_member *m) {
    m->has_served = true;
    set_state(m, KIN_MEMBER_READY);
    act(m, KIN_MEMBER_SEND_READY);
}

static void prepare(kin_member *m) {
    if (m->shard == SHARD_PREPARING) act(m, KIN_MEMBER_CANCEL);
    m->shard = SHARD_PREPARING;
    m->shard_work = m->work;
    m->ticket++;
    act(m, KIN_MEMBER_PREPARE);
}

static void handle_plan(kin_member *m, const kin_member_event *event) {
    if (!is_joined(m) || !kin_epoch_is_newer(event->epoch, m->epoch_last)) return; // an epoch that is over does not come back
    end_epoch(m);
    m->epoch = m->epoch_last = event->epoch;
    m->left_out[0] = '\0';
    m->work = event->work;
    m->next = (hop){.retry.at = m->now, .since = m->now, .by_head = event->next_by_head};
    m->previous = (hop){.since = m->now, .by_head = event->previous_by_head};
    m->previous.retry.at = m->now + (event->previous_by_head ? 0 : m->options.back_ns);
    set_state(m, KIN_MEMBER_PREPARING);
    if (m->shard == SHARD_NONE || m->shard_work != m->work) {
        prepare(m);
    } else if (m->shard == SHARD_HELD) {
        act(m, KIN_MEMBER_REUSE);
        be_ready(m);
    }
}

static void handle_end(kin_member *m, uint32_t epoch) {
    if (!kin_member_accepts(m, epoch)) return;
    end_epoch(m);
    set_state(m, KIN_MEMBER_JOINED);
}

static void handle_left_out(kin_member *m, const char *reason) {
    kin_label_set_sentence(m->left_out, sizeof m->left_out - 1, reason);
    act(m, KIN_MEMBER_STATUS);
}

static void send_failed(kin_member *m, const kin_member_event *event) {
    kin_member_action *failed = act(m, KIN_MEMBER_SEND_FAILED);
    kin_label_set(failed->stage, sizeof failed->stage - 1, event->stage);
    kin_label_set_sentence(failed->text, sizeof failed->text - 1, event->reason);
    log_line(m, KIN_LOG_WARN, "failed at %s: %s", failed->stage, failed->text);
}

static void handle_preparation(kin_member *m, const kin_member_event *event) {
    if (m->shard == SHARD_NONE || event->ticket != m->ticket) return;
    bool is_wanted = m->epoch != 0; // otherwise it was for an epoch that is over
    if (event->kind == KIN_MEMBER_PREPARED && m->shard == SHARD_PREPARING) {
        m->shard = SHARD_HELD;
        if (is_wanted) be_ready(m);
    } else if (event->kind == KIN_MEMBER_PREPARE_FAILED) {
        m->shard = SHARD_NONE;
        if (is_wanted) {
            set_state(m, KIN_MEMBER_PREPARING);
            send_failed(m, event);
        } else {
            log_line(m, KIN_LOG_WARN, "cannot prepare what the last plan asked for: %s", event->reason);
        }
    } else if (event->kind == KIN_MEMBER_PROGRESS && is_wanted && m->now - m->reported_at >= m->options.progress_ns) {
        m->reported_at = m->now;
        act(m, KIN_MEMBER_SEND_PROGRESS);
    }
}

// A shard that failed to compute is not trusted: the next plan prepares it anew. Invalid data from another member says nothing
// about it.
static void handle_compute_failed(kin_member *m, const kin_member_event *event) {
    if (!kin_member_accepts(m, event->epoch) || m->state != KIN_MEMBER_READY) return;
    if (strcmp(event->stage, "receiving") != 0) m->shard = SHARD_NONE;
    set_state(m, KIN_MEMBER_PREPARING);
    send_failed(m, event);
}

// ---- the neighbours

static void retry_hop(kin_member *m, hop *h, kin_member_action_kind connect) {
    if (m->epoch == 0 || !retry_is_due(m, &h->retry)) return;
    h->retry.is_trying = true;
    act(m, connect)->by_head = h->by_head || m->now - h->since >= m->options.relay_ns;
}

static void handle_hop(kin_member *m, hop *h, bool is_open) {
    bool was_open = h->is_open;
    h->is_open = is_open;
    if (was_open && !is_open) { // as at first: the sender begins
        h->since = m->now;
        h->retry.wait_ns = 0;
    }
    if (is_open)
        h->retry.is_trying = true;
    else
        retry_later(m, &h->retry);
}

static void handle_next(kin_member *m, const kin_member_event *event) {
    if (!kin_member_accepts(m, event->epoch)) return;
    char error[sizeof m->next_error] = "";
    bool is_open = event->kind == KIN_MEMBER_NEXT_OPENED, was_open = m->next.is_open;
    handle_hop(m, &m->next, is_open);
    if (!is_open) kin_label_set_sentence(error, sizeof error - 1, event->reason);
    bool is_known = is_open == was_open && strcmp(error, m->next_error) == 0;
    memcpy(m->next_error, error, sizeof error);
    if (is_known) return;
    kin_member_action *ring = act(m, KIN_MEMBER_SEND_RING);
    ring->is_open = is_open;
    kin_label_set_sentence(ring->text, sizeof ring->text - 1, error);
}

static void handle_previous(kin_member *m, const kin_member_event *event) {
    hop *h = &m->previous;
    if (!kin_member_accepts(m, event->epoch)) return;
    bool was_open = h->is_open;
    handle_hop(m, h, event->kind == KIN_MEMBER_PREVIOUS_OPENED);
    if (was_open && !h->is_open && !h->by_head) h->retry.at = m->now + m->options.back_ns;
}

// ---- the step

kin_member *kin_member_new(const kin_member_options *options, kin_time now) {
    kin_member *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    m->options = *options;
    m->now = m->control.at = now;
    m->state = options->address[0] ? KIN_MEMBER_CONNECTING : KIN_MEMBER_SEARCHING;
    kin_label_set(m->head, sizeof m->head - 1, options->address);
    kin_rng_seed(&m->rng, options->seed);
    return m;
}

void kin_member_free(kin_member *m) {
    free(m);
}

static void handle_tick(kin_member *m) {
    if (m->state == KIN_MEMBER_CONNECTING && m->control.is_trying && m->now - m->tried_at >= m->options.connect_ns) {
        static const char reason[] = "the head did not answer in time";
        snprintf(act(m, KIN_MEMBER_DROP)->text, KIN_MEMBER_SENTENCE, "%s", reason);
        lose_head(m, reason);
    }
    follow_held(m);
    if (!is_joined(m) && m->state != KIN_MEMBER_GIVEN_UP) search_head(m);
    retry_hop(m, &m->next, KIN_MEMBER_CONNECT_NEXT);
    retry_hop(m, &m->previous, KIN_MEMBER_CONNECT_PREVIOUS);
}

const kin_member_actions *kin_member_step(kin_member *m, kin_time now, const kin_member_event *event) {
    kin_assert(now >= m->now);
    m->now = now;
    m->actions.n = 0;
    switch (event->kind) {
    case KIN_MEMBER_TICK: break;
    case KIN_MEMBER_FOUND: handle_found(m, event); break;
    case KIN_MEMBER_ACCEPTED: handle_accepted(m, event); break;
    case KIN_MEMBER_REFUSED: handle_refused(m, event->reason); break;
    case KIN_MEMBER_LOST:
        if (m->control.is_trying) lose_head(m, event->reason);
        break;
    case KIN_MEMBER_PLAN: handle_plan(m, event); break;
    case KIN_MEMBER_END: handle_end(m, event->epoch); break;
    case KIN_MEMBER_LEFT_OUT: handle_left_out(m, event->reason); break;
    case KIN_MEMBER_PROGRESS:
    case KIN_MEMBER_PREPARED:
    case KIN_MEMBER_PREPARE_FAILED: handle_preparation(m, event); break;
    case KIN_MEMBER_COMPUTE_FAILED: handle_compute_failed(m, event); break;
    case KIN_MEMBER_NEXT_OPENED:
    case KIN_MEMBER_NEXT_CLOSED: handle_next(m, event); break;
    case KIN_MEMBER_PREVIOUS_OPENED:
    case KIN_MEMBER_PREVIOUS_CLOSED: handle_previous(m, event); break;
    }
    handle_tick(m);
    return &m->actions;
}

// ---- inspection

kin_member_state kin_member_state_now(const kin_member *m) {
    return m->state;
}

uint32_t kin_member_epoch(const kin_member *m) {
    return m->epoch;
}

bool kin_member_accepts(const kin_member *m, uint32_t epoch) {
    return m->epoch != 0 && epoch == m->epoch;
}

const char *kin_member_doing(const kin_member *m, char *buf, size_t n) {
    switch (m->state) {
    case KIN_MEMBER_SEARCHING:
        snprintf(buf, n, "searching for a head%s", m->n_searches < SEARCHES_UNTIL_HINT ? "" : no_answer);
        break;
    case KIN_MEMBER_CONNECTING: snprintf(buf, n, "connecting to the head '%s'", m->head); break;
    case KIN_MEMBER_JOINED:
        if (m->left_out[0])
            kin_sentence_print(buf, n, "joined the head '%s', whose plan leaves this device out: %s", m->head, m->left_out);
        else
            snprintf(buf, n, "joined the head '%s', waiting for work", m->head);
        break;
    case KIN_MEMBER_PREPARING: snprintf(buf, n, "getting ready for the head '%s'", m->head); break;
    case KIN_MEMBER_READY: snprintf(buf, n, "working for the head '%s'", m->head); break;
    case KIN_MEMBER_IS_REFUSED: snprintf(buf, n, "the head '%s' refuses this device for now: %s", m->head, m->why_no_head); break;
    case KIN_MEMBER_GIVEN_UP: snprintf(buf, n, "the head '%s' refuses this device: %s", m->head, m->why_no_head); break;
    }
    return buf;
}
