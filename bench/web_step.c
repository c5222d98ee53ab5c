// web_step: writes a case for the WebAssembly engine, a prompt and then single tokens, and prints how long the native engine
// takes for it. tests/web/chromium.mjs measures a browser, and tests/web/engine.mjs node: bench/web.sh runs both alternately.
#include <stdio.h>
#include <stdlib.h>

#include "testkit/web_case.h"

enum { EXIT_USAGE = 2, TOKENS_MAX = 1000 };

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static int run(kin_web_case *c, int n_prompt, int n_tokens, kin_err *err) {
    uint64_t ns[TOKENS_MAX], prompt;
    if (kin_web_case_step(c, 0, 0, n_prompt, NULL, 0, &prompt, err) != 0) return KIN_FAIL;
    for (int i = 0; i < n_tokens; i++)
        if (kin_web_case_step(c, 0, n_prompt + i, 1, NULL, 0, &ns[i], err) != 0) return KIN_FAIL;
    qsort(ns, (size_t)n_tokens, sizeof *ns, compare);
    printf("prompt %.1f ms, token %.2f ms at best, %.2f in the median\n", (double)prompt / 1e6, (double)ns[0] / 1e6,
           (double)ns[n_tokens / 2] / 1e6);
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 7) {
        fputs("usage: web_step MODEL LAYERS THREADS PROMPT TOKENS CASE\n", stderr);
        return EXIT_USAGE;
    }
    int n_prompt = atoi(argv[4]), n_tokens = atoi(argv[5]);
    kin_err err;
    kin_web_case *c = NULL;
    const kin_web_case_options o = {.model_path = argv[1],
                                    .n_layers = atoi(argv[2]),
                                    .n_threads = atoi(argv[3]),
                                    .n_ctx = n_prompt + n_tokens,
                                    .n_batch = n_prompt,
                                    .given = fopen(argv[6], "wb")};
    if (!o.given || n_prompt < 1 || n_tokens < 1 || n_tokens > TOKENS_MAX) return EXIT_USAGE;
    int rc = kin_web_case_open(&c, &o, &err);
    if (rc == 0) rc = run(c, n_prompt, n_tokens, &err);
    if (rc != 0) fprintf(stderr, "web_step: %s\n", err.text);
    kin_web_case_close(c);
    fclose(o.given);
    return rc ? 1 : 0;
}
