#include "pure/plan/explain.h"

#include <math.h>
#include <stdio.h>

#include <string.h>

#include "base/sentence.h"
#include "pure/plan/ring_order.h"
#include "pure/plan/timeline.h"

typedef struct question {
    const kin_facts *facts;
    const kin_plan_options *options;
    const kin_plan *plan;
    double plan_s; // per token; here all times are simulated
} question;

// Sets *more_s to the difference of the best plan under these options. False if there is no such plan.
static bool differs_by(const question *q, const kin_plan_options *options, kin_plan *other, double *more_s) {
    double s;
    if (kin_plan_playoff(q->facts, options, other, NULL) != 0 || kin_timeline_play(q->facts, other, &s, NULL) != 0) return false;
    *more_s = s - q->plan_s;
    return true;
}

// "32 layers, all on the GPU", "32 layers, 20 of them on the GPU but for the experts of 12"
static void format_share(const kin_layer_share *share, char *text, size_t size) {
    const char *s = share->n_layer == 1 ? "" : "s";
    int used;
    if (share->n_layer_gpu == 0)
        used = snprintf(text, size, "%d layer%s", share->n_layer, s);
    else if (share->n_layer_gpu == share->n_layer)
        used = snprintf(text, size, "%d layer%s, all on the GPU", share->n_layer, s);
    else
        used = snprintf(text, size, "%d layer%s, %d of them on the GPU", share->n_layer, s, share->n_layer_gpu);
    if (share->n_cpu_moe == 0 || used < 0 || (size_t)used >= size) return;
    if (share->n_cpu_moe == share->n_layer_gpu)
        snprintf(text + used, size - (size_t)used, " but for their experts");
    else
        snprintf(text + used, size - (size_t)used, " but for the experts of %d", share->n_cpu_moe);
}

// Formats milliseconds as "1234", "277", "27.1": three significant digits, but without exponents.
static const char *format_ms(double seconds, char text[32]) {
    double ms = seconds * 1e3;
    snprintf(text, 32, ms < 999.5 ? "%.3g" : "%.0f", ms);
    return text;
}

// Returns the stop at which the device only forwards, or -1.
static int relay_stop(const kin_plan *plan, int device) {
    for (int s = 1; s < plan->n_stops; s++) {
        if (plan->stops[s].relay && plan->stops[s].device == device) return s;
    }
    return -1;
}

// Writes "a relay between laptop and phone": the devices before and after it in the ring, which may be relays too.
static void format_relay(const question *q, int stop, char *text, size_t size) {
    const kin_plan *plan = q->plan;
    int before = plan->stops[stop - 1].device, behind = plan->stops[(stop + 1) % plan->n_stops].device;
    if (before == behind)
        snprintf(text, size, "a relay to %s and back", q->facts->devices[before].name);
    else
        snprintf(text, size, "a relay between %s and %s", q->facts->devices[before].name, q->facts->devices[behind].name);
}

// Explains a device with layers, by the best plan without it.
static void explain_used(const question *q, int device, char *sentence, kin_plan_without *without) {
    const kin_device_facts *d = &q->facts->devices[device];
    char name[KIN_FACTS_MAX_NAME + 24], share[80], ms[32], relay[2 * KIN_FACTS_MAX_NAME + 40] = "";
    kin_plan_options options = *q->options;
    snprintf(name, sizeof name, "%s%s", d->name, kin_os_label(d->os));
    format_share(&q->plan->shares[device], share, sizeof share);
    if (device == 0) {
        snprintf(sentence, KIN_PLAN_EXPLAIN_MAX, "%s: %s; the head, with embedding and output", d->name, share);
        return;
    }
    if (relay_stop(q->plan, device) > 0) {
        memcpy(relay, "; also ", sizeof "; also ");
        format_relay(q, relay_stop(q->plan, device), relay + strlen(relay), sizeof relay - strlen(relay));
    }
    options.leave_out |= kin_device_bit(device);
    options.force_in &= ~kin_device_bit(device);
    if (!differs_by(q, &options, &without->plan, &without->more_s)) {
        without->plan.n_stops = 0;
        without->more_s = INFINITY;
        snprintf(sentence, KIN_PLAN_EXPLAIN_MAX, "%s: %s%s; without it the model does not fit", name, share, relay);
        return;
    }
    kin_plan_keep_order(q->facts, q->plan, &without->plan);
    // Negative: the device computes because it must, or the playoff did not try that plan.
    snprintf(sentence, KIN_PLAN_EXPLAIN_MAX, "%s: %s%s; without it %s ms/token %s", name, share, relay,
             format_ms(fabs(without->more_s), ms), without->more_s < 0 ? "less" : "more");
}

