#!/bin/sh
# kill -9 at any moment of the first start, while weights are packed and written, and truncated files: the next start gives the right tokens
# and reports what it does, and the one after it has a complete cache.
#
#   test_killed_cache.sh PATH_TO_KIN      (mkmodel is in the same folder)
set -u
kin=$1
mkmodel=$(dirname "$kin")/mkmodel
[ -x "$mkmodel" ] || { echo "test_killed_cache: skipped: there is no $mkmodel" && exit 77; }
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
for name in $(env | sed -n 's/^\(KIN_[A-Z_]*\)=.*/\1/p'); do unset "$name"; done
export KIN_VERBOSE=1
n_failed=0
fail() {
    echo "FAILED: $*"
    tail -n 3 "$dir/log"
    n_failed=$((n_failed + 1))
}
"$mkmodel" --preset 551m-32l --layers 3 --vocab 4000 -o "$dir/model.gguf" 2>"$dir/log" || exit 1
eval_model() { # OPTION... -> ids
    "$kin" eval -m "$dir/model.gguf" -t 2 --tokens "1 5 80 7" --greedy 6 "$@" 2>>"$dir/log"
}
want=$(eval_model --no-cache)
[ "$want" ] || fail 'it does not run at all'
same() { # CLAIM
    got=$(eval_model --cache "$dir/cache")
    [ "$got" = "$want" ] || fail "$1: '$got' instead of '$want'"
}
begun=$(date +%s%N)
same 'a whole first start'
took=$((($(date +%s%N) - begun) / 1000000))

# Several moments of a first start, and of the writing that continues in the background.
for part in 5 15 25 35 45 55 65 75 85 95; do
    rm -rf "$dir/cache"
    "$kin" eval -m "$dir/model.gguf" -t 2 --tokens "1 5" --greedy 200 --cache "$dir/cache" >/dev/null 2>&1 &
    pid=$!
    sleep "$(awk "BEGIN { print $took * $part / 100000 }")"
    kill -9 $pid
    wait $pid 2>/dev/null
    same "killed after $part % of a start"
    same "and again"
done

# A streamed model reads its weights from the file alone.
for part in 20 50 80; do
    rm -rf "$dir/cache"
    "$kin" eval -m "$dir/model.gguf" -t 2 --tokens "1 5" --greedy 200 --cache "$dir/cache" --memory 48M --ctx 256 --batch 16 >/dev/null 2>&1 &
    pid=$!
    sleep "$(awk "BEGIN { print $took * $part / 100000 }")"
    kill -9 $pid
    wait $pid 2>/dev/null
    got=$(eval_model --cache "$dir/cache" --memory 48M --ctx 256 --batch 16)
    [ "$got" = "$want" ] || fail "streamed, killed after $part %: '$got'"
done

same 'a whole cache'
pack=$(ls "$dir"/cache/*.pack)
size=$(wc -c <"$pack")
for keep in 0 10 100 $((size / 3)) $((size - 1)); do
    truncate -s "$keep" "$pack"
    : >"$dir/log"
    same "cut to $keep bytes"
    [ "$keep" = 0 ] || grep -q 'creating it again' "$dir/log" || fail "nothing is said about a file of $keep bytes"
done
[ $n_failed -eq 0 ] && echo "all starts after a kill or a cut gave the same tokens"
exit $((n_failed > 0))
