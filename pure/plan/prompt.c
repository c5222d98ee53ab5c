#include "pure/plan/prompt.h"

#include <math.h>
#include <stdlib.h>

#include "pure/plan/hops.h"

// The times of one chunk, over all rounds.
typedef struct chunk {
    int n_tokens;
    double pass_s; // on its own
    // For each device: time that it computes and waits for what a full ring does not hide, and the least time of its disk.
    double busy_s[KIN_FACTS_MAX_DEVICES], stall_s[KIN_FACTS_MAX_DEVICES];
} chunk;

typedef struct prompt {
    const kin_facts *facts;
    const kin_plan *plan;
    int n_tokens, n_before; // n_before: in the KV cache
    int n_chunk;
    chunk *chunks;
    double output_s;
} prompt;

static int fill_chunk(const prompt *p, int n_tokens, int n_before, chunk *out, kin_err *err) {
    kin_prediction pass;
    if (kin_latency_pass(p->facts, p->plan, n_tokens, n_before, 0, &pass, err) != 0) return KIN_FAIL;
    *out = (chunk){.n_tokens = n_tokens, .pass_s = pass.tpot_s};
    for (int i = 0; i < p->facts->n_device; i++) {
        const kin_device_prediction *d = &pass.devices[i];
        out->busy_s[i] = d->compute_s + d->windows_s + d->experts_s + d->exposed_s;
        out->stall_s[i] = d->stall_s;
    }
    return 0;
}

static int reads_longest(const kin_facts *facts, const kin_plan *plan, int n_tokens, bool *yes, kin_err *err) {
    kin_prediction p;
    *yes = false;
    if (kin_latency_pass(facts, plan, n_tokens, 0, 0, &p, err) != 0) return KIN_FAIL;
    for (int i = 0; i < facts->n_device; i++) *yes |= p.devices[i].load_s > p.devices[i].compute_s + p.devices[i].windows_s;
    return 0;
}

int kin_prompt_chunk_worth(const kin_facts *facts, const kin_plan *plan, int *worth, kin_err *err) {
    int less = KIN_PROMPT_CHUNK_LEAST, enough = facts->work.n_batch;
    bool reads;
    *worth = less;
    if (reads_longest(facts, plan, less, &reads, err) != 0) return KIN_FAIL;
    if (!reads) return 0;
    while (enough - less > 1) {
        int n = less + (enough - less) / 2;
        if (reads_longest(facts, plan, n, &reads, err) != 0) return KIN_FAIL;
        *(reads ? &less : &enough) = n;
    }
    if (enough > less) *worth = enough;
    return 0;
}

static int cut(prompt *p, kin_err *err) {
    int n = p->n_tokens, worth;
    kin_prediction last;
    if (kin_prompt_chunk_worth(p->facts, p->plan, &worth, err) != 0) return KIN_FAIL;
    int size = kin_prompt_chunk_tokens(n, p->plan->n_stops, p->facts->work.n_batch, worth);
    p->n_chunk = n / size + (n % size > 0);
    if (p->n_chunk > KIN_PROMPT_MAX_CHUNKS)
        return kin_err_set(err, "plan: a prompt of %d chunks of %d tokens is too long", p->n_chunk, size);
    p->chunks = calloc((size_t)p->n_chunk, sizeof *p->chunks);
    if (!p->chunks) return kin_err_set(err, "plan: out of memory for %d chunks of a prompt", p->n_chunk);
    for (int i = 0; i < p->n_chunk; i++) {
        int before = i * size, left = n - before;
        if (fill_chunk(p, left < size ? left : size, p->n_before + before, &p->chunks[i], err) != 0) return KIN_FAIL;
    }
    const chunk *end = &p->chunks[p->n_chunk - 1];
    int before = p->n_before + n - end->n_tokens;
    if (kin_latency_pass(p->facts, p->plan, end->n_tokens, before, 1, &last, err) != 0) return KIN_FAIL;
    p->output_s = last.tpot_s - end->pass_s;
    return 0;
}

// Returns the time of a hop's bytes on the link, where chunks wait for each other. The rest of the path carries many at once.
static double wire_s(const prompt *p, int i, int n_tokens) {
    int from = p->plan->stops[i].device, to = p->plan->stops[kin_plan_turn(p->plan, i)].device;
    return n_tokens * p->facts->model.hidden_bytes / p->facts->links[from][to].bytes_s;
}

// ---- the closed form

static double busiest_s(const prompt *p) {
    double busiest = 0, devices_s[KIN_FACTS_MAX_DEVICES] = {0};
    for (int c = 0; c < p->n_chunk; c++) {
        for (int i = 0; i < p->facts->n_device; i++) devices_s[i] += fmax(p->chunks[c].busy_s[i], p->chunks[c].stall_s[i]);
    }
    for (int i = 0; i < p->facts->n_device; i++) busiest = fmax(busiest, devices_s[i]);
    for (int i = 0; i < p->plan->n_stops && kin_hops_are_in(p->facts, p->plan); i++)
        busiest = fmax(busiest, p->plan->n_rounds * wire_s(p, i, p->n_tokens));
    return busiest;
}

