# shellcheck shell=sh disable=SC2154
# plans.sh: tables and figures of prima.cpp's paper that kin plan predicts from the facts of its testbeds (testkit/paper_clusters.c).
# They need no quiet machine. The paper's milliseconds come from its devices; here the rates of processors and GPUs come from data
# sheets, so shapes are compared.

sizes='8 14 30 45 60 65 70' schedulers='exact halda memsched perfsched fill-gpus'

# schedulers_of FILE FACTS: the plans of all schedulers in RAW/FILE.json, and of `exact` with its parts in RAW/FILE-exact.json.
schedulers_of() {
    plan "$1.json" "$2" --all
    plan "$1-exact.json" "$2"
}
# Prints what a token takes if every reading is waited for.
without_prefetch_of() { of "$1" '(.compute_ms + .windows_ms + .hops_ms + ([.devices[]?.disk_ms] | add)) * 10 | round / 10'; } # FILE
# Lines of all schedulers for all sizes: FACTS,billions,who,tpot_ms,ttft_ms
rows_of() { # CLUSTER [FILTER [DEVICES [LABEL]]]
    for _size in $sizes; do
        _row_file=${4:-$1}-$_size
        schedulers_of "$_row_file" "$(facts "$1" "${_size}b" "${2:-.}" "${3:-0}")"
        for _who in $schedulers; do
            line "${4:-$1},$_size,$_who,$(ms_of "$_row_file.json" "$_who"),$(ms_of "$_row_file.json" "$_who" ttft_ms)"
        done
        line "${4:-$1},$_size,exact without prefetching,$(without_prefetch_of "$_row_file-exact.json"),"
    done
}
published() { # WHO TPOT...: one for each size; "-": none
    _who=$1
    shift
    for _size in $sizes; do
        [ "$1" = - ] || line "paper,$_size,$_who,$1,"
        shift
    done
}
tpots() { ours tpot_ms facts "$1" who "$2" | words; } # FACTS WHO

# ---- Table 4 and its ablations

paper_table4_plan() {
    table facts,billions,who,tpot_ms,ttft_ms
    published prima.cpp 15 20 72 233 468 569 674
    published 'prima.cpp without halda' 78 131 258 409 7053 12253 20848
    published 'prima.cpp without prefetching' 15 20 79 263 532 688 755
    published llama.cpp 15 20 202 328 7965 8807 10120
    rows_of table3 . 4 printed
    rows_of table3-seen . 4 seen
    figure_of who '^(prima.cpp|exact|halda|memsched)$' billions tpot_ms who
    what='TPOT of 8, 14, 30, 45, 60, 65, 70B, ms'
    paper=$(tpots paper prima.cpp)
    printed=$(tpots printed exact) seen=$(tpots seen exact)
    result 'prima Table 4, Fig. 7' "$what; D3 with the 9.7 GiB printed" "$paper" - "$(echo "$printed" | rounded)" \
        "$(shape "$printed" 'v[5] < 1.5 * 468 && v[7] > 1.5 * 674' 'same up to 60B; 65B and 70B are slower, because the paper used more memory than it prints ([70B](#the-70b-row-of-table-4))' 'better than the printed memory lets expect')"
    result 'prima Table 4, Fig. 7' "$what; D3 with the 16 GiB that its llama.cpp rows show" "$paper" - "$(echo "$seen" | rounded)" \
        "$(shape "$seen" 'v[7] < 1.1 * 674 && v[5] < 1.1 * 468' 'same, 70B within 10 %. 30B is slower, because its GPU buffers are taken as large as those of 70B' 'not shown')"
    result 'prima Table 4' 'without Halda (memsched), D3 with 16 GiB' "$(tpots paper 'prima.cpp without halda')" - "$(tpots seen memsched | rounded)" \
        "$(all_below "$seen" "$(tpots seen memsched)" 1.001 && echo 'same: never faster than the best plan. The factor of 31 at 70B is mmap that thrashes; kin reads each byte once per token' || echo 'not shown')"
    result 'prima Table 4' 'without prefetching, D3 with 16 GiB' "$(tpots paper 'prima.cpp without prefetching')" - "$(tpots seen 'exact without prefetching' | rounded)" \
        "$(shape "$(tpots seen 'exact without prefetching') $seen" 'v[1] < 1.01 * v[8] && v[7] > 1.05 * v[14]' 'same: no difference for small models. Where weights stream it is larger, because here every read is waited for' 'not shown')"
    result 'prima Table 4' 'TTFT, D3 with 16 GiB, a prompt of 16 tokens' '18 25 214 440 990 1770 1793' - "$(ours ttft_ms facts seen who exact | words | rounded)" \
        'not shown: the paper prints neither the length of its prompts nor the rates of its processors'
}

