// Metrics for Prometheus: llama-server's names, histograms of the time to the first token and between tokens, and figures of each
// device of the ring.
#pragma once

#include <jansson.h>

#include "serve/call.h"

void kin_metrics_put(const struct kin_call_counters *counters, const kin_service_status *status, kin_text_buffer *out);

// cluster: in the form of observe/status_json.h, borrowed; NULL: not known. Omits figures that a device does not report.
void kin_metrics_put_devices(const json_t *cluster, kin_text_buffer *out);
