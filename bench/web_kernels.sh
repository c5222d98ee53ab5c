#!/bin/sh
# Measures matrix-vector products (GEMV) natively and in headless Chromium, alternating. Prints CSV: the best of all turns in GB/s of
# weights.
#
#   bench/web_kernels.sh [MB [TURNS]]     default: 256 MB of weights, 3 turns; after `cmake --build build`
#
# With few MB, such as 0.7, the weights stay in the processor's caches, so the figure shows only the cost of threads and instructions.
set -eu
cd "$(dirname "$0")/.."
mb=${1:-256} turns=${2:-3}
bytes=$(awk -v mb="$mb" 'BEGIN { printf "%d", mb * 1e6 }')
all=$(mktemp)
trap 'rm -f "$all"' EXIT
in_chromium() { # UNIT THREADS BACKEND NAME
    RATES="bytes=$bytes&backend=$3" node tests/web/chromium.mjs build/web "$1" "$2" 2>&1 | awk -v unit="$4" -v threads="$2" 'NF == 2 && $2 > 0 { print unit, threads, $1, $2 }'
}
for _ in $(seq "$turns"); do
    for threads in 1 2; do
        for type in Q4_K Q5_K Q6_K Q8_0 Q4_0 F16; do
            build/kernels --type $type --rows 1 --threads $threads --mb "$mb" --rounds 5 | awk -v threads=$threads '{ print "native", threads, $1, $8 }'
        done
        in_chromium relaxed $threads 0 relaxed
    done
    in_chromium simd128 1 0 simd128
    in_chromium simd128 1 1 scalar
done >"$all"
echo unit,threads,type,gb_s
awk '{ k = $1 "," $2 "," $3; if ($4 > best[k]) best[k] = $4 } END { for (k in best) print k "," best[k] }' "$all" | sort -t, -k3,3 -k1,1 -k2,2
