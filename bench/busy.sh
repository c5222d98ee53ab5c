#!/bin/sh
# Measures what other busy programs cost: kin and llama.cpp beside endless loops that compute, alternating.
#
#   LLAMA="chroot /srv/sid" bench/busy.sh [ROUNDS] [MODEL.gguf] [LOOPS...]
#
# LOOPS: the numbers of loops (default: 0 1 2). KIN, LLAMA, THREADS, BUILD and the default model are those of compare.sh; LLAMA=none leaves
# llama.cpp out. OTHER: another kin to compare, for example an older one. Prints tokens/s of each round, then the medians and what
# remains of the rate without loops.
set -eu
rounds=${1:-5}
build=${BUILD:-build}
model=${2:-$build/bench/1b.gguf}
[ $# -lt 2 ] || shift
[ $# -lt 1 ] || shift
loops=${*:-0 1 2}
threads=${THREADS:-2}
kin=${KIN:-$build/kin}
mkdir -p "$build/bench"
[ -f "$model" ] || "$build/mkmodel" --preset 1b -o "$model" >&2

field() { sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p"; }
median() { sort -n | awk '{v[NR]=$1} END{print NR % 2 ? v[(NR+1)/2] : (v[NR/2] + v[NR/2+1]) / 2}'; }

# shellcheck disable=SC2086 # words of a command
kin_bench() { # KIN KIND: tokens/s
    case $2 in
    prompt) $1 bench -m "$model" -t "$threads" --cache "$build/bench/cache" --prompt 512 --gen 1 --reps 1 --json | field prompt_tokens_per_s ;;
    generate) $1 bench -m "$model" -t "$threads" --cache "$build/bench/cache" --prompt 1 --gen 48 --reps 1 --json | field tokens_per_s ;;
    esac
}
# shellcheck disable=SC2086 # words of a command
llama_bench() { # KIND: tokens/s
    case $1 in
    prompt) set -- -p 512 -n 0 ;;
    generate) set -- -p 0 -n 48 ;;
    esac
    $LLAMA llama-bench -m "$model" -t "$threads" "$@" -r 1 -o csv 2>/dev/null | tr -d '"' |
        awk -F, 'NR==1{for(i=1;i<=NF;i++)if($i=="avg_ts")c=i} NR>1{print $c}'
}
measure() { # PROGRAM KIND
    case $1 in
    kin) kin_bench "$kin" "$2" ;;
    other) kin_bench "$OTHER" "$2" ;;
    llama.cpp) llama_bench "$2" ;;
    esac
}

dir=$(mktemp -d)
pids=
# shellcheck disable=SC2086 # process ids
stop_loops() {
    [ -z "$pids" ] || kill $pids
    pids=
}
trap 'stop_loops; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
programs=kin
[ -z "${OTHER:-}" ] || programs="$programs other"
[ "${LLAMA:-}" = none ] || programs="$programs llama.cpp"
LLAMA=${LLAMA:-}
kin_bench "$kin" generate >/dev/null # creates the prepacked cache

printf '%-6s %-6s %-9s %-10s %9s\n' round loops kind program tokens/s
for round in $(seq "$rounds"); do
    for n in $loops; do
        for kind in generate prompt; do
            for program in $programs; do
                for i in $(seq "$n"); do
                    sh -c 'while :; do :; done' &
                    pids="$pids $!"
                done
                rate=$(measure $program $kind)
                stop_loops
                echo "$rate" >>"$dir/$program.$kind.$n"
                printf '%-6s %-6s %-9s %-10s %9.2f\n' "$round" "$n" $kind $program "$rate"
            done
        done
    done
done
echo
printf '%-9s %-10s %6s %9s %7s\n' kind program loops tokens/s remains
for kind in generate prompt; do
    for program in $programs; do
        quiet=
        for n in $loops; do
            rate=$(median <"$dir/$program.$kind.$n")
            : "${quiet:=$rate}"
            printf '%-9s %-10s %6s %9.2f %7.2f\n' $kind $program "$n" "$rate" "$(awk "BEGIN{print $rate/$quiet}")"
        done
    done
done
