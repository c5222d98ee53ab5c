#!/bin/sh
# Compares the cache of experts with its bound and with the page cache, for a mixture of experts larger than memory: time per output
# token with a part of the experts in memory. All variants alternate within one run. Needs root (lab/limit makes cgroups).
#
#   sudo [OLD=PATH/kin] [LLAMA="chroot /srv/sid"] bench/experts.sh [ROUNDS] [MODEL.gguf]
#
# EXACT=1: the disk of kin takes its bytes over DISK for each read, one after the other (lab/preload/slow_reads.c). The kernel's throttle,
# which --weights mmap and llama.cpp have in any case, grants the time of a rest later: so a program that uses it gains nothing.
# SHARES: percent of the experts that fit into memory. DISK: bytes per second. PROMPTS: lengths of the prompt, which the bench
# repeats while it generates; a short one makes a text that uses the same experts again soon, a long one a text that does not.
# SKEW, CHANGE: of the generated model (mkmodel --router-skew, --layer-change: the larger, the less foreseeable). EXPERTS: MiB of
# experts in the model. GEN: tokens. OLD: another kin to compare with. LLAMA: prefix of llama-bench.
#
#   bound = max(compute, missed bytes / disk), without bytes that were read in vain
#
# again: a second run, which begins with the experts that the first one used most; both have the same text, so it is the best case.
# foreseen: of the experts that were needed and not in memory, those that were read ahead; in vain: experts that were read ahead and
# not needed, for each one that was. compute: TPOT with all weights in memory. disk: four direct readers under the same limit. mmap:
# kin run --weights mmap, which leaves it to the page cache. Every process starts without pages of the model or the prepacked cache
# in memory.
set -eu
rounds=${1:-3}
build=${BUILD:-build}
skew=${SKEW:-0} change=${CHANGE:-0.02}
model=${2:-$build/bench/experts-$skew-$change.gguf}
threads=${THREADS:-2}
shares=${SHARES:-25 50 75}
prompts=${PROMPTS:-16 512}
disk=${DISK:-1000000000}
gen=${GEN:-64}
cache=$build/bench/cache
kin=$build/kin
limit=${0%/*}/../lab/limit
[ "$(id -u)" = 0 ] || { echo "experts: needs root" >&2; exit 77; }

mkdir -p "$build/bench"
# Qwen 3 30B-A3B with 7 of its 48 layers: 2.5 GB
[ -f "$model" ] || "$build/mkmodel" --arch qwen3moe --layers 7 --embd 2048 --heads 32 --heads-kv 4 --head-dim 128 --ff-exp 768 \
    --experts 128 --experts-used 8 --vocab 32000 --ctx 4096 --type q4_k_m --layer-change "$change" --router-skew "$skew" -o "$model" >&2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
# Each program has a folder of its own: with another format it would pack the same file again.
cache_of() { if [ "$1" = "$kin" ]; then echo "$cache"; else echo "$cache-old"; fi; } # PROGRAM
for k in "$kin" ${OLD:-}; do "$k" run -m "$model" --cache "$(cache_of "$k")" -t "$threads" -p x -n 1 --ctx 1024 >/dev/null 2>&1; done

median() { sort -n | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
field() { sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p"; }
figure() { sed -n "s/^$1=//p" "$dir/figures"; }
calc() { awk "BEGIN { print $* }"; }
m() { if [ -s "$dir/$1" ]; then median <"$dir/$1"; else echo nan; fi; } # NAME

limited() { # MIB COMMAND...
    mib=$1
    shift
    throttled "$mib" --disk "$disk" --disk-of "$model" -- "$@"
}
exactly() { # MIB COMMAND...: with an exact disk
    mib=$1
    shift
    throttled "$mib" -- env LD_PRELOAD="$(cd "$build" && pwd)/slow_reads.so" KIN_LAB_READS="$disk" "$@"
}
throttled() { # MIB [OPTION...] -- COMMAND...
    mib=$1
    shift
    set -- --report "$dir/figures" --drop "$model" "$@"
    for file in "$cache"/*.pack "$cache-old"/*.pack; do [ ! -f "$file" ] || set -- --drop "$file" "$@"; done
    [ "$mib" = 0 ] || set -- --memory "${mib}M" "$@"
    rm -f "$dir/figures"
    "$limit" "$@" 2>"$dir/log" || { echo "experts: failed: $*" >&2; tail -n 3 "$dir/log" >&2; }
}
kin_bench() { # MIB KIN PROMPT OPTION...: prints JSON
    mib=$1 program=$2 prompt=$3
    shift 3
    case "${EXACT:-} $*" in 1*mmap* | ' '*) how=limited ;; *) how=exactly ;; esac
    $how "$mib" "$program" bench -m "$model" -t "$threads" --cache "$(cache_of "$program")" --ctx 1024 --prompt "$prompt" --gen "$gen" --reps 1 \
        --json "$@"
}
try() { # NAME MIB KIN PROMPT OPTION...
    name=$1.$2.$4
    shift
    kin_bench "$@" >"$dir/json"
    for f in tpot_ms ttft_ms expert_hit_share streamed_bytes_per_token foreseen_share vain_reads; do field $f <"$dir/json" >>"$dir/$name.$f"; done
    echo "round $round: $name: $(field tpot_ms <"$dir/json") ms/token; $(figure disk_read_bytes) bytes, peak $(figure memory_peak_bytes)" >&2
    figure memory_peak_bytes >>"$dir/$name.peak"
}
disk_rate() { # prints bytes per second
    limited 0 sh -c 'for part in 0 1 2 3; do
            (dd if="$0" of=/dev/null bs=2M count=180 skip=$((180 * part)) iflag=direct 2>/dev/null) &
        done; wait' "$model"
    calc "$(figure disk_read_bytes) / $(figure wall_ms) * 1000"
}
try_llama() { # MIB
    # shellcheck disable=SC2086 # words of options
    limited "$1" $LLAMA llama-bench -m "$model" -t "$threads" -p 0 -n 16 -r 1 --repack 0 -o csv | tr -d '"' |
        awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "avg_ts") c = i } NR > 1 { print 1000 / $c }' >>"$dir/llama.$1.tpot_ms"
}

# What is not experts, and experts, in MiB.
experts=${EXPERTS:-2420}
others=$(calc "int($(wc -c <"$model") / 1048576 - $experts)")
memory_of() { echo $((others + 96 + experts * $1 / 100)); } # PERCENT: with KV cache and buffers

for round in $(seq "$rounds"); do
    if [ -n "${EXACT:-}" ]; then echo "$disk"; else disk_rate; fi >>"$dir/disk"
    for prompt in $prompts; do
        try all 0 "$kin" "$prompt"
        for share in $shares; do
            mib=$(memory_of "$share")
            rm -f "$cache"/*.experts
            try kin "$mib" "$kin" "$prompt"
            try again "$mib" "$kin" "$prompt"
            try mmap "$mib" "$kin" "$prompt" --weights mmap
            [ -z "${OLD:-}" ] || try old "$mib" "$OLD" "$prompt"
        done
    done
    for share in $shares; do [ -z "${LLAMA:-}" ] || try_llama "$(memory_of "$share")"; done
done

rate=$(m disk)
echo "model $model: $experts MiB of experts, $others MiB of other weights; disk $(calc "int($rate / 1e6)") MB/s"
echo
row() { printf '%-7s %8s %8s %8s %9s %8s %8s %6s %8s %7s %8s %8s %8s %8s %8s %8s\n' "$@"; }
row prompt 'memory' 'experts' hits 'read, MB' bound kin ratio foreseen 'in vain' mmap old llama 'peak' 'again' 'hits'
row '' MiB '%' '%' /token ms ms '' '%' '' ms ms ms MiB ms '%'
for prompt in $prompts; do
    compute=$(m "all.0.$prompt.tpot_ms")
    row "$prompt" all 100 - 0 "$(printf %.1f "$compute")" "$(printf %.1f "$compute")" 1.00 - - - - - - - -
    for share in $shares; do
        mib=$(memory_of "$share")
        read=$(m "kin.$mib.$prompt.streamed_bytes_per_token")
        needed=$(calc "$read / (1 + $(m "kin.$mib.$prompt.foreseen_share") * $(m "kin.$mib.$prompt.vain_reads"))")
        bound=$(printf '%s\n%s\n' "$(calc "1e3 * $needed / $rate")" "$compute" | sort -n | tail -n 1)
        tpot=$(m "kin.$mib.$prompt.tpot_ms")
        row "$prompt" "$mib" "$share" "$(printf %.1f "$(calc "100 * $(m "kin.$mib.$prompt.expert_hit_share")")")" \
            "$(printf %.1f "$(calc "$read / 1e6")")" "$(printf %.1f "$bound")" "$(printf %.1f "$tpot")" \
            "$(printf %.2f "$(calc "$tpot / $bound")")" \
            "$(printf %.1f "$(calc "100 * $(m "kin.$mib.$prompt.foreseen_share")")")" "$(printf %.2f "$(m "kin.$mib.$prompt.vain_reads")")" \
            "$(printf %.1f "$(m "mmap.$mib.$prompt.tpot_ms")")" \
            "$(printf %.1f "$(m "old.$mib.$prompt.tpot_ms")")" "$(printf %.1f "$(m "llama.$mib.tpot_ms")")" \
            "$(calc "int($(m "kin.$mib.$prompt.peak") / 1048576)")" "$(printf %.1f "$(m "again.$mib.$prompt.tpot_ms")")" \
            "$(printf %.1f "$(calc "100 * $(m "again.$mib.$prompt.expert_hit_share")")")"
    done
done
