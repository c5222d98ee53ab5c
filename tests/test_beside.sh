#!/bin/sh
# A small run of bench/beside.mjs: streams beside misbehaving clients (idle connections, disconnects in mid-stream, slow headers, too large
# bodies, garbage, stalled readers). Each text is the same as without them, and the server keeps nothing of them.
#
#   test_beside.sh PATH_TO_KIN
set -u
# shellcheck source=tests/checks.sh
. "$(dirname "$0")/checks.sh"
# shellcheck source=tests/serving.sh
. "$(dirname "$0")/serving.sh"
command -v node >/dev/null || { echo 'skipped: no node' && exit 77; }

claim='streams are what they are alone, whoever comes beside them'
serve --ctx 32768 --parallel 16 -m "$(dirname "$0")/../assets/demo.gguf"
status 0 node "$(dirname "$0")/../bench/beside.mjs" --idle 300 --vanish 60 --slow 20 --large 6 --readers 2 --seconds 0.2 "$base"
[ $n_failed -eq 0 ] || { grep '^failed' "$out" || tail -n 20 "$err"; tail -n 5 "$log"; } # the reasons, or the script's own error
says "$out" '60 that vanish'
says_not "$out" '^failed'
stop

tally
