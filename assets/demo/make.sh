#!/bin/sh
# Makes ../demo.gguf from nothing: stories, vocabulary, training, quantization, check.
#
#   make.sh [BUILD-FOLDER]        default ./build/demo
#
# Takes 30 to 60 minutes on two cores with AVX-512 bfloat16 instructions (several hours without) and 1.5 GB of memory.
# Needs Debian's python3-torch and python3-numpy. STEPS=100 makes a quick bad one, OUT=file.gguf writes it elsewhere.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=${1:-build/demo}
python=${PYTHON:-/usr/bin/python3}
out=${OUT:-$here/../demo.gguf}

"$python" -c 'import numpy, torch' 2>/dev/null || {
    echo "make.sh: $python has no numpy or torch: apt-get install python3-torch python3-numpy" >&2
    exit 2
}
float32=--float32
if grep -qw avx512_bf16 /proc/cpuinfo 2>/dev/null; then
    export ATEN_CPU_CAPABILITY=avx512       # Debian's torch does not choose it by itself
    float32=
fi
mkdir -p "$build"
"$python" "$here/stories.py" --n 20000 --seed 9 > "$build/stories.txt"
"$python" "$here/bpe.py" train "$build/stories.txt" "$build/vocab.json" --size 1280
nice -n 19 "$python" "$here/train.py" --vocab "$build/vocab.json" --out "$build" --steps "${STEPS:-3000}" $float32
"$python" "$here/convert.py" --weights "$build/model.npz" --config "$build/config.json" --vocab "$build/vocab.json" \
    --out "$build/demo.gguf"
"$python" "$here/check.py" "$build/demo.gguf" --weights "$build/model.npz"
cp "$build/demo.gguf" "$out"
