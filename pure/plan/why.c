#include "pure/plan/why.h"

#include <stdio.h>

typedef struct question {
    const kin_facts *facts;
    const kin_plan_options *options;
    const kin_plan *plan;
} question;

// "32 layers, all on the GPU"
static void say_share(const kin_share *share, char *text, size_t size) {
    const char *s = share->n_layer == 1 ? "" : "s";
    if (share->n_layer_gpu == 0)
        snprintf(text, size, "%d layer%s", share->n_layer, s);
    else if (share->n_layer_gpu == share->n_layer)
        snprintf(text, size, "%d layer%s, all on the GPU", share->n_layer, s);
    else
        snprintf(text, size, "%d layer%s, %d of them on the GPU", share->n_layer, s, share->n_layer_gpu);
}

static bool is_relay(const kin_plan *plan, int device) {
    for (int s = 1; s < plan->n_stops; s++) {
        if (plan->stops[s].relay && plan->stops[s].device == device) return true;
    }
    return false;
}

// What a device takes that has layers: would another do as well?
static void say_used(const question *q, int device, char *sentence) {
    const kin_device_facts *d = &q->facts->devices[device];
    char share[80];
    kin_plan without;
    kin_plan_options options = *q->options;
    say_share(&q->plan->shares[device], share, sizeof share);
    if (device == 0) {
        snprintf(sentence, KIN_WHY_MAX, "%s: %s; the head, with embedding and output", d->name, share);
        return;
    }
    options.leave_out |= kin_device_bit(device);
    options.force_in &= ~kin_device_bit(device);
    if (kin_plan_exact(q->facts, &options, &without, NULL) != 0)
        snprintf(sentence, KIN_WHY_MAX, "%s: %s; without it the model has no place", d->name, share);
    else
        snprintf(sentence, KIN_WHY_MAX, "%s: %s; without it %.3g ms/token more", d->name, share,
                 (without.tpot_s - q->plan->tpot_s) * 1e3);
}

// The whole cost of a device that is not used: the best plan with it.
static void say_unused(const question *q, int device, char *sentence) {
    const kin_device_facts *d = &q->facts->devices[device];
    const char *role = device == 0                 ? "only embedding and output"
                       : is_relay(q->plan, device) ? "no layers, only a relay"
                                                   : "left out";
    kin_plan with;
    kin_plan_options options = *q->options;
    options.force_in |= kin_device_bit(device);
    if (kin_plan_exact(q->facts, &options, &with, NULL) != 0) {
        snprintf(sentence, KIN_WHY_MAX, "%s %s: it cannot hold a layer", d->name, role);
        return;
    }
    double more_s = with.tpot_s - q->plan->tpot_s;
    if (more_s * 1e3 >= 0.005)
        snprintf(sentence, KIN_WHY_MAX, "%s %s: it would add %.3g ms/token", d->name, role, more_s * 1e3);
    else
        snprintf(sentence, KIN_WHY_MAX, "%s %s: it would make nothing faster", d->name, role);
}

int kin_why(const kin_facts *facts, const kin_plan_options *options, const kin_plan *plan, char sentences[][KIN_WHY_MAX],
            kin_err *err) {
    const question q = {facts, options, plan};
    char reasons[KIN_FACTS_MAX_DEVICES][KIN_FACTS_MAX_REASON];
    kin_device_set usable;
    if (kin_facts_screen(facts, &usable, reasons, err) != 0) return KIN_FAIL;
    for (int i = 0; i < facts->n_device; i++) {
        const char *name = facts->devices[i].name;
        if (!(usable & kin_device_bit(i)))
            snprintf(sentences[i], KIN_WHY_MAX, "%s refused: %s", name, reasons[i]);
        else if (options->leave_out & kin_device_bit(i))
            snprintf(sentences[i], KIN_WHY_MAX, "%s left out, as was asked for", name);
        else if (plan->shares[i].n_layer > 0)
            say_used(&q, i, sentences[i]);
        else
            say_unused(&q, i, sentences[i]);
    }
    return 0;
}
