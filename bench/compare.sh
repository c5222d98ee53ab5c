#!/bin/sh
# Compares kin with llama.cpp on this machine, alternating: prompt speed, generation speed, time from start to first token.
#
#   LLAMA="chroot /srv/sid" bench/compare.sh [ROUNDS] [MODEL.gguf]
#
# KIN: the command that runs kin (default: build/kin). With kin copied beside llama-bench, KIN="chroot /srv/sid kin" compares both with
# the same build of ggml: Debian's releases compile it with different compilers.
# LLAMA: the prefix of llama-bench and llama-completion (default: none, they are on the PATH). The default model has random weights in
# the shape of Llama 3.2 1B, Q4_K_M. Prints each round and the medians; RATIO is kin over llama.cpp.
set -eu
rounds=${1:-7}
build=${BUILD:-build}
model=${2:-$build/bench/1b.gguf}
threads=${THREADS:-2}
cache=$build/bench/cache
kin=${KIN:-$build/kin}
mkdir -p "$build/bench"
[ -f "$model" ] || "$build/mkmodel" --preset 1b -o "$model" >&2

field() { sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p"; }
median() { sort -n | awk '{v[NR]=$1} END{print NR % 2 ? v[(NR+1)/2] : (v[NR/2] + v[NR/2+1]) / 2}'; }
now_ms() { date +%s%N | sed 's/......$//'; }

# shellcheck disable=SC2086 # words of a command
kin_bench() {
    $kin bench -m "$model" -t "$threads" --cache "$cache" --prompt 128 --gen 1 --reps 3 --json | field prompt_tokens_per_s
    $kin bench -m "$model" -t "$threads" --cache "$cache" --prompt 1 --gen 32 --reps 3 --json | field tokens_per_s
}
llama_bench() { # prints llama-bench's average of 3 repetitions
    ${LLAMA:-} llama-bench -m "$model" -t "$threads" -p 128 -n 32 -r 3 -o csv 2>/dev/null | tr -d '"' |
        awk -F, 'NR==1{for(i=1;i<=NF;i++)if($i=="avg_ts")c=i} NR>1{print $c}'
}
start_ms() { # COMMAND...: prints the time from exec to the first byte of output
    rm -f "$dir/fifo"
    mkfifo "$dir/fifo"
    t=$(now_ms)
    "$@" >"$dir/fifo" 2>/dev/null </dev/null &
    head -c 1 <"$dir/fifo" >/dev/null
    echo $(($(now_ms) - t))
    wait $! || true # the closed pipe may have killed the command
}

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT INT TERM
$kin run -m "$model" --cache "$cache" -t "$threads" -p x -n 1 --ctx 512 >/dev/null 2>&1 # makes the prepacked cache
printf '%-6s %22s %22s %26s\n' round 'prompt 128, tokens/s' 'generate 32, tokens/s' 'start to first token, ms'
printf '%-6s %10s %11s %10s %11s %8s %8s %8s\n' '' kin llama.cpp kin llama.cpp 'kin 1st' 'kin 2nd' llama.cpp
for round in $(seq "$rounds"); do
    set -- $(kin_bench) $(llama_bench)
    k_first=$(start_ms $kin run -m "$model" --cache "$dir/cache$round" -t "$threads" -p x -n 1 --ctx 512 --no-echo)
    rm -rf "$dir/cache$round"
    k_next=$(start_ms $kin run -m "$model" --cache "$cache" -t "$threads" -p x -n 1 --ctx 512 --no-echo)
    l_next=$(start_ms ${LLAMA:-} llama-completion -m "$model" -t "$threads" -p x -n 1 -c 512 -no-cnv --no-warmup --no-display-prompt)
    printf '%-6s %10.1f %11.1f %10.2f %11.2f %8d %8d %8d\n' "$round" "$1" "$3" "$2" "$4" "$k_first" "$k_next" "$l_next"
    echo "$1" >>"$dir/kp"; echo "$3" >>"$dir/lp"; echo "$2" >>"$dir/kg"; echo "$4" >>"$dir/lg"
    echo "$k_first" >>"$dir/k1"; echo "$k_next" >>"$dir/k2"; echo "$l_next" >>"$dir/l2"
    awk "BEGIN{print $1/$3}" >>"$dir/rp"; awk "BEGIN{print $2/$4}" >>"$dir/rg"
done
m() { median <"$dir/$1"; }
printf '%-6s %10.1f %11.1f %10.2f %11.2f %8.0f %8.0f %8.0f\n' median "$(m kp)" "$(m lp)" "$(m kg)" "$(m lg)" "$(m k1)" "$(m k2)" "$(m l2)"
printf 'RATIO  prompt %.3f   generate %.3f   (medians of the rounds'\'' ratios)\n' "$(m rp)" "$(m rg)"
