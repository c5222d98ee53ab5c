#!/bin/sh
# Times layers of a model in the native engine, in node and in headless Chromium, alternating, and compares their results.
#
#   bench/web.sh MODEL [LAYERS [THREADS [TURNS]]]     default: 2 layers, 1 thread, 3 turns; after `cmake --build build`
#
# WAY: the variant of multiplying a row (kernels/kernels.h; default: 3). A tab measures which is the fastest.
set -eu
export WAY=${WAY:-3}
cd "$(dirname "$0")/.."
model=$1 layers=${2:-2} threads=${3:-1} turns=${4:-3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for _ in $(seq "$turns"); do
    printf 'native:   '
    build/web_step "$model" "$layers" "$threads" 32 40 "$work/case"
    for unit in relaxed simd128; do
        printf '%s in node: ' $unit
        node --no-warnings --experimental-wasm-relaxed-simd --no-liftoff tests/web/engine.mjs build/web $unit "$threads" "$model" "$work/case" "$work/$unit" 2>&1
        printf '%s in Chromium: ' $unit
        node tests/web/chromium.mjs build/web $unit "$threads" "$model" "$work/case" "$work/$unit.chromium" 2>&1 | tail -n 1
        cmp "$work/$unit" "$work/$unit.chromium"
    done
    cmp "$work/relaxed" "$work/simd128"
done
