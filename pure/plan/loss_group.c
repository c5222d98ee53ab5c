#include "pure/plan/loss_group.h"

#include <math.h>
#include <string.h>

#include "pure/plan/deal.h"
#include "pure/plan/prompt.h"

// A part of a layer, as fractions of 1; begin == end: nothing.
typedef struct range {
    double begin, end;
} range;

typedef struct part {
    range heads, ff;
} part;

// The stop of a ring that has each layer: a device, or the last one of a group.
typedef struct owners {
    int device[KIN_FACTS_MAX_LAYERS]; // [n_layer]
} owners;

static void find_owners(const kin_plan *plan, int n_device, owners *out) {
    kin_windows windows;
    for (int d = 0; d < n_device; d++) {
        kin_plan_windows(plan, d, &windows);
        for (int i = 0; i < windows.n; i++) {
            for (int il = windows.at[i].layer_begin; il < windows.at[i].layer_end; il++) out->device[il] = d;
        }
    }
}

static range dealt(double n_pieces, const kin_group *g, int rank) {
    int counts[KIN_GROUP_MAX], begin = 0;
    kin_deal((int)n_pieces, g->weights, g->n, counts);
    for (int r = 0; r < rank; r++) begin += counts[r];
    return (range){begin / n_pieces, (begin + counts[rank]) / n_pieces};
}

// Returns the device's part of the owner's layers.
static part part_of(const kin_model_facts *m, const kin_plan *plan, int owner, int device) {
    const kin_group *g = kin_plan_group_of(plan, owner);
    if (!g) return owner == device ? (part){{0, 1}, {0, 1}} : (part){0};
    for (int r = 0; r < g->n; r++) {
        if (g->devices[r] == device) return (part){dealt(m->share_heads, g, r), dealt(m->share_ff, g, r)};
    }
    return (part){0};
}

static double length(range r) {
    return fmax(0, r.end - r.begin);
}

static range common(range a, range b) {
    return (range){fmax(a.begin, b.begin), fmin(a.end, b.end)};
}

static double bytes_of(const kin_model_facts *m, int il, range heads, range ff) {
    double all = kin_facts_layer_bytes(m), attn = m->attn_bytes > 0 ? m->attn_bytes / all : 0.25;
    return m->layer_share[il] * all * (attn * length(heads) + (1 - attn) * length(ff));
}

// Adds one device. False if the rate of its disk is not known.
static bool add_weights_of(const kin_facts *facts, int device, double read, double lacking, kin_loss *out) {
    double disk = facts->devices[device].disk_bytes_s;
    if (read == 0) return true;
    if (disk <= 0) return false;
    out->load_s = fmax(out->load_s, read / disk);
    const kin_link_facts *link = &facts->links[0][device];
    if (device > 0 && kin_facts_link_usable(link)) out->fetch_s = fmax(out->fetch_s, lacking / link->bytes_s);
    return true;
}

static bool add_weights(const kin_facts *facts, const kin_plan *before, const kin_plan *after, kin_loss *out) {
    owners had, has;
    double sum = 0, best_rate = 0;
    find_owners(before, facts->n_device, &had);
    find_owners(after, facts->n_device, &has);
    for (int d = 0; d < facts->n_device; d++) {
        double read = 0, lacking = 0;
        for (int il = 0; il < facts->model.n_layer; il++) {
            part old = part_of(&facts->model, before, had.device[il], d);
            part new = part_of(&facts->model, after, has.device[il], d);
            if (memcmp(&old, &new, sizeof old) == 0) continue;
            double whole = bytes_of(&facts->model, il, new.heads, new.ff);
            read += whole;
            lacking += whole - bytes_of(&facts->model, il, common(old.heads, new.heads), common(old.ff, new.ff));
        }
        if (!add_weights_of(facts, d, read, lacking, out)) return false;
        if (d == 0 || lacking == 0 || !kin_facts_link_usable(&facts->links[0][d])) continue;
        sum += lacking;
        best_rate = fmax(best_rate, facts->links[0][d].bytes_s);
    }
    if (sum > 0) out->fetch_s = fmax(out->fetch_s, sum / best_rate);
    return true;
}

// True if each shared layer is shared by the same devices in the same way in both plans.
static bool groups_stay(const kin_facts *facts, const kin_plan *before, const kin_plan *after) {
    owners had, has;
    find_owners(before, facts->n_device, &had);
    find_owners(after, facts->n_device, &has);
    for (int il = 0; il < facts->model.n_layer; il++) {
        bool was_shared = kin_plan_group_of(before, had.device[il]), is_shared = kin_plan_group_of(after, has.device[il]);
        for (int d = 0; d < facts->n_device && (was_shared || is_shared); d++) {
            part old = part_of(&facts->model, before, had.device[il], d);
            part new = part_of(&facts->model, after, has.device[il], d);
            if (memcmp(&old, &new, sizeof old) != 0) return false;
        }
    }
    return true;
}

int kin_loss_predict_grouped(const kin_facts *facts, const kin_plan *before, const kin_plan *after, int device, kin_loss *out,
                             kin_err *err) {
    kin_facts with;
    kin_assert(device > 0 && device < facts->n_device);
    *out = (kin_loss){.recovery = KIN_LOSS_COMPUTED, .n_computed = facts->work.n_cached};
    if (kin_grouping_apply(facts, &after->groups, &with, err) != 0) return KIN_FAIL;
    if (groups_stay(facts, before, after)) return kin_loss_predict(&with, before, after, device, out, err);
    if (kin_plan_check(after, &with, err) != 0) return KIN_FAIL;
    if (kin_prompt_predict_behind(&with, after, facts->work.n_cached + 1, 0, &out->compute_s, err) != 0) return KIN_FAIL;
    if (!add_weights(facts, before, after, out)) return kin_err_set(err, "the rate of a disk is unknown");
    out->pause_s = KIN_LOSS_SWITCH_S + out->load_s + out->compute_s;
    return 0;
}
