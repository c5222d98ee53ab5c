#!/bin/sh
# Makes ../demo.gguf and ../demo-draft.gguf from nothing: stories and conversations, vocabularies, training, quantization, check.
#
#   make.sh [BUILD-FOLDER]        default ./build/demo
#
# Takes one and a half to two hours on two free cores with AVX-512 bfloat16 instructions (several times that without) and
# 1.5 GB of memory. Needs Debian's python3-torch and python3-numpy. STEPS=100 makes quick bad ones, OUT=FOLDER writes them
# elsewhere.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=${1:-build/demo}
python=${PYTHON:-/usr/bin/python3}
out=${OUT:-$here/..}

"$python" -c 'import numpy, torch' 2>/dev/null || {
    echo "make.sh: $python has no numpy or torch: apt-get install python3-torch python3-numpy" >&2
    exit 2
}
float32=--float32
if grep -qw avx512_bf16 /proc/cpuinfo 2>/dev/null; then
    export ATEN_CPU_CAPABILITY=avx512       # Debian's torch does not choose it by itself
    float32=
fi
train() { nice -n 19 "$python" "$here/train.py" $float32 "$@"; }
convert() { # FOLDER NAME FILE
    "$python" "$here/convert.py" --weights "$1/model.npz" --config "$1/config.json" --vocab "$build/vocab.json" --name "$2" --out "$3"
}
mkdir -p "$build"

# It learns to tell stories,
"$python" "$here/stories.py" --n 20000 --seed 9 >"$build/stories.txt"
"$python" "$here/bpe.py" train "$build/stories.txt" "$build/vocab-stories.json" --size 1280
train --vocab "$build/vocab-stories.json" --out "$build/stories" --steps "${STEPS:-3000}" --row 256 --rows 16

# then to talk about them, with more tokens,
"$python" "$here/chats.py" --n 6000 --seed 9 >"$build/chats.txt"
"$python" "$here/bpe.py" extend "$build/vocab-stories.json" "$build/stories.txt" "$build/chats.txt" "$build/vocab.json" --size 1408
train --vocab "$build/vocab.json" --out "$build/chats" --steps "${STEPS:-3000}" --chats --seed 2 --lr 1e-3 \
    --start "$build/stories/model.npz" --start-vocab "$build/vocab-stories.json" \
    --keep "$build/stories/model.npz" --keep-vocab "$build/vocab-stories.json"
convert "$build/chats" 'kin demo storyteller' "$build/demo.gguf"

# and a smaller one learns to guess its words.
train --vocab "$build/vocab.json" --out "$build/draft" --steps "${STEPS:-1000}" --chats --seed 3 --lr 1e-3 --layers 2 \
    --teacher "$build/chats/model.npz"
convert "$build/draft" 'kin demo draft' "$build/demo-draft.gguf"

"$python" "$here/check.py" "$build/demo.gguf" --weights "$build/chats/model.npz"
"$python" "$here/chat_check.py" "$build/demo.gguf" --draft "$build/demo-draft.gguf"
cp "$build/demo.gguf" "$build/demo-draft.gguf" "$out"
