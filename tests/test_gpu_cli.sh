#!/bin/sh
# kin on a GPU as a user meets it. A software GPU (Mesa's llvmpipe) takes some seconds per start.
#
#   test_gpu_cli.sh PATH_TO_KIN      (mkmodel is in the same folder)
set -u
# shellcheck source=tests/checks.sh
. "$(dirname "$0")/checks.sh"

on_gpu() { GGML_VK_VISIBLE_DEVICES=0 "$@"; }
rates() { # CPU GPU: a profile with these rates
    printf '{"name": "this", "memory_bytes": "1G", "disk_bytes_per_s": 1e9, "disk_random_bytes_per_s": 1e9, "window_s": 1e-5,
        "cpu": {"token_bytes_per_s": %s, "prompt_flop_per_s": 1e11, "read_bytes_per_s": 1e10, "kv_copy_s": 1e-6, "op_s": 1e-6},
        "gpu": {"memory_bytes": "1G", "token_bytes_per_s": %s, "prompt_flop_per_s": 1e11, "read_bytes_per_s": 1e10, "kv_copy_s": 1e-6,
                "op_s": 1e-6, "to_s": 1e-5, "from_s": 1e-5, "copy_bytes_per_s": 1e10}}' "$1" "$2" >"$dir/rates.json"
}
if ! on_gpu "$kin" run -p Once -n 1 --gpu-layers all >"$out" 2>&1; then
    echo 'no GPU takes the model' && exit 77
fi

claim='layers are on the GPU where they are faster there, and on the CPU where they are not'
rates 1e8 1e11
status 0 on_gpu "$kin" run -p Once -n 2 --stats --gpu-layers auto --profile "$dir/rates.json"
says_not "$err" ' 0 B on the GPU'
status 0 on_gpu "$kin" run -p Once -n 2 --stats --gpu-layers 0 --profile "$dir/rates.json"
says "$err" ' 0 B on the GPU'
status 0 on_gpu "$kin" run -p Once -n 2 --stats --profile "$dir/rates.json" # the GPU was not requested, and the model is small
says "$err" ' 0 B on the GPU'
# A GPU that was chosen automatically and then has too little memory is no error, because the user did not request it.
status 0 on_gpu env GGML_VK_FORCE_MAX_ALLOCATION_SIZE=1000000 GGML_VK_FORCE_MAX_BUFFER_SIZE=1000000 \
    "$kin" run -p Once -n 2 --stats --gpu-layers auto --profile "$dir/rates.json"
says "$err" 'the GPU is not used: '
says "$err" ' 0 B on the GPU'
rates 1e11 1e8
status 0 on_gpu "$kin" run -p Once -n 2 --stats --gpu-layers auto --profile "$dir/rates.json"
says "$err" ' 0 B on the GPU'

claim='a mixture of experts has its attention on the GPU and its experts on the CPU, if asked to, or if that is fastest'
moe=$dir/moe.gguf
"$mkmodel" --arch qwen3moe --layers 4 --embd 256 --heads 4 --heads-kv 2 --ff-exp 128 --experts 16 --experts-used 4 --type q8_0 \
    --vocab 512 --endless --seed 3 -o "$moe" >"$out" 2>&1
on_the_gpu() { sed -n 's/.* + \(.*\) on the GPU; KV cache.*/\1/p' "$err"; }
status 0 on_gpu "$kin" run -m "$moe" -p Once -n 8 --stats --gpu-layers all
whole=$(on_the_gpu)
status 0 on_gpu "$kin" run -m "$moe" -p Once -n 8 --stats --cpu-moe
divided=$(on_the_gpu)
status 0 on_gpu "$kin" run -m "$moe" -p Once -n 8 --stats --gpu-layers all --n-cpu-moe 2
half=$(on_the_gpu)
[ -n "$whole" ] && [ "$whole" != "$divided" ] && [ "$half" != "$divided" ] && [ "$half" != "$whole" ] ||
    fail "on the GPU: $whole; without experts: $divided; without those of two layers: $half"
# There is room for the attention of all layers, and for two with their experts.
rates 1e8 1e11
sed 's/"gpu": {"memory_bytes": "1G"/"gpu": {"memory_bytes": "13M"/; 1s/^/{"devices": [/; $s/$/]}/' "$dir/rates.json" >"$dir/small.json"
status 0 "$kin" plan -m "$moe" --ctx 256 --what-if "$dir/small.json"
says "$out" 'all on the GPU but for the experts of'
status 1 on_gpu "$kin" run -p Once -n 2 --cpu-moe
says "$err" 'this model has no experts'
status 1 on_gpu "$kin" run -m "$moe" -p Once -n 2 --n-cpu-moe 2 --gpu-layers auto
says "$err" 'kin places the experts; give a number of layers'
status 1 on_gpu "$kin" run -m "$moe" -p Once -n 2 --n-cpu-moe 2 --gpu-layers 0
says "$err" 'needs layers on the GPU, but --gpu-layers is 0'

claim='where no GPU is, none is looked for in software: its drivers would take memory from the weights'
if ! ls /dev/dri /dev/nvidiactl /dev/kfd /dev/dxg >"$out" 2>&1; then
    status 0 env LD_DEBUG=files LD_DEBUG_OUTPUT="$dir/files" "$kin" profile --refresh --json
    cat "$dir"/files.* >"$out"
    says "$out" 'libggml-cpu'
    says_not "$out" 'libggml-vulkan'
fi

tally