# ---- The 70B row: which fact makes the difference

# ms per token that the weights on D3's CPU take if llama.cpp reads all of them from the disk, and if it reads none.
llama_on_d3() { # BILLIONS
    jq -r --argjson gpu 400e9 --argjson cpu 54e9 --argjson disk 3e9 '
        ([.model.layer_bytes[]] | add) as $layer | ([.model.output_bytes[]] | add) as $output
        | ((11 - 1.5) * 1073741824 / $layer | floor) as $n_gpu | ($n_gpu * $layer) as $on_gpu
        | (.model.n_layer * $layer + $output - $on_gpu) as $on_cpu
        | [$on_cpu / 1073741824, 1e3 * ($on_gpu / $gpu + $on_cpu / $cpu), 1e3 * ($on_gpu / $gpu + $on_cpu / $disk)]
        | map(. * 10 | round / 10) | @csv' "$(facts table3 "$1b" . 4)"
}
paper_table4_70b() {
    table what,value,gib_on_cpu,in_memory_ms,from_disk_ms,paper_ms
    for pair in 30:202 45:328 60:7965 65:8807 70:10120; do
        line "llama.cpp on D3,${pair%:*},$(llama_on_d3 "${pair%:*}"),${pair#*:}"
    done
    for gib in 9.7 11 12 13 14 15 16 18 20 22; do
        plan "d3-$gib.json" "$(facts table3-seen 70b ".devices[0].memory_bytes = \"${gib}G\"")"
        line "70B by D3's GiB,$gib,,$(tpot_of "d3-$gib.json"),,674"
    done
    for change in 'printed:.' 'disks twice as fast:.devices[].disk_bytes_per_s *= 2 | .devices[].disk_random_bytes_per_s *= 2' \
        'no GPU buffers:.model.gpu_buffer_bytes = 0' 'CPUs twice as fast:.devices[].cpu.token_bytes_per_s *= 2' \
        'no network:.links.default.rtt_s = 0' 'memory of D3 16 GiB:.devices[0].memory_bytes = "16G"'; do
        changed="change-$(echo "${change%%:*}" | tr ' ' -).json"
        plan "$changed" "$(facts table3 70b "${change#*:}" 4)"
        line "70B ${change%%:*},,,$(tpot_of "$changed"),,674"
    done
    figure_of what "GiB" value in_memory_ms what
    result 'prima Table 4' 'llama.cpp on D3 at 45, 60, 70B, ms: all weights of the CPU from memory' '328 7965 10120' - \
        "$(ours in_memory_ms what 'llama.cpp on D3' | sed -n '2p;3p;5p' | words | rounded)" 'same at 45B: its 15.6 GiB on the CPU were in memory, where 9.7 GiB are printed'
    result 'prima Table 4' 'the same: all from a disk of 3 GB/s' '328 7965 10120' - \
        "$(ours from_disk_ms what 'llama.cpp on D3' | sed -n '2p;3p;5p' | words | rounded)" 'same at 60B and 70B: the printed disk is right'
    by_memory=$(for gib in 9.7 14 16 18; do tpot_of "d3-$gib.json"; done | words)
    result 'prima Table 4' '70B by memory of D3: 9.7, 14, 16, 18 GiB' 674 - "$(echo "$by_memory" | rounded)" \
        "$(shape "$by_memory" 'v[2] > 674 && v[4] < 674' 'same between 16 and 18 GiB' 'not shown')"
}

# ---- other testbeds

