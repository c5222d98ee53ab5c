// engine/device.h for this module, which is the only device.
#include "engine/device.h"

#include <string.h>

#include "web/engine/gpu.h"
#include "web/engine/threads.h"

kin_device_options kin_device_options_defaults(void) {
    return (kin_device_options){.repack = true};
}

int kin_devices_open(kin_devices *devices, const kin_device_options *options, kin_err *err) {
    *devices = (kin_devices){.n_threads = options->n_threads ? options->n_threads : 1, .options = *options};
    if (options->gpu) return kin_err_set(err, "a browser lends no GPU");
    devices->cpu.kernels = options->ggml_kernels ? NULL : kin_kernels_choose(err);
    if (!options->ggml_kernels && !devices->cpu.kernels) return KIN_FAIL;
    devices->cpu.packs = options->repack;
    memcpy(devices->cpu.name, "CPU", sizeof "CPU");
    kin_team *team = kin_web_team_set(devices->n_threads);
    if (!kin_gpu_is_on()) devices->cpu.compute.team = team;
    return 0;
}

void kin_devices_close(kin_devices *devices) {
    *devices = (kin_devices){0};
}
