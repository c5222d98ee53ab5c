#!/bin/sh
# Prints what kin plan predicts for published mixtures of experts on machines as people have them, as a table in Markdown
# (docs/EXPERTS.md has it). The models are hollow (mkmodel --hollow): headers in the published shapes, without weights.
#
#   bench/published.sh
#
# BUILD: the folder with kin and mkmodel (default: build). CTX: tokens of the context (default: 4096). Rates of the machines are
# 80 % of the memory's bandwidth in data sheets. Needs jq.
set -eu
build=${BUILD:-build} ctx=${CTX:-4096}
here=$(dirname "$0")
dir=$(mktemp -d "$build/published.XXXXXX")
trap 'rm -rf "$dir"' EXIT INT TERM

# family NAME FAMILY TYPE VOCAB KEY=VALUE...: a model of a text in bench/families with other values.
family() {
    _name=$1 _family=$2 _type=$3 _vocab=$4
    shift 4
    cp "$here/families/$_family.txt" "$dir/$_name.txt"
    for _pair; do sed -i "s/^${_pair%%=*} .*/${_pair%%=*} ${_pair#*=}/" "$dir/$_name.txt"; done
    "$build/mkmodel" --hollow --keys "$dir/$_name.txt" --type "$_type" --vocab "$_vocab" -o "$dir/$_name.gguf" >"$dir/log"
}
qwen3() { # NAME LAYERS EMBD HEADS FF_EXP
    "$build/mkmodel" --hollow --arch qwen3moe --layers "$2" --embd "$3" --heads "$4" --heads-kv 4 --head-dim 128 --experts 128 --experts-used 8 \
        --ff-exp "$5" --vocab 151936 --type q4_k_m -o "$dir/$1.gguf" >"$dir/log"
}
repeat() { # N TEXT: "TEXT, TEXT, ..."
    seq "$1" | sed "s/.*/$2/" | paste -s -d , | sed 's/,/, /g'
}
# machine NAME MEMORY CPU DISK [VRAM GPU]: rates in GB/s
machine() {
    jq -n --arg name "$1" --arg memory "$2" --argjson cpu "$3" --argjson disk "$4" --arg vram "${5:-}" --argjson gpu "${6:-0}" '{
        devices: [{name: $name, memory_bytes: $memory, disk_bytes_per_s: ($disk * 1e9), disk_random_bytes_per_s: ($disk * 0.5e9), window_s: 1e-5,
            cpu: {token_bytes_per_s: ($cpu * 1e9), prompt_flop_per_s: ($cpu * 12e9), read_bytes_per_s: ($cpu * 1e9), prompt_read_bytes_per_s: ($cpu * 1e9),
                kv_bytes_per_s: ($cpu * 1e9), kv_copy_s: 1e-6, op_s: 3e-6}}
            + (if $vram == "" then {} else {gpu: {memory_bytes: $vram, token_bytes_per_s: ($gpu * 1e9), prompt_flop_per_s: ($gpu * 30e9),
                read_bytes_per_s: ($gpu * 1e9), kv_copy_s: 1e-6, op_s: 3e-6, to_s: 15e-6, from_s: 15e-6, copy_bytes_per_s: 12e9}} end)]}' >"$dir/$1.json"
}
predict() { # MODEL MACHINE TITLE: prints a line of the table
    "$build/kin" plan --json -m "$dir/$1.gguf" --what-if "$dir/$2.json" --ctx "$ctx" >"$dir/plan.json" 2>"$dir/said" || {
        echo "| $1 | $3 | $(sed 's/^kin: //' "$dir/said" | tail -n 1) | | | |"
        return
    }
    jq -r --arg model "$1" --arg machine "$3" '.devices[0] as $d | [
        "", $model, $machine, (if $d.gpu_layers > 0 then "\($d.gpu_layers) (\($d.cpu_moe_layers))" else "" end),
        ($d.memory_bytes / 1073741824 * 10 | round / 10 | tostring) + " GiB", (1000 / .tpot_ms * 100 | round / 100), (.ttft_ms / 1000 * 10 | round / 10), ""]
        | map(tostring) | join(" | ") | ltrimstr(" ")' "$dir/plan.json"
}

machine pc32 28G 70 7
machine pc64 60G 70 7
machine pc64-8 60G 70 7 7.4G 400
machine pc64-24 60G 70 7 23G 850
machine ws128 120G 300 7
qwen3 qwen3-30b-a3b 48 2048 32 768
qwen3 qwen3-235b-a22b 94 4096 64 1536
family gpt-oss-120b gpt-oss mxfp4 201088 block_count=36 expert_count=128
family glm-4.5-air glm4moe q4_k_m 151552 block_count=46 expert_count=128
family minimax-m2 minimax-m2 q4_k_m 200064 block_count=62 expert_count=256
family deepseek-v4-flash deepseek4 q4_k_m 129280 block_count=43 expert_count=256 hash_layer_count=3 \
    "attention.compress_ratios=[0, 0, $(repeat 20 '4, 128'), 4]" "swiglu_clamp_exp=[$(repeat 43 10.0)]"
family glm-5.2 glm-dsa q4_k_m 154880 block_count=78 expert_count=256 leading_dense_block_count=3

echo '| model | machine | on the GPU (experts on the CPU) | memory | tokens/s | s for a prompt of 512 |'
echo '|---|---|---|---|---|---|'
for model in qwen3-30b-a3b gpt-oss-120b glm-4.5-air minimax-m2 qwen3-235b-a22b deepseek-v4-flash glm-5.2; do
    predict "$model" pc32 '32 GB'
    predict "$model" pc64 '64 GB'
    predict "$model" pc64-8 '64 GB, GPU of 8 GB'
    predict "$model" pc64-24 '64 GB, GPU of 24 GB'
    predict "$model" ws128 '128 GB, 375 GB/s'
done
