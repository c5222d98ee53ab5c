#include "serve/tabs/tab_limit.h"

static const double FLOP_PER_BYTE = 4; // per row: two for each weight of four bits

static double least(const double *rates) {
    double least = rates[0];
    for (int q = 1; q < KIN_N_QUANT; q++)
        if (rates[q] < least) least = rates[q];
    return least;
}

uint64_t kin_tab_step_limit_ms(const kin_device_facts *of, uint64_t weights_bytes, uint32_t n_tokens) {
    double bytes = (double)weights_bytes;
    double step_s = bytes / least(of->cpu.token_bytes_s) + n_tokens * FLOP_PER_BYTE * bytes / least(of->cpu.prompt_flop_s);
    double ms = (of->os == KIN_OS_BROWSER_GPU ? KIN_TAB_LEAST_GPU_MS : KIN_TAB_LEAST_MS) + 1e3 * KIN_TAB_TIMES * step_s;
    return ms < KIN_TAB_MOST_MS ? (uint64_t)ms : KIN_TAB_MOST_MS;
}
