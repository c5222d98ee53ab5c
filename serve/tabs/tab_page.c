#include "serve/tabs/tab_page.h"

#include "base/embed.h"

#define HTML "text/html; charset=utf-8"
#define CSS "text/css; charset=utf-8"
#define JS "text/javascript; charset=utf-8"
#define WASM "application/wasm"

// index.html must be the first.
#define FILES(X)                                                                                                                 \
    X(join_index, "page/index.html", HTML)                                                                                       \
    X(join_style, "page/join.css", CSS)                                                                                          \
    X(join_main, "page/join.js", JS)                                                                                             \
    X(join_socket, "page/socket.js", JS)                                                                                         \
    X(join_computer, "page/computer.js", JS)                                                                                     \
    X(join_chunks, "page/chunks.js", JS)                                                                                         \
    X(join_frames, "page/frames.js", JS)                                                                                         \
    X(join_gpu, "gpu.js", JS)                                                                                                    \
    X(join_gpu_worker, "gpu_worker.js", JS)                                                                                      \
    X(join_gpu_kernels, "gpu_kernels.js", JS)                                                                                    \
    X(join_engine, "engine.js", JS)                                                                                              \
    X(join_thread, "engine_thread.js", JS)

#ifdef KIN_WEB_MODULES
#define MODULES(X)                                                                                                               \
    X(module_relaxed, "engine_relaxed.wasm", WASM)                                                                               \
    X(module_relaxed_threads, "engine_relaxed_threads.wasm", WASM)                                                               \
    X(module_simd128, "engine_simd128.wasm", WASM)                                                                               \
    X(module_simd128_threads, "engine_simd128_threads.wasm", WASM)
#else
#define MODULES(X)
#endif

// clang-format off
#define EMBED(id, name, type) KIN_EMBED(kin_webui_##id, KIN_WEB "/" name)
FILES(EMBED)
#define EMBED_MODULE(id, name, type) KIN_EMBED(kin_webui_##id, KIN_WEB_MODULES "/" name ".gz")
MODULES(EMBED_MODULE)
// clang-format on

#define ENTRY(id, name, type) KIN_WEBUI_FILE(id, name, type, false)
#define MODULE_ENTRY(id, name, type) KIN_WEBUI_FILE(id, name, type, true)
static const kin_webui_file files[] = {FILES(ENTRY) MODULES(MODULE_ENTRY)};

#define ONE_MORE(id, name, type) +1
enum { N_FILES = sizeof files / sizeof *files, N_MODULES = 0 MODULES(ONE_MORE) };

#define FOLDER "/join/"

// Scripts may compile WebAssembly; everything else may be loaded, run or requested only from this server.
#define POLICY                                                                                                                   \
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; style-src 'self'; connect-src 'self'; "        \
    "img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'; form-action 'none'"

bool kin_tab_page_has_engine(void) {
    return N_MODULES > 0;
}

const kin_webui_file *kin_tab_page_at(int i) {
    return i >= 0 && i < N_FILES ? &files[i] : NULL;
}

// Isolates the page from other sites, as shared memory between threads requires.
static void reply(kin_http_exchange *x, const kin_webui_file *f) {
    kin_http_add_header(x, "Cross-Origin-Opener-Policy", "same-origin");
    kin_http_add_header(x, "Cross-Origin-Embedder-Policy", "require-corp");
    kin_http_add_header(x, "Cross-Origin-Resource-Policy", "same-origin");
    kin_webui_reply_with(x, POLICY, f);
}

// The page's links are relative to the folder that contains /join, whatever a proxy calls it.
void kin_tab_page_reply(kin_http_exchange *x) {
    kin_str path = kin_http_path(x);
    if (path.at[path.len - 1] != '/') {
        reply(x, kin_tab_page_at(0));
        return;
    }
    kin_http_add_header(x, "Location", "../join");
    kin_http_reply(x, 308, NULL, NULL, 0);
}

void kin_tab_page_reply_file(kin_http_exchange *x) {
    kin_str path = kin_http_path(x);
    const kin_webui_file *f =
        kin_webui_find_in(files, N_FILES, (kin_str){path.at + sizeof FOLDER - 1, path.len - sizeof FOLDER + 1});
    if (f && f != kin_tab_page_at(0)) // index.html's links are relative to the folder above
        reply(x, f);
    else
        kin_http_reply_error(x, 404, "File Not Found");
}