static double closed_form(const prompt *p) {
    double sum_s = busiest_s(p), pass_s = 0, k = p->plan->n_rounds;
    for (int c = 0; c < p->n_chunk; c++) pass_s += p->chunks[c].pass_s / p->n_chunk;
    if (p->n_chunk > KIN_PROMPT_CHUNKS_AT_ONCE) sum_s = fmax(sum_s, pass_s * p->n_chunk / KIN_PROMPT_CHUNKS_AT_ONCE);
    return ((k - 1) * fmax(pass_s, sum_s) + sum_s + pass_s - sum_s / p->n_chunk) / k + p->output_s;
}

int kin_prompt_predict_behind(const kin_facts *facts, const kin_plan *plan, int n, int n_before, double *ttft_s, kin_err *err) {
    prompt p = {.facts = facts, .plan = plan, .n_tokens = n, .n_before = n_before};
    *ttft_s = 0;
    if (n == 0) return 0;
    int rc = cut(&p, err);
    if (rc == 0) *ttft_s = closed_form(&p);
    free(p.chunks);
    return rc;
}

int kin_prompt_predict(const kin_facts *facts, const kin_plan *plan, double *ttft_s, kin_err *err) {
    return kin_prompt_predict_behind(facts, plan, facts->work.n_prompt, 0, ttft_s, err);
}

// ---- simulated

// A chunk in flight: at `ready_s` it requests the hop to the i-th turn of a round, or has arrived there.
typedef struct traveller {
    double ready_s;
    int round, turn;
    bool arrived;
} traveller;

static double later(double *free_s, double ready_s, double takes_s) {
    return *free_s = fmax(*free_s, ready_s) + takes_s;
}

// A window begins with a full ring, unless the device was not idle for long enough since the previous one.
static double compute(const prompt *p, const chunk *c, int stop, int round, double *free_s, double ready_s) {
    int device = p->plan->stops[stop].device, n = p->plan->shares[device].n_layer;
    if (p->plan->stops[stop].relay || n == 0) return ready_s;
    double share = (double)kin_plan_share_of_round(p->plan, device, round).n_layer / n;
    double streamed_s = *free_s + share * c->stall_s[device];
    return *free_s = fmax(later(free_s, ready_s, share * c->busy_s[device]), streamed_s);
}

// Advances the chunk with the earliest request by one step. Returns false if it has finished all its rounds.
static bool advance_chunk(const prompt *p, const chunk *c, traveller *t, double *device_free_s, double *wire_free_s) {
    int from = t->turn, to = kin_plan_turn(p->plan, from), device = p->plan->stops[to].device;
    if (!t->arrived && kin_hops_are_in(p->facts, p->plan)) {
        double rtt_s = p->facts->links[p->plan->stops[from].device][device].rtt_s;
        t->ready_s = later(&wire_free_s[from], t->ready_s, wire_s(p, from, c->n_tokens)) + rtt_s / 2;
        t->arrived = true;
        return true;
    }
    t->ready_s = compute(p, c, to, t->round, &device_free_s[device], t->ready_s);
    t->arrived = false;
    if (++t->turn == p->plan->n_stops) t->turn = 0, t->round++;
    return t->round < p->plan->n_rounds;
}

static int earliest(const traveller *t, int n) {
    int first = 0;
    for (int i = 1; i < n; i++) first = t[i].ready_s < t[first].ready_s ? i : first;
    return first;
}

// The head sends the next chunk when one has come back.
static double play(const prompt *p) {
    traveller in_flight[KIN_PROMPT_CHUNKS_AT_ONCE] = {0};
    int which[KIN_PROMPT_CHUNKS_AT_ONCE], n = p->n_chunk < KIN_PROMPT_CHUNKS_AT_ONCE ? p->n_chunk : KIN_PROMPT_CHUNKS_AT_ONCE;
    double device_free_s[KIN_FACTS_MAX_DEVICES], wire_free_s[KIN_PLAN_MAX_STOPS] = {0}, end_s = 0;
    for (int i = 0; i < n; i++) which[i] = i;
    // The devices of a ring were idle before a prompt. A standalone device may have computed until now.
    for (int i = 0; i < KIN_FACTS_MAX_DEVICES; i++) device_free_s[i] = kin_hops_are_in(p->facts, p->plan) ? -INFINITY : 0;
    for (int n_done = 0, n_sent = n; n_done < p->n_chunk;) {
        int i = earliest(in_flight, n);
        if (advance_chunk(p, &p->chunks[which[i]], &in_flight[i], device_free_s, wire_free_s)) continue;
        end_s = fmax(end_s, in_flight[i].ready_s);
        n_done++;
        in_flight[i] = (traveller){.ready_s = n_sent < p->n_chunk ? in_flight[i].ready_s : INFINITY};
        which[i] = n_sent++;
    }
    return end_s + p->output_s;
}

int kin_prompt_play(const kin_facts *facts, const kin_plan *plan, double *ttft_s, kin_err *err) {
    prompt p = {.facts = facts, .plan = plan, .n_tokens = facts->work.n_prompt};
    *ttft_s = 0;
    if (p.n_tokens == 0) return 0;
    int rc = cut(&p, err);
    if (rc == 0) *ttft_s = play(&p);
    free(p.chunks);
    return rc;
}
