#!/bin/sh
# Truncates a model file, or a file of prepacked weights, while it is in use: kin names it in an error message, and no signal ends kin.
#
#   test_cut.sh PATH_TO_KIN      (mkmodel is in the same folder)
set -u
# shellcheck source=tests/checks.sh
. "$(dirname "$0")/checks.sh"

# cut NAME FILE OPTION...: runs a prompt, truncates FILE, then runs another prompt.
cut() {
    claim=$1 file=$2
    shift 2
    : >"$out"
    rm -f "$dir/prompts"
    mkfifo "$dir/prompts"
    "$kin" run --lines -m "$dir/m.gguf" -n 4 --ignore-eos "$@" <"$dir/prompts" >"$out" 2>"$err" &
    pid=$!
    exec 3>"$dir/prompts"
    echo 'a b c' >&3
    n_waits=0
    while [ ! -s "$out" ] && [ $n_waits -lt 480 ]; do # until there is output
        sleep 0.5
        n_waits=$((n_waits + 1))
    done
    for path in $file; do truncate -s 4096 "$path"; done
    (echo 'd e f' >&3) 2>"$dir/closed" # in a subshell, because kin may have ended
    exec 3>&-
    wait $pid
    got=$?
    n_checks=$((n_checks + 1))
    [ $got -le 1 ] || fail "status $got" # a failed read fails only its prompt; a failed mapping ends the run
    says "$err" "$(basename "$path"): "
}

"$mkmodel" --preset tiny --layers 2 --vocab 300 --type f16 -o "$dir/m.gguf" >/dev/null || exit 1
cut 'a model that is cut while it is mapped is named' "$dir/m.gguf"

"$mkmodel" --preset 551m-32l --layers 3 --vocab 4000 -o "$dir/m.gguf" >/dev/null 2>&1 || exit 1
status 0 "$kin" run -m "$dir/m.gguf" -p 'a' -n 1
if ls "$dir"/cache/kin/*.pack >/dev/null 2>&1; then
    cut 'prepacked weights that are cut while they are mapped are named' "$dir/cache/kin/*.pack"
    rm -f "$dir"/cache/kin/*
    status 0 "$kin" run -m "$dir/m.gguf" -p 'a' -n 1 --memory 45M --ctx 128 --batch 16
    cut 'and while they are streamed' "$dir/cache/kin/*.pack" --memory 45M --ctx 128 --batch 16
fi
tally
