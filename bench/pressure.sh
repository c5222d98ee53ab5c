#!/bin/sh
# Measures the memory that running a model takes from the rest of the machine. Needs root (lab/limit makes cgroups).
#
#   sudo LLAMA="chroot /srv/sid" bench/pressure.sh [MODEL.gguf]
#
# 1. Generation without a limit: the fall of MemAvailable, and the bytes of the program's memory that the OS cannot reclaim (anonymous,
#    shared, the kernel's), for kin and for llama.cpp with default settings, both with the same KV cache.
# 2. Weights twenty times larger than their memory, with a prompt that fills the context (the KV cache takes memory only as it fills):
#    the peak of the whole cgroup, page cache included, compared with
#      --memory = weights / 20 + the memory that kin plans for KV cache, buffers and itself
#
# LLAMA: the prefix of llama-completion; LLAMA=none omits llama.cpp.
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

run="$kin run --cache $cache -t $threads --ignore-eos --ctx 512 --batch 128"

# ---- 1. no limit

watch() { # NAME COMMAND...
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
    printf '%-12s %16s %16s %22s\n' "$name" "$(mib "$before - $low")" \
        "$(awk "BEGIN { printf \"%.2f\", 100 * ($before - $low) / $total }")" "$(mib "$held")"
}

# Makes the prepacked cache, and loads it and the model into the page cache.
$run -p x -m "$model" -n 1 --stats >/dev/null 2>"$dir/stats"
cat "$model" "$cache"/*.pack >/dev/null
echo "KV cache, the same in both: $(sed -n 's/.*KV cache \(.*\) for.*/\1/p' "$dir/stats")"
printf '%-12s %16s %16s %22s\n' '' 'MemAvailable fell' 'of MemTotal, %' 'not reclaimable, MiB'
watch kin $run -p x -m "$model" -n 64
if [ "${LLAMA:-}" != none ]; then
    # shellcheck disable=SC2086 # words of a command
    watch llama.cpp ${LLAMA:-} llama-completion -m "$model" -t "$threads" -p x -n 64 -c 512 -ub 128 -no-cnv --ignore-eos
fi

# ---- 2. twenty times the budget

planned() { # SIZE: prints the bytes that kin reserves for weights with this --memory
    $run -p x -m "$deep" -n 1 --memory "$1" --trace "$dir/trace" >/dev/null 2>"$dir/log"
    awk -F, 'NR == 2 { print $2 }' "$dir/trace"
}
weights=$("$kin" bench -m "$deep" --cache "$cache" -t "$threads" --ctx 512 --batch 128 --prompt 1 --gen 1 --reps 1 --json 2>/dev/null |
    field weight_bytes_per_token)
rest=$((536870912 - $(planned 512M)))
memory=$((weights / 20 + rest))
awk 'BEGIN { for (i = 0; i < 123; i++) printf "a b c d e f g h "; print "" }' >"$dir/prompt" # 495 tokens in these models' vocabulary
rm -f "$dir/figures"
set -- --report "$dir/figures" --sample "$dir/samples" --drop "$deep" -- $run -m "$deep" -f "$dir/prompt" -n 8 --memory $memory --stats
for file in "$cache"/*.pack; do [ ! -f "$file" ] || set -- --drop "$file" "$@"; done
"$limit" "$@" >/dev/null 2>"$dir/log" || tail -n 3 "$dir/log" >&2
echo
echo "weights               $(mib "$weights") MiB, of which $(mib "$weights / 20") MiB may be in memory"
echo "--memory              $(mib "$memory") MiB with $(mib "$rest") MiB for the rest"
echo "peak of the cgroup    $(mib "$(figure memory_peak_bytes)") MiB"
echo "  not reclaimable     $(mib "$(awk -F, 'NR > 1 { n = $2 - ($4 - $5); if (n > most) most = n } END { printf "%.0f", most }' "$dir/samples")") MiB"
grep '^kin: ' "$dir/log"
