#!/bin/sh
# Compares kin with llama.cpp on this machine, alternating: prompts of several lengths, and generation at several context depths.
#
#   LLAMA="chroot /srv/sid" bench/depths.sh [ROUNDS] [MODEL.gguf] [CASE...]
#
# CASE: p128 is a prompt of 128 tokens, g2048 is generation after 2048 tokens (default: p128 p512 p2048 p4096 g1 g2048 g4096 g16384).
# KIN, LLAMA, THREADS, BUILD and the default model are as in compare.sh. Prints tokens/s of each round and the median of the rounds'
# ratios.
set -eu
rounds=${1:-5}
build=${BUILD:-build}
model=${2:-$build/bench/1b.gguf}
[ $# -lt 2 ] || shift
[ $# -lt 1 ] || shift
cases=${*:-p128 p512 p2048 p4096 g1 g2048 g4096 g16384}
threads=${THREADS:-2}
kin=${KIN:-$build/kin}
mkdir -p "$build/bench"
[ -f "$model" ] || "$build/mkmodel" --preset 1b -o "$model" >&2

field() { sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p"; }
median() { sort -n | awk '{v[NR]=$1} END{print NR % 2 ? v[(NR+1)/2] : (v[NR/2] + v[NR/2+1]) / 2}'; }

# shellcheck disable=SC2086 # words of a command
kin_bench() { # CASE: tokens/s
    n=${1#?}
    case $1 in
    p*) $kin bench -m "$model" -t "$threads" --cache "$build/bench/cache" --prompt "$n" --gen 1 --reps 1 --json | field prompt_tokens_per_s ;;
    g*) $kin bench -m "$model" -t "$threads" --cache "$build/bench/cache" --prompt "$n" --gen 32 --reps 1 --json | field tokens_per_s ;;
    esac
}
llama_bench() { # CASE: tokens/s
    n=${1#?}
    case $1 in
    p*) set -- -p "$n" -n 0 ;;
    g*) set -- -p 0 -n 32 -d "$n" ;;
    esac
    ${LLAMA:-} llama-bench -m "$model" -t "$threads" "$@" -r 1 -o csv 2>/dev/null | tr -d '"' |
        awk -F, 'NR==1{for(i=1;i<=NF;i++)if($i=="avg_ts")c=i} NR>1{print $c}'
}

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT INT TERM
kin_bench p16 >/dev/null # makes the prepacked cache
printf '%-8s %6s %12s %12s %8s\n' case round kin llama.cpp ratio
for round in $(seq "$rounds"); do
    for case in $cases; do
        k=$(kin_bench "$case")
        l=$(llama_bench "$case")
        ratio=$(awk "BEGIN{printf \"%.3f\", $k/$l}")
        printf '%-8s %6s %12.2f %12.2f %8s\n' "$case" "$round" "$k" "$l" "$ratio"
        echo "$ratio" >>"$dir/$case"
    done
done
for case in $cases; do printf '%-8s %6s %34s\n' "$case" median "$(median <"$dir/$case")"; done
