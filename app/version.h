// Prints the answer of `kin --version`: the version and the commit, the CPU kernels, ggml's back-ends and the libraries.
#pragma once

void kin_version_print(void);
