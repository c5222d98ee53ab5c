#!/bin/sh
# The page of kin serve in Chromium (tests/browser): chats, appearance, the cluster view of one machine and of three real processes.
#
#   test_browser.sh PATH_TO_KIN
#
# Skipped without Chromium (apt-get install chromium) or its driver (npm install --prefix tests/browser).
set -u
kin=$1
tests=$(dirname "$0")/browser
browser=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome)}
if [ -z "$browser" ] || ! command -v node >/dev/null || [ ! -d "$tests/node_modules" ]; then
    echo 'skipped: apt-get install chromium && npm install --prefix tests/browser'
    exit 77
fi
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
for name in $(env | sed -n 's/^\(KIN_[A-Z_]*\)=.*/\1/p'); do unset "$name"; done
export TMPDIR="$dir" HOME="$dir" XDG_CACHE_HOME="$dir/cache" CHROMIUM="$browser"
unset XDG_CONFIG_HOME
# The demo model with a longer context, as the conversations need.
LC_ALL=C sed 's/\(llama.context_length....\)\x00\x02/\1\x00\x40/' "$(dirname "$0")/../assets/demo.gguf" >"$dir/demo.gguf"
"$(dirname "$kin")/mkmodel" --preset tiny --type f16 --heads 8 --heads-kv 4 --layers 8 -o "$dir/pair.gguf" 2>/dev/null || exit 1
node "$tests/run.mjs" "$kin" "$dir/demo.gguf" "$dir"
