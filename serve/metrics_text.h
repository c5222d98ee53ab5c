// What a server tells Prometheus: llama-server's names, and histograms of the time to the first token and between tokens.
#pragma once

#include "serve/call.h"

void kin_metrics_put(const struct kin_call_counters *counters, const kin_service_status *status, kin_text_buffer *out);