# other_testbed ITEM CLUSTER PUBLISHED SHAPE [FILTER]
other_testbed() {
    table facts,billions,who,tpot_ms,ttft_ms
    # shellcheck disable=SC2086 # numbers
    published prima.cpp $3
    rows_of "$2" "${5:-.}" 0 here
    figure_of who '^(prima.cpp|exact|halda|memsched)$' billions tpot_ms who
    result "$1" 'TPOT of 8, 14, 30, 45, 60, 65, 70B, ms' "$3" - "$(tpots here exact | rounded)" "$4"
}
paper_table7() {
    other_testbed 'prima Table 7 (A.4)' a4 '27 67 308 328 671 703 718' 'same order; 70B and 45B within 5 %'
}
paper_table8() {
    other_testbed 'prima Table 8 (A.5)' a5 '15 21 52 195 391 502 1128' 'same order, but 2 to 6 times slower from 30B on, for the reason in the next row'
    rows_of a5 '.devices[].memory_bytes = "8G" | .model.gpu_buffer_bytes = "0.4G"' 0 whole
    result 'prima Table 8 (A.5)' 'the same with all 8 GiB of each container, and 0.4 GiB of GPU buffers' '15 21 52 195 391 502 1128' - "$(tpots whole exact | rounded)" \
        'same order, at most 1.6 times slower: the 52 ms at 30B need all 18 GiB of weights on GPUs of 20 GiB, so their buffers are small. The jump at 70B does not appear, because 39 GiB fit'
}
paper_figure10() {
    table facts,billions,who,tpot_ms,ttft_ms
    rows_of a10 . 0 here
    figure_of who '^(exact|halda|memsched|perfsched)$' billions tpot_ms who
    for pair in memsched:'4.5 to 8.8 (8 to 45B), 1.9 to 3.3 (60 to 70B)' perfsched:'1.1 to 1.5 (8 to 45B), 1.6 to 1.8 (60 to 70B)'; do
        ratios=$(echo "$(tpots here "${pair%%:*}") $(tpots here halda)" | awk '{ n = NF / 2; for (i = 1; i <= n; i++) printf "%.1f ", $i / $(i + n) }' | words)
        result 'prima Fig. 10 (A.10)' "${pair%%:*} over halda at 8, 14, 30, 45, 60, 65, 70B" "${pair#*:}" - "$ratios" \
            "$(shape "$ratios" 'v[1] > 1 && v[2] > 1 && v[3] > 1 && v[4] > 1 && v[5] > 1 && v[6] > 1 && v[7] > 1' 'same: halda is faster everywhere, most at small models; some factors are smaller' 'not everywhere faster: its objective does not count what kin measures')"
    done
}
models_on() { # ITEM CLUSTER "MODEL PAPER"... -> rows model,paper,exact
    _item=$1 _cluster=$2
    shift 2
    table model,who,tpot_ms
    for _pair; do
        plan "${_pair% *}.json" "$(facts "$_cluster" "${_pair% *}" . "${n_devices:-0}")"
        line "${_pair% *},paper,${_pair#* }"
        line "${_pair% *},exact,$(tpot_of "${_pair% *}.json")"
    done
    figure_of who exact model tpot_ms
    result "$_item" "TPOT of $(ours model who paper | tr '\n' ',' | sed 's/,$//; s/,/, /g'), ms" "$(ours tpot_ms who paper | words)" - \
        "$(ours tpot_ms who exact | words | rounded)" "$shape"
}
paper_table9() {
    n_devices=4 shape='same: one device up to 14B, below a second at 72B'
    models_on 'prima Table 9 (A.6)' table3-seen '8b 14' 'qwen-7b 14' 'qwen-14b 23' 'qwen-32b 89' '70b 724' 'qwen-72b 867'
}
paper_table10_plan() {
    n_devices=0 shape='same order; small models are faster here: the rates of a 4090 come from its data sheet'
    models_on 'prima Table 10 (A.9)' a9 'qwen-7b 20' '8b 20' 'qwen-14b 36' 'qwen-32b 55' '70b 803' 'qwen-72b 963'
}
paper_table12() {
    n_devices=0 shape='same: one device up to 32B; 70B within 1 %. Small models are faster here: the paper'"'"'s 35 ms for 8B are a seventh of the bandwidth of a 3090'
    models_on 'prima Table 12 (A.19)' table11 '8b 35' 'qwen-7b 34' 'qwen-14b 52' 'qwen-32b 66' '70b 146'
}

# ---- layers and memory of devices

