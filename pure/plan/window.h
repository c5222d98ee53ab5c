// The layers that one device runs: windows of consecutive layers, one per round of the ring, in ascending order.
//
// A standalone machine has one window over all layers. A device of a ring gets each token k times and has up to k windows. The
// last layers of each window may be on the GPU. The first of these may be divided: the GPU has their attention, and the CPU their
// feed-forward blocks with the experts, which take most of the memory and of which a token uses few.
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct kin_window {
    int layer_begin, layer_end; // [layer_begin, layer_end), not empty
    int n_gpu_layers;           // the last n_gpu_layers of them run on the GPU
    int n_cpu_moe;              // the first n_cpu_moe of those are divided
} kin_window;

enum { KIN_MAX_WINDOWS = 256 };

typedef struct kin_windows {
    int n; // 0: no layers at all
    kin_window at[KIN_MAX_WINDOWS];
} kin_windows;

// Windows of a member, and the round of each.
typedef struct kin_member_windows {
    kin_windows windows;
    int rounds[KIN_MAX_WINDOWS];
} kin_member_windows;

// The set of layers whose input comes from another device. Layers from KIN_BORDER_SET_LAYERS on are not recorded; no current
// model has so many.
enum { KIN_BORDER_SET_LAYERS = 256 };

typedef struct kin_border_set {
    uint8_t bits[KIN_BORDER_SET_LAYERS / 8];
} kin_border_set;

static inline void kin_border_set_add(kin_border_set *borders, int il) {
    if (il < KIN_BORDER_SET_LAYERS) borders->bits[il / 8] |= (uint8_t)(1 << il % 8);
}

static inline bool kin_border_set_has(const kin_border_set *borders, int il) {
    return il < KIN_BORDER_SET_LAYERS && (borders->bits[il / 8] >> il % 8 & 1);
}

static inline kin_windows kin_windows_one(int layer_begin, int layer_end, int n_gpu_layers) {
    kin_windows w = {.n = layer_begin < layer_end};
    if (w.n) w.at[0] = (kin_window){layer_begin, layer_end, n_gpu_layers, 0};
    return w;
}

static inline int kin_window_gpu_begin(const kin_window *window) {
    return window->layer_end - window->n_gpu_layers;
}

// Returns the first layer that the GPU has alone.
static inline int kin_window_gpu_whole_begin(const kin_window *window) {
    return kin_window_gpu_begin(window) + window->n_cpu_moe;
}

static inline int kin_windows_n_layers(const kin_windows *w) {
    int n = 0;
    for (int i = 0; i < w->n; i++) n += w->at[i].layer_end - w->at[i].layer_begin;
    return n;
}

static inline int kin_windows_n_gpu_layers(const kin_windows *w) {
    int n = 0;
    for (int i = 0; i < w->n; i++) n += w->at[i].n_gpu_layers;
    return n;
}

static inline int kin_windows_n_cpu_moe(const kin_windows *w) {
    int n = 0;
    for (int i = 0; i < w->n; i++) n += w->at[i].n_cpu_moe;
    return n;
}

// True if the windows are ascending, do not overlap, lie within n_layer layers, and contain their GPU layers, and these the
// divided ones.
static inline bool kin_windows_valid(const kin_windows *w, int n_layer) {
    int at = 0;
    if (w->n < 0 || w->n > KIN_MAX_WINDOWS) return false;
    for (int i = 0; i < w->n; i++) {
        const kin_window *window = &w->at[i];
        if (window->layer_begin < at || window->layer_end <= window->layer_begin || window->layer_end > n_layer) return false;
        if (window->n_gpu_layers < 0 || window->n_gpu_layers > window->layer_end - window->layer_begin) return false;
        if (window->n_cpu_moe < 0 || window->n_cpu_moe > window->n_gpu_layers) return false;
        at = window->layer_end;
    }
    return true;
}
