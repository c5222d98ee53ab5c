// What the loss of a device costs: how long texts pause until the others go on (docs/RING.md).
//
//     pause  = switch + load + the first of these that kin can go, and that takes no longer than compute: pages, layers; or
//              compute. Where pages can be had but take longer, the first request's comes before the others
//     switch = KIN_LOSS_SWITCH_S: the device may come back, then the plan without it is told and entered
//     load   = max over devices: bytes of their new layers / rate of the disk (packed beforehand: spares)
//     pages  = sum over devices: bytes of their new layers' pages / rate of the link + requests * rtt,
//              + sum over devices but the head: bytes of all their pages / KIN_LOSS_READ_BYTES_S + requests * hops + TTFT of the
//              tail
//     layers = as pages, but the lost one's: sum over devices: bytes of hidden states at the border / rate of the link, where
//              another one passed them on, + computing its lost layers; and the request that found nothing
//     compute = TTFT of all tokens
//     fetch  = max(max over devices: bytes / rate of the head's link to it, all bytes / the best of these rates)
//
// Pages come from the device that had the layer, or, of the lost one's layers, from its buddy: the next member of the ring that
// keeps pages, the head if there is none. Each member has its pages fetched when a request for some of them comes round the
// ring, one after the other: so they are a sum. The first request is for KIN_LOSS_FIRST_PAGES, others are for twice as many as
// there are by then, at most KIN_LOSS_REQUEST_PAGES; if one takes longer than computing does, the rest is computed: the lost
// layers alone, from the hidden states that the device before them has logged, or all. The tail, what is behind the last full
// page, is computed in chunks, as a prompt is. A member reads and opens the pages of all its layers, also where it had them
// before: the KV caches of a ring begin empty. The head does so while it waits for the others.
//
// Plain functions.
#pragma once

#include "pure/plan/plan.h"

enum {
    KIN_LOSS_PAGE_TOKENS = 64, // KIN_KV_CELLS
    KIN_LOSS_FIRST_PAGES = 2,
    KIN_LOSS_REQUEST_PAGES = 8, // KIN_PAGES_MAX
};

static const double KIN_LOSS_SILENCE_S =
    1.5; // until a device is noticed that says nothing; a connection that ends is noticed at once
static const double KIN_LOSS_READ_BYTES_S = 1.3e9; // from memory: 1.0 and 1.8 measured on one core of an EPYC (Zen 4)
static const double KIN_LOSS_SWITCH_S = 0.4; // 0.3 s for it to come back (membership.h), 0.03 to 0.1 s measured for another plan

typedef enum kin_loss_way {
    KIN_LOSS_COMPUTED,
    KIN_LOSS_PAGES,
    KIN_LOSS_LAYERS, // pages of the other devices' layers, and the lost layers computed
} kin_loss_way;

// Seconds.
typedef struct kin_loss {
    double pause_s;   // where the connection ends, the weights have been fetched beforehand, and kin goes its way
    double fetch_s;   // more, where they have not
    double load_s;    // part of the pause
    double pages_s;   // the text's keys and values from pages; 0: nobody has them
    double layers_s;  // from pages but for the lost one's layers, which are computed; 0: that cannot be, or is not looked at
    double compute_s; // all of its tokens again
    kin_loss_way way; // that kin goes
    int buddy;        // the device that has copies of the lost one's pages; of KIN_LOSS_PAGES
    int n_computed;   // tokens that this way computes again in all layers
} kin_loss;

// A text of work.n_cached tokens is being written when `device`, not the head, leaves `plan`; the others go on with `without`,
// which gives it no layers. Fails where kin_latency_pass or kin_prompt_predict does, where one of these plans does not fit the
// facts, or where the rate of a disk that is to be read is not known.
int kin_loss_predict(const kin_facts *facts, const kin_plan *plan, const kin_plan *without, int device, kin_loss *out,
                     kin_err *err);
