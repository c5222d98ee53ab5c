// What `kin --version` prints: the version and the commit, the CPU kernels and ggml's back-ends, the libraries.
#pragma once

void kin_version_print(void);
