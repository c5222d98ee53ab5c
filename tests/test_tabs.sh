#!/bin/sh
# A ring with a tab, without a browser (tests/web/tab.mjs): the texts are those of one machine, even if the tab is lost. Also what a tab's
# worker reports when its engine fails (tests/web/computer.mjs), and what it stores of a model (tests/web/chunks.mjs).
#
#   test_tabs.sh PATH_TO_KIN
#
# Skipped without the modules (clang-19, lld-19) or node.
set -u
kin=$1
modules=$(dirname "$kin")/web
if [ ! -f "$modules/engine_simd128.wasm" ] || ! command -v node >/dev/null; then
    echo 'skipped: apt-get install clang-19 lld-19 nodejs'
    exit 77
fi
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
for name in $(env | sed -n 's/^\(KIN_[A-Z_]*\)=.*/\1/p'); do unset "$name"; done
export HOME="$dir" XDG_CACHE_HOME="$dir/cache"
unset XDG_CONFIG_HOME
KIN_PROFILE=$(dirname "$0")/machine.json # so that no head measures this machine, which takes seconds
export KIN_PROFILE
node --no-warnings "$(dirname "$0")/web/chunks.mjs" || exit 1
node --no-warnings "$(dirname "$0")/web/computer.mjs" "$modules" || exit 1
demo=$(dirname "$0")/../assets/demo.gguf
node --no-warnings "$(dirname "$0")/web/tab.mjs" "$kin" "$demo" "$dir" "$modules" || exit 1
node --no-warnings "$(dirname "$0")/web/gpu_tab.mjs" "$kin" "$demo" "$dir/gpu"
code=$?
[ "$code" -eq 77 ] && echo 'skipped: a tab on a GPU, without Chromium' && exit 0
exit "$code"
