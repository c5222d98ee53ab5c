// Describes ggml for `kin --version`. Opens no device and starts no driver of a GPU. Any thread.
#pragma once

#include <stddef.h>

const char *kin_ggml_version(void); // "0.27.0"; static

// Writes the names of ggml's back-ends, such as "CPU, vulkan": those built into the library, and the modules that it could load.
void kin_ggml_list_backends(char *text, size_t n);