split_of() { of "$1" '[.devices[] | select(.layers > 0) | "\(.name) \(.gpu_layers)+\(.layers - .gpu_layers)"] | join(", ")'; } # FILE
paper_figure8() {
    table devices,tpot_ms,layers
    while read -r set filter; do
        plan "$set.json" "$(facts table3 70b "$filter" 6)"
        line "$set,$(tpot_of "$set.json"),$(split_of "$set.json" | tr , ';')"
    done <<END
D2-D3 .devices|=map(select(.name|IN("D3","D2")))
D2-D3-D5 .devices|=map(select(.name|IN("D3","D2","D5")))
D1-to-D4 .devices|=map(select(.name|IN("D6","D5")|not))
D1-to-D5 .devices|=map(select(.name!="D6"))
D1-to-D6 .
END
    figure devices tpot_ms
    eight=$(ours tpot_ms | words)
    result 'prima Fig. 8 (A.7)' 'TPOT of 70B on D2 D3; D2 D3 D5; D1 to D4; D1 to D5; D1 to D6, ms' 'D5 halves it; three devices are the fastest' - "$(echo "$eight" | rounded)" \
        "$(shape "$eight" 'v[2] < 0.6 * v[1]' 'same: D5 halves it' 'not shown: D5 does not halve it'). More devices are never slower here, because exact leaves out one that would be: $(echo "$eight" | awk '{ printf "six are %.0f %% faster than D2 D3 D5", 100 * (1 - $5 / $2) }')"
}
paper_figure9() {
    table billions,place,gib
    for size in $sizes; do
        plan "$size.json" "$(facts table3 "${size}b" . 4)"
        of "$size.json" '.devices[] | (.name + " RAM", .memory_bytes / 1073741824), (.name + " VRAM", (.gpu_bytes // 0) / 1073741824)' |
            while read -r place && read -r gib; do
                [ "$gib" = 0 ] || line "$size,$place,$(echo "$gib" | rounded)"
            done
    done
    figure billions gib place
    result 'prima Fig. 9 (A.8)' 'GiB of D3 RAM at 8, 14, 30, 45, 60, 65, 70B' 'GPUs first, then CPUs, at last streaming' - "$(ours gib place 'D3 RAM' | words)" \
        'same: D3 and D2 fill their GPUs first; no device holds more than Table 3 prints'
}
paper_figure21() {
    plan exact.json "$(facts table11 70b)"
    plan halda.json "$(facts table11 70b)" --scheduler halda
    plan memsched.json "$(facts table11 70b)" --scheduler memsched
    plan fill-gpus.json "$(facts table11 70b)" --scheduler fill-gpus
    table scheduler,device,layers,gpu_layers,tpot_ms
    for who in exact halda memsched fill-gpus; do
        of $who.json ".tpot_ms as \$t | .devices[] | select(.layers > 0) | \"$who,\\(.name),\\(.layers),\\(.gpu_layers),\\(\$t)\"" >>"$folder/$name.csv"
    done
    figure_of scheduler exact device layers
    result 'prima Fig. 21 (A.19.2)' 'layers of 70B (GPU+CPU)' 'D2 46+2, D0 13, D6 19' - "$(split_of exact.json)" \
        'same: three of ten devices, and D5 is left out. D4 takes D0'"'"'s place; the released objective gives the paper'"'"'s split (tests/test_plan_halda.c)'
    result 'prima A.19.2' 'Fill-Fastest-GPUs-First (fill-gpus): layers of 70B' 'D2 46, D0 13, D6 19, D5 2' - "$(split_of fill-gpus.json)" \
        "$([ "$(split_of fill-gpus.json)" = 'D2 46+0, D0 13+0, D5 2+0, D6 19+0' ] && echo same || echo 'not shown')"
    filled="$(tpot_of fill-gpus.json) $(tpot_of halda.json) $(tpot_of exact.json)"
    result 'prima A.19.2' 'TPOT of 70B: fill-gpus, halda, exact, ms' '156 146 (Halda)' - "$(echo "$filled" | rounded)" \
        "$(shape "$filled" 'v[2] < v[1] && v[3] <= v[2]' "same: the fourth device's hop costs more than its GPU gains" 'not shown')"
}

# ---- rounds

rounds_on() { # CLUSTER SCHEDULER
    table rounds,model,tpot_ms
    for size in 8 30 45 60 65 70; do
        for k in 1 2 4 5 8 10; do
            plan "$size-$k.json" "$(facts "$1" "${size}b")" --scheduler "$2" --rounds $k
            line "$k,${size}B,$(tpot_of "$size-$k.json")"
        done
    done
    figure rounds tpot_ms model
}
# Prints by how many percent the best k > 1 is faster than k = 1.
gain_of() { ours tpot_ms model "$1" | awk '$1 != "-" { if (!first) first = $1; else if (!best || $1 < best) best = $1 } END { printf "%.0f", 100 * (1 - best / first) }'; }
paper_figure2_plan() {
    rounds_on figure2 memsched
    gains=$(for size in 8 45 65 70; do gain_of ${size}B; echo; done | words)
    result 'prima Fig. 2' 'gain of the best k from 2 to 10 over k = 1, even layers, 8, 45, 65, 70B, %' 'none up to 45B; halves it above 60B' - "$gains" \
        "$(shape "$gains" 'v[1] < 5 && v[4] > 40' 'same: nothing for a model in memory, half for 70B' 'not shown')"
}
paper_figure18() {
    rounds_on a14 exact
    gains=$(for size in 8 45 65 70; do gain_of ${size}B; echo; done | words)
    result 'prima Fig. 18 (A.16)' 'gain of the best k from 2 to 10 over k = 1, unlike devices, 8, 45, 65, 70B, %' 'none for small models; 51 to 84 above 45B' - \
        "$gains" "$(shape "$gains" 'v[1] < 5 && v[4] > 25' 'same direction: nothing for small models. A smaller gain, because at k = 1 no weights are read twice here' 'not shown')"
}
paper_figure16_plan() {
    table who,part,ms
    for who in memsched perfsched exact; do
        plan $who.json "$(facts a14 70b)" --scheduler $who "$([ $who = perfsched ] && echo --rounds=1 || echo --rounds=2)"
        for part in compute disk_wait hops; do line "$who,$part,$(of $who.json ".${part}_ms // \"\"")"; done
    done
    plan free.json "$(facts a14 70b)"
    for who in memsched perfsched exact; do line "$who,all,$(tpot_of $who.json)"; done
    figure_of part all who ms
    all=$(ours ms part all | words)
    result 'prima Fig. 16 (A.14.3)' 'TPOT of 70B at k = 2: MemSched, PerfSched (k = 1, its only one), Halda (here exact), ms' 'Halda takes half of MemSched' - "$(echo "$all" | rounded)" \
        "$(shape "$all" 'v[3] < v[1] && v[3] < v[2]' "same order: $(split_of exact.json). A smaller gain, because k = 2 is not the best k; with its own k exact takes $(tpot_of free.json) ms" 'not shown')"
}

