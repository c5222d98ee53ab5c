#!/bin/sh
# What running a model takes from the rest of the machine. Root (lab/limit makes cgroups).
#
#   sudo LLAMA="llama-peer run" bench/pressure.sh [MODEL.gguf]
#
# 1. Memory pressure while generating, with no limit: by how much MemAvailable falls, and how much of the program's memory the OS
#    could not take back (anonymous, shared, the kernel's), for kin and for llama.cpp with its defaults; KV cache taken off.
# 2. A model twenty times larger than the memory its weights may have: peak of the whole cgroup, page cache included, against
#      --memory = weights / 20 + KV cache and buffers as kin plans them
#
# LLAMA: what to put before llama-bench; LLAMA=none leaves it out.
set -eu
build=${BUILD:-build}
model=${1:-$build/bench/1b.gguf}
deep=$build/bench/1b-64-layers.gguf
threads=${THREADS:-2}
cache=$build/bench/cache
kin=$build/kin
limit=${0%/*}/../lab/limit
[ "$(id -u)" = 0 ] || { echo "pressure: needs root" >&2; exit 77; }

mkdir -p "$build/bench"
[ -f "$model" ] || "$build/mkmodel" --preset 1b -o "$model" >&2
[ -f "$deep" ] || "$build/mkmodel" --preset 1b --layers 64 -o "$deep" >&2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

figure() { sed -n "s/^$1=//p" "$dir/figures"; }
field() { sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p"; }
mib() { awk "BEGIN { printf \"%.1f\", ($*) / 1048576 }"; }
available() { awk '/^MemAvailable:/ { printf "%.0f\n", $2 * 1024 }' /proc/meminfo; }
total=$(awk '/^MemTotal:/ { printf "%.0f\n", $2 * 1024 }' /proc/meminfo)
run() { "$kin" run -m "$1" --cache "$cache" -t "$threads" -p x --no-echo --ignore-eos --ctx 512 "$@"; }

# ---- 1. no limit

# NAME COMMAND...: least MemAvailable while it runs, from what it was before; most bytes that cannot be taken back
watch() {
    name=$1
    shift
    rm -f "$dir/figures" "$dir/low"
    before=$(available)
    (while :; do available; sleep 0.1; done >"$dir/low") &
    watcher=$!
    "$limit" --report "$dir/figures" --sample "$dir/samples" -- "$@" >/dev/null 2>"$dir/log" ||
        { echo "pressure: failed: $*" >&2; tail -n 3 "$dir/log" >&2; }
    kill $watcher
    low=$(sort -n "$dir/low" | head -n 1)
    held=$(awk -F, 'NR > 1 { n = $2 - ($4 - $5); if (n > most) most = n } END { printf "%.0f", most }' "$dir/samples")
    printf '%-12s %16s %14s %20s\n' "$name" "$(mib "$before - $low - $kv")" \
        "$(awk "BEGIN { printf \"%.2f %%\", 100 * ($before - $low - $kv) / $total }")" "$(mib "$held - $kv")"
}

"$kin" run -m "$model" --cache "$cache" -t "$threads" -p x -n 1 --ctx 512 >/dev/null 2>&1 # the prepacked cache is there, all pages in memory
cat "$model" "$cache"/*.pack >/dev/null
kv=0
[ -z "${KV_BYTES:-}" ] || kv=$KV_BYTES