// Explains an unused device, by the best plan that uses it. it: the word for the device, or for a layer there.
static void explain_cost(const question *q, int device, const char *it, char why[KIN_PLAN_WHY_MAX]) {
    char ms[32];
    double more_s;
    kin_plan with;
    kin_plan_options options = *q->options;
    options.force_in |= kin_device_bit(device);
    if (!differs_by(q, &options, &with, &more_s))
        snprintf(why, KIN_PLAN_WHY_MAX, "it cannot hold a layer");
    else if (more_s * 1e3 >= 0.005)
        snprintf(why, KIN_PLAN_WHY_MAX, "%s would add %s ms/token", it, format_ms(more_s, ms));
    else if (more_s * 1e3 <= -0.005) // a plan in force stays until another one is worth the change
        snprintf(why, KIN_PLAN_WHY_MAX, "%s would save %s ms/token%s", it, format_ms(-more_s, ms),
                 kin_plan_is_worth_changing(q->plan_s, q->plan_s + more_s) ? "" : ", too little to change the plan");
    else
        snprintf(why, KIN_PLAN_WHY_MAX, "%s would not make the ring faster", it);
}

static void explain_unused(const question *q, int device, char *sentence) {
    char name[KIN_FACTS_MAX_NAME + 24], role[2 * KIN_FACTS_MAX_NAME + 40] = "left out", why[KIN_PLAN_WHY_MAX];
    const kin_device_facts *d = &q->facts->devices[device];
    const char *it = "it";
    int stop = relay_stop(q->plan, device);
    snprintf(name, sizeof name, "%s%s", d->name, kin_os_label(d->os));
    if (device == 0)
        snprintf(role, sizeof role, "is the head, with embedding and output only"), it = "a layer there";
    else if (stop > 0) {
        snprintf(role, sizeof role, "is ");
        format_relay(q, stop, role + strlen(role), sizeof role - strlen(role));
        it = "a layer there";
    }
    explain_cost(q, device, it, why);
    kin_sentence_print(sentence, KIN_PLAN_EXPLAIN_MAX, "%s %s: %s", name, role, why);
}

int kin_plan_explain_left_out(const kin_facts *facts, const kin_plan_options *options, const kin_plan *plan, int device,
                              char why[KIN_PLAN_WHY_MAX], kin_err *err) {
    question q = {facts, options, plan, 0};
    if (kin_timeline_play(facts, plan, &q.plan_s, err) != 0) return KIN_FAIL;
    explain_cost(&q, device, "it", why);
    return 0;
}

int kin_plan_explain(const kin_facts *facts, const kin_plan_options *options, const kin_plan *plan,
                     char sentences[][KIN_PLAN_EXPLAIN_MAX], kin_plan_without *without, kin_err *err) {
    question q = {facts, options, plan, 0};
    char reasons[KIN_FACTS_MAX_DEVICES][KIN_FACTS_MAX_REASON];
    kin_device_set usable;
    if (kin_facts_screen(facts, &usable, reasons, err) != 0) return KIN_FAIL;
    if (kin_timeline_play(facts, plan, &q.plan_s, err) != 0) return KIN_FAIL;
    for (int i = 0; i < facts->n_device; i++) {
        const char *name = facts->devices[i].name;
        without[i] = (kin_plan_without){.more_s = NAN};
        if (!(usable & kin_device_bit(i)))
            snprintf(sentences[i], KIN_PLAN_EXPLAIN_MAX, "%s refused: %.*s", name, KIN_FACTS_MAX_REASON - 1, reasons[i]);
        else if (options->leave_out & kin_device_bit(i))
            snprintf(sentences[i], KIN_PLAN_EXPLAIN_MAX, "%s left out by request", name);
        else if (plan->shares[i].n_layer > 0)
            explain_used(&q, i, sentences[i], &without[i]);
        else
            explain_unused(&q, i, sentences[i]);
    }
    return 0;
}