# ---- context and network

paper_figure17_plan() {
    table context,testbed,tpot_ms
    for pair in a15:low a11:medium; do
        for n in 1 2 4 8 16 32; do
            plan "${pair#*:}-$n.json" "$(facts "${pair%:*}" 70b)" --ctx $((n * 1024)) --cached $((n * 1024 - 1))
            line "$n,${pair#*:},$(tpot_of "${pair#*:}-$n.json")"
        done
    done
    figure context tpot_ms testbed
    for pair in low:'flat to 4K, then rises or runs out of memory' medium:'flat to 16K'; do
        result 'prima Fig. 17 (A.15)' "TPOT of 70B at 1, 2, 4, 8, 16, 32K of context, ${pair%%:*}-mem, ms" "${pair#*:}" - "$(ours tpot_ms testbed "${pair%%:*}" | words | rounded)" \
            "$(shape "$(ours tpot_ms testbed "${pair%%:*}" | words)" 'v[3] < 1.1 * v[1] && v[6] > 1.3 * v[1]' 'same; nothing runs out of memory' 'not shown')"
    done
}
paper_figure19_plan() {
    table what,value,tpot_ms
    for mbit in 5 10 25 50 100 300 600; do
        plan "rate-$mbit.json" "$(facts a15 70b ".links.default.rtt_s = 0.094 | .links.default.bytes_per_s = $mbit * 125000")"
        line "rate,$mbit,$(tpot_of "rate-$mbit.json")"
    done
    for rtt in 94 194 294 394; do
        plan "rtt-$rtt.json" "$(facts a15 70b ".links.default.rtt_s = $rtt / 1000")"
        line "rtt,$rtt,$(tpot_of "rtt-$rtt.json")"
    done
    figure value tpot_ms what
    result 'prima Fig. 19a (A.17)' 'TPOT at 5, 10, 25, 50, 100, 300, 600 Mbit/s, ms' 'flat above 50 Mbit/s' - "$(ours tpot_ms what rate | words | rounded)" \
        "$(shape "$(ours tpot_ms what rate | words)" 'v[4] < 1.1 * v[7]' same 'not shown')"
    result 'prima Fig. 19b (A.17)' 'TPOT at an RTT of 94, 194, 294, 394 ms, ms' '+68 % from 100 to 200 ms' - "$(ours tpot_ms what rtt | words | rounded)" \
        'same, less steep: 20 % for 100 ms, which a token pays in four hops of half a round trip'
}
paper_solve_time() {
    once plan.txt "$build/plan" 21
    table facts,scheduler,ms
    sed -n 's/^\(.*[^ ]\)  *\(exact\|halda\|memsched\|perfsched\|fill-gpus\|dp-sa\)  *\([0-9.]*\) .*/\1|\2|\3/p' "$raw/plan.txt" | tr -d , | tr '|' , >>"$folder/$name.csv"
    figure_of scheduler halda facts ms
    result 'prima section 3.3' 'time to solve, 4 to 32 devices, halda, ms' '10 to 12' "$(ours ms scheduler halda | spread)" - "$(shape "$(ours ms scheduler halda | middle)" 'v[1] < 10' 'better (one core)' 'not shown')"
    result 'prima section 3.3' 'the same, exact' - "$(ours ms scheduler exact | spread)" - "$(shape "$(ours ms scheduler exact | middle)" 'v[1] < 10' better 'not shown')"
}
