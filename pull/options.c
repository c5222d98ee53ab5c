#include "pull/options.h"

#include <stdlib.h>

kin_pull_options kin_pull_options_defaults(void) {
    return (kin_pull_options){.models_dir = getenv("KIN_MODELS"),
                              .hf_endpoint = getenv("HF_ENDPOINT"),
                              .hf_token = getenv("HF_TOKEN"),
                              .ollama_endpoint = getenv("KIN_OLLAMA_REGISTRY"),
                              .n_connections = KIN_DOWNLOAD_CONNECTIONS,
                              .patience_s = KIN_DOWNLOAD_PATIENCE_S};
}
