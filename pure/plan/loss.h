// The cost of losing a device: how long sequences pause until the other devices go on (docs/RING.md).
//
//     pause  = switch + load + the first of pages and layers that is possible and takes no longer than compute; else compute.
//              If pages are available but take longer than compute, the time of the first page request is added
//     switch = KIN_LOSS_SWITCH_S: waiting for the device to return, then announcing and entering the plan without it
//     load   = max over devices: bytes of their new layers / rate of the disk; they were packed before, for standby plans
//     pages  = sum over devices: bytes of their new layers' pages / rate of the link + requests * rtt,
//              + sum over devices but the head: bytes of all their pages / KIN_LOSS_READ_BYTES_S + requests * hops + TTFT of the
//              tail
//     layers = as pages, without those of the lost device; + sum over devices: bytes of hidden states at the border / rate of
//              the link, if another device passed them on, + computing its lost layers; + the request that found nothing
//     compute = TTFT of all tokens
//     fetch  = max(max over devices: bytes / rate of the head's link to it, all bytes / the best of these rates)
//
// Pages come from the device that had the layer or, for layers of the lost device, from its replica: the next member of the ring
// that keeps pages, or the head if there is none. Each member has its pages fetched when a request for some of them passes it in
// the ring, one after the other, so the times add up. The first request is for KIN_LOSS_FIRST_PAGES; each further request is for
// twice as many as there are by then, at most KIN_LOSS_REQUEST_PAGES. If a request takes longer than computing, the rest is
// computed: only the lost layers, from the hidden states that the device before them has logged, or all layers. The tail after
// the last full page is computed in chunks, like a prompt. A member reads and decrypts the pages of all its layers, even those
// that it had before, because the KV caches of a ring begin empty. The head does so while it waits for the others.
//
// Recurrent and windowed layers have states at checkpoints instead of pages (docs/MODELS.md): pages count up to the last
// checkpoint, whose states come with them, and the tail is what follows it: the tokens since the last multiple of the gap, or
// since the end of the prompt, if the reply has KIN_LOSS_REPLY_TOKENS. Their hidden states are not logged.
//
// Pure functions.
#pragma once

#include "pure/plan/plan.h"

enum {
    KIN_LOSS_PAGE_TOKENS = 64, // KIN_KV_CELLS
    KIN_LOSS_FIRST_PAGES = 2,
    KIN_LOSS_REQUEST_PAGES = 8, // KIN_PAGES_MAX
    KIN_LOSS_REPLY_TOKENS = 256,
};

static const double KIN_LOSS_SILENCE_S = 1.5;      // until an unresponsive device is noticed (a connection that ends: at once)
static const double KIN_LOSS_READ_BYTES_S = 1.3e9; // from memory: 1.0e9 and 1.8e9 measured on one core of an EPYC (Zen 4)
static const double KIN_LOSS_SWITCH_S = 0.4; // 0.3 s for it to come back (membership.h); entering a plan measured 0.03 to 0.1 s

typedef enum kin_loss_recovery {
    KIN_LOSS_COMPUTED,
    KIN_LOSS_PAGES,
    KIN_LOSS_LAYERS, // the other devices' layers come from pages, the lost layers are computed
} kin_loss_recovery;

// Seconds.
typedef struct kin_loss {
    double pause_s;             // if the connection ends, the weights are already there, and kin uses the `recovery` below
    double fetch_s;             // additional time if the weights are not there yet
    double load_s;              // part of the pause
    double pages_s;             // getting the sequence's keys and values from pages; 0: no device has them
    double layers_s;            // the same, but the lost device's layers are computed; 0: not possible, or not considered
    double compute_s;           // computing all tokens again
    kin_loss_recovery recovery; // the one that kin uses
    int replica;                // the replica: the device that has copies of the lost device's pages; for KIN_LOSS_PAGES
    int n_computed;             // tokens that are computed again in all layers
} kin_loss;

// Predicts the loss of `device` (not the head) from `plan` while a sequence of work.n_cached tokens is being generated. The
// others go on with `without`, which gives the device no layers. Fails if kin_latency_pass or kin_prompt_predict fails, if one of
// the plans does not match the facts, or if the rate of a disk that must be read is not known.
int kin_loss_predict(const kin_facts *facts, const kin_plan *plan, const kin_plan *without, int device, kin_loss *out,
                     kin_err *err);
