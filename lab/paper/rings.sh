# shellcheck shell=sh disable=SC2154
# rings.sh: experiments that run kin in a lab. Each calls scenarios of lab/*.lab and compares their tables with what is published.
# Where devices have `computes`, a first, shorter run learns the undisturbed times of this machine (docs/LAB.md): of all shapes, not of
# all sizes, as layers of all sizes are alike.

if_tiny() { if [ -n "$tiny" ]; then echo "$1"; else echo "$2"; fi; } # VALUE OTHER
# learn_and_measure LABEL "NAME=VALUE..." SCENARIO OPTION...: the settings are those of the run that learns, in the place of the options.
learn_and_measure() {
    _measured=$1 _learns=$2
    shift 2
    # shellcheck disable=SC2046 # words
    measure learn "$@" $(for _setting in $_learns; do echo --set "$_setting"; done)
    measure "$_measured" "$@"
}
taken() { cp "$raw/$1" "$folder/$name.csv"; }                         # FILE of a lab: becomes NAME.csv
per_cent() { awk "BEGIN { printf \"%.0f\", 100 * ($1) / ($2) - 100 }"; }
# medians COLUMN VALUES KEY [COLUMN VALUE]...: of column KEY in the lines in which COLUMN has one of VALUES, one after the other.
medians() {
    _by=$1 _values=$2 _key=$3
    shift 3
    for _value in $_values; do ours "$_key" "$_by" "$_value" "$@" | middle; done | words
}

# ---- prima.cpp

published_for() { # WAY
    case $1 in
    halda) echo '15 20 72 233 468 674' ;;
    memsched) echo '78 131 258 409 7053 20848' ;;
    llama.cpp) echo '15 20 202 328 7965 10120' ;;
    *) echo - ;;
    esac
}
paper_table4() {
    learn_and_measure runs 'repeats=1 sizes=8b' schedulers --set repeats="$repeats" --set sizes="$(if_tiny 8b '8b 14b 30b 45b 60b 70b')" \
        --set n_tokens="$(if_tiny 2 8)" --set tries="$(if_tiny 1 4)" --set calm_seconds="$(if_tiny 0 60)" --set llama="$llama"
    sed 's/^\([0-9]*\)b,/\1,/' "$raw/runs/runs.csv" >"$folder/$name.csv"
    figure_of way '^(exact|halda|memsched)$' size tpot_ms way
    [ -n "$tiny" ] || for way in exact halda memsched perfsched ${llama:+llama.cpp}; do
        got=$(medians size '8 14 30 45 60 70' tpot_ms way "$way")
        result 'prima Table 4, scaled to 1/74' "$way: 8, 14, 30, 45, 60, 70B, ms" "$(published_for "$way")" \
            "$(echo "$got" | rounded)" "$(medians size '8 14 30 45 60 70' predicted_ms way "$way" | rounded)" \
            "$(all_below "$(medians size '8 14 30 45 60 70' tpot_ms way exact)" "$got" 1.03 && echo 'same: exact is not slower' || echo 'not shown')"
    done
}
paper_figure2() {
    measure rounds four-equal --set repeats="$repeats" --set rounds="$(if_tiny '1 2' '1 2 4 8')" --set modes="stream mmap+willneed" --set n_tokens="$(if_tiny 2 8)"
    taken rounds/rounds.csv
    figure k tpot_ms mode
    for mode in stream mmap+willneed; do
        one=$(ours tpot_ms mode $mode k 1 | middle) two=$(ours tpot_ms mode $mode k 2 | middle)
        result 'prima Fig. 2' "four equal devices, memory for 60 %, $mode: k = 1, k = 2, ms" 'k = 2 halves it' "$(ours tpot_ms mode $mode k 1 | spread); $(ours tpot_ms mode $mode k 2 | spread)" - \
            "$(shape "$one $two" 'v[2] < 0.75 * v[1]' "same: $(per_cent "$two" "$one") %" "not shown: $(per_cent "$two" "$one") %")"
    done
}
paper_figure8_lab() {
    learn_and_measure steps 'n_tokens=2 tries=1 calm_seconds=0' select --set n_tokens="$(if_tiny 2 8)" --set tries="$(if_tiny 1 4)" --set calm_seconds="$(if_tiny 0 60)"
    taken steps/steps.csv
    figure step tpot_ms
    result 'prima Fig. 8 (A.7)' 'devices that join one by one; the last without a needed one, ms' 'a needed device helps; slow ones are left out' "$(ours tpot_ms | words | rounded)" \
        "$(ours predicted_ms | words | rounded)" "$(shape "$(ours tpot_ms | words)" 'v[2] < v[1] && v[5] <= 1.05 * v[4] && v[6] > v[5]' 'same: no device that joins makes it slower' 'not shown')"
}
paper_table10() {
    learn_and_measure drafts 'layers=8' table10 --set layers="$(if_tiny 8 '8 16 24 32 40')" --set n_tokens="$(if_tiny 4 32)"
    taken drafts/table10.csv
    figure layers kin_ms
    result 'prima Table 10 (A.9)' 'gain of drafts that are right in 70 %, five in every pass; models of half to twice the memory, %' '25 to 45' \
        "$(awk -F, 'NR > 1 { printf "%.0f ", 100 * (1 - $8 / $7) }' "$folder/$name.csv" | words)" "$(awk -F, 'NR > 1 { printf "%.0f ", 100 * (1 - $5 / $4) }' "$folder/$name.csv" | words)" \
        "$(awk -F, 'NR > 1 && $12 < $7 { n++ } END { print n == NR - 1 ? "same or better; with as many drafts as kin chooses, more" : "not shown for all models" }' "$folder/$name.csv")"
}
paper_figure11() {
    learn_and_measure texts 'repeats=1 rings=resident' serve --set repeats="$repeats" --set streams="$(if_tiny '1 2' '1 2 4 8 16 32 40')" --set n_tokens="$(if_tiny 4 16)" \
        --set most="$(if_tiny 2 64)"
    taken texts/summary.csv
    figure_of ring . streams tokens_per_s ring
    for ring in resident streamed; do
        result 'prima Fig. 11 (A.11)' "$ring: tokens/s of 1, 2, 4, 8, 16, 32, 40 requests" "$([ $ring = resident ] && echo 'rises to 32, then falls' || echo 'peaks at 8 to 16, then falls')" \
            "$(ours tokens_per_s ring $ring | words | rounded)" "$(ours expected_tokens_per_s ring $ring | words | rounded)" \
            "$(shape "$(ours tokens_per_s ring $ring | words)" 'v[n] >= 0.9 * v[n - 1]' 'better: does not fall, because a pass reads weights once for all' 'same: falls at the end')"
    done
}
paper_figure19() {
    measure wifi wifi --set repeats="$repeats" --set n_tokens="$(if_tiny 2 8)" --set rates="$(if_tiny 300 '10 25 50 100 300 600')" --set rtts="$(if_tiny 94 '94 194 294 394')"
    taken wifi/bandwidth.csv
    figure rate_mbit tpot_ms
    cp "$raw/wifi/rtt.csv" "$folder/rtt.csv"
    result 'prima Fig. 19a (A.17)' 'TPOT at 10, 25, 50, 100, 300, 600 Mbit/s, ms' 'flat above 50' "$(medians rate_mbit '10 25 50 100 300 600' tpot_ms | rounded)" - \
        "$(shape "$(medians rate_mbit '50 600' tpot_ms)" 'v[1] < 1.15 * v[2]' same 'not shown')"
    rtt=$(for value in 94 194 294 394; do column "$folder/rtt.csv" tpot_ms rtt_ms $value | middle; done | words)
    result 'prima Fig. 19b (A.17)' 'TPOT at an RTT of 94, 194, 294, 394 ms, ms' '+68 % from 100 to 200' "$(echo "$rtt" | rounded)" - \
        "$(shape "$rtt" 'v[2] > 1.1 * v[1]' 'same: latency counts' 'not shown')"
}
paper_figure20() {
    measure hogs hogs --set repeats="$(if_tiny 1 "$((3 * repeats))")" --set only="$(if_tiny 'tiktok work zoom' 'tiktok work youtube zoom download game')"
    taken hogs/busy-home.csv
    figure program percent
    result 'prima Fig. 20 (A.18)' 'cost of short videos, office, film, conference, download; game, %' '5 to 18; 66' "$(ours percent | words | rounded)" - \
        "$(shape "$(ours percent | words)" 'v[1] < 18 && v[n] > v[1]' 'same; the game more, because the head has one processor for both and no GPU' 'not shown')"
}

# ---- memory that shrinks: Table 5, Figures 13 to 15

shrink() { # LABEL OPTION...
    _shrink=$1
    shift
    measure "$_shrink" shrink --sample 100 --set repeats="$repeats" --set n_tokens="$(if_tiny 2 8)" --set shares="$(if_tiny '100 50' '100 75 50 25')" "$@"
    taken "$_shrink/shrink.csv"
}
paper_table5() {
    shrink ring --set devices=4 --set shares="$(if_tiny 50 '100 50')" --set modes=stream --set rounds=2
    figure device anon_mib
    for share in $(if_tiny 50 '100 50'); do
        result 'prima Table 5' "memory that the OS could not take back, d1 (head) to d4 with memory for $share % of their weights of 551 MB, % of a device of 8 GiB" '3 to 6.3; at most 1 for D4' \
            "$(for device in d1 d2 d3 d4; do ours anon_mib share "$share" device $device | middle; done | awk '{ printf "%s%.1f", (NR > 1 ? " " : ""), 100 * $1 / 8192 }')" 3.8 \
            "$(shape "$(ours anon_mib share "$share" | words)" 'v[1] < 0.06 * 8192' 'same: weights are page cache. Predicted: buffers of 0.3 GiB for 70B' 'not shown')"
    done
}
paper_figure14() {
    shrink alone --set devices=1 --set modes='stream mmap mmap+willneed' --set rounds=1
    figure share tpot_ms mode
    for mode in stream mmap mmap+willneed; do
        result 'prima Fig. 14 (A.14.1)' "one device, memory for 100, 75, 50, 25 % of the weights, $mode: MB read again per pass (of 551)" '0 2 100 100 % of the CPU'"'"'s weights' \
            "$(medians share '100 75 50 25' reread_mb mode $mode | rounded)" - \
            "$(shape "$(medians share 50 reread_mb mode $mode)" 'v[1] > 450' 'same: nearly all weights are read again' 'better: only what does not fit is read again')"
        result 'prima Fig. 14 (A.14.1)' "the same: ms per token" 'rises steeply, then stays' "$(medians share '100 75 50 25' tpot_ms mode $mode | rounded)" - -
    done
}
paper_figure15() {
    shrink ring --set devices=4 --set modes='stream mmap+willneed' --set rounds='1 2 4' --set shares="$(if_tiny 50 '75 50')"
    figure k tpot_ms mode
    for mode in stream mmap+willneed; do
        got=$(medians k '1 2 4' tpot_ms mode $mode share 50)
        result 'prima Fig. 15 (A.14.2)' "ring of four, memory for 50 %, $mode: k = 1, 2, 4, ms" 'k = 2 takes 20 to 23 % of k = 1' "$(echo "$got" | rounded)" - \
            "$(shape "$got" 'v[2] < 0.8 * v[1]' 'same: more rounds remove the conflict' 'not shown')"
        result 'prima Fig. 15 (A.14.2)' "the same: page faults that read, per pass and device" 'negligible with k = 2' "$(medians k '1 2 4' faults mode $mode share 50 | rounded)" - -
    done
}
# A model of power, because this machine has no meter: a device of a home draws 4 W while it waits, 15 W more for a busy processor and
# 2 W more while it reads at 250 MB/s. Watt seconds per 1000 tokens, loading included.
joules() { # LINES of shrink.csv -> per run
    awk -F, 'NR > 1 { key = $1 "," $2 "," $3 "," $4 "," $5; j[key] += 4 * $11 + 15 * $14 + 2 * $12 / 250; n[key] = $16 }
        END { for (key in j) printf "%s,%.0f\n", key, 1000 * j[key] / n[key] }' "$1"
}
paper_figure13() {
    measure one shrink --sample 100 --set repeats="$repeats" --set devices=1 --set shares=25 --set modes='stream mmap' --set rounds=1 --set n_tokens="$(if_tiny 2 16)"
    measure ring shrink --sample 100 --set repeats="$repeats" --set devices=4 --set shares=100 --set modes=stream --set rounds=1 --set n_tokens="$(if_tiny 2 240)"
    table devices,share,mode,k,repeat,joules_per_1000
    for run in one ring; do joules "$raw/$run/shrink.csv" >>"$folder/$name.csv"; done
    figure mode joules_per_1000
    alone=$(ours joules_per_1000 devices 1 mode mmap | middle) streamed=$(ours joules_per_1000 devices 1 mode stream | middle) ring=$(ours joules_per_1000 devices 4 | middle)
    result 'prima Fig. 13 (A.13)' 'energy of four devices together beside one with a quarter of the memory that pages, %, by a model of power' '57 to 90 less' \
        "$(per_cent "$ring" "$alone")" - "$(shape "$ring $alone" 'v[1] < 0.43 * v[2]' same 'less or none: idle power of four devices counts')"
    result 'prima Fig. 13 (A.13)' 'the same, beside one that streams, %' - "$(per_cent "$ring" "$streamed")" - -
}
paper_figure17() { # once: a prompt of 32K takes minutes
    measure contexts contexts --set contexts="$(if_tiny 1 '1 2 4 8 16 32')"
    taken contexts/contexts.csv
    figure context_k tpot_ms memory
    for pair in '280M:flat to 4K, then steep' '560M:flat to 16K'; do
        result 'prima Fig. 17 (A.15)' "TPOT after 1, 2, 4, 8, 16, 32K tokens, memory of ${pair%%:*}, ms" "${pair#*:}" "$(medians context_k '1 2 4 8 16 32' tpot_ms memory "${pair%%:*}" | rounded)" - \
            "$(shape "$(medians context_k '1 4 32' tpot_ms memory "${pair%%:*}")" 'v[2] < 1.5 * v[1] && v[3] > v[2]' 'same' 'not shown')"
    done
}

# ---- TPI-LLM

tpi() { # PART LEARN OPTION...
    _part=$1 _learns_tpi=$2
    shift 2
    learn_and_measure runs "$_learns_tpi" tpi --sample 100 --set parts="$_part" --set models="$(if_tiny 1b-2 '8b-4 1b-8')" --set n_tokens="$(if_tiny 4 16)" "$@"
}
paper_tpi_tables() {
    tpi 'tables memory' 'windows=2 retains=0' --set devices="$(if_tiny 2 '2 4 8')"
    taken runs/tables.csv
    cp "$raw/runs/memory.csv" "$folder/memory.csv"
    figure_of scheduler on devices others_mib model
    for scheduler in off on; do
        result 'TPI-LLM Table 1, 2' "memory of a worker, 2, 4, 8 devices, scheduler $scheduler, model of 4 layers of 8B, MiB" "$([ $scheduler = on ] && echo '5.9 5.6 5.4 GB (8B, F32)' || echo '18.4 11.8 8.5 GB (8B, F32)')" \
            "$(medians devices '2 4 8' others_mib model 8b-4 scheduler $scheduler | rounded)" - \
            "$(shape "$(medians devices '2 8' others_mib model 8b-4 scheduler $scheduler)" "v[2] < $([ $scheduler = off ] && echo 0.5 || echo 0.8) * v[1]" \
                "$([ $scheduler = off ] && echo 'same: falls with the number of devices' || echo 'better: falls, because workers hold no embedding')" 'not shown')"
    done
    result 'TPI-LLM Table 6' 'error of the formula for memory, windows of 2 and 4, %: median (least to most)' - "$(column "$folder/memory.csv" error_percent | spread)" - 'new: the paper shows no error'
}
paper_tpi_figure5() {
    tpi devices 'rates=1gbit speeds=16x' --set speeds="$(if_tiny 16x '16x 32x')"
    taken runs/figure5.csv
    figure devices tpot_ms series
    result 'TPI-LLM Fig. 5' 'TPOT of 1, 2, 4, 8 devices, 16x slower, 300 Mbit/s, ms' 'falls with devices and cores; bandwidth hardly counts' "$(medians devices '1 2 4 8' tpot_ms series '16x 300mbit' | rounded)" - \
        "$(shape "$(medians devices '2 8' tpot_ms series '16x 300mbit')" 'v[2] < v[1]' same 'not shown')"
}
paper_tpi_figure7() {
    tpi sums 'rtts=0.4' --set rtts="$(if_tiny 2 '0.4 2 5')"
    taken runs/figure7.csv
    figure rtt_ms tpot_ms way
    result 'TPI-LLM Fig. 7' 'TPOT at an RTT of 5 ms: mesh, star, tree, ring, ms' 'star is half of tree and ring' "$(medians way 'mesh star tree ring' tpot_ms rtt_ms "$(if_tiny 2 5)" | rounded)" - \
        "$(shape "$(medians way 'mesh star tree ring' tpot_ms rtt_ms "$(if_tiny 2 5)")" 'v[1] < v[3] && v[2] < v[3] && v[2] < v[4]' 'same: the ways with fewer hops are faster' 'not shown')"
}

# ---- the thesis

paper_thesis_errors() {
    learn_and_measure rows 'n_tokens=8' predict --set only="$(if_tiny s1 '')" --set n_tokens="$(if_tiny 8 '')"
    taken rows/rows.csv
    figure tpot_ms predicted_ms
    result 'thesis Table 7.4' 'mean error of predictions before a run, %' '10 to 16' "$(column "$raw/rows/errors.csv" error_percent kind all)" - "$(shape "$(column "$raw/rows/errors.csv" error_percent kind all)" 'v[1] < 10' better 'not shown')"
    result 'thesis Table 7.5' 'with corrections while it runs, %' '4.4 to 12' "$(column "$raw/rows/errors.csv" corrected_error_percent kind all)" - \
        "$(shape "$(column "$raw/rows/errors.csv" corrected_error_percent kind all)" 'v[1] < 4.4' better 'not shown')"
}
paper_thesis_churn() {
    learn_and_measure churn 'parts=3 plans=even' churn --set parts="$(if_tiny 3 '3 5 free churn')" --set plans="$(if_tiny even 'even static dynamic')"
    taken churn/shares.csv
    figure workers before plan
    [ -n "$tiny" ] || for workers in 3 5; do
        result 'thesis Fig. 7.7 (RQ4)' "tokens/s of $workers workers: evenly, by a plan" 'a plan is faster' "$(medians plan 'even dynamic' before workers $workers | rounded)" \
            "$(medians plan 'even dynamic' predicted workers $workers | rounded)" "$(shape "$(medians plan 'even dynamic' before workers $workers)" 'v[2] > v[1]' same 'not shown')"
    done
    [ -n "$tiny" ] || result 'thesis Fig. 7.11' 's without a token after aidos leaves, thor leaves, aidos joins, thor joins' '7 27 8 -' \
        "$(column "$raw/churn/events.csv" pause_s plan dynamic | words | rounded)" - "$(shape "$(column "$raw/churn/events.csv" pause_s plan dynamic | words)" 'v[1] < 7 && v[2] < 27' better 'not shown')"
}
# Prompts and replies of the thesis: chat 25 and 128 tokens, creative 25 and 1024, summarization 1024 and 128.
bench() { # FILE OPTION...
    _bench=$1
    shift
    once "$_bench" "$kin" bench --json --reps 1 "$@"
}
tokens_per_s() { of "$1" "(1000 * $2 / (.ttft_ms + .tpot_ms * ($2 - 1))) * 10 | round / 10"; } # FILE TOKENS
model_of() { # NAME OPTION... -> prints its path
    _made=$build/bench/$1.gguf
    shift
    mkdir -p "$build/bench"
    [ -f "$_made" ] || { "$build/mkmodel" --preset 551m-32l "$@" -o "$_made.part" >&2 && mv "$_made.part" "$_made"; }
    echo "$_made"
}
paper_thesis_lengths() {
    weights=$(model_of paper-lengths --layers 12 --embd 1024 --ff 2816 --heads 8 --heads-kv 4)
    table kind,repeat,tokens_per_s
    for repeat in $(seq "$repeats"); do
        for kind in chat:25:128 creative:25:1024 summarization:1024:128; do
            lengths=${kind#*:}
            n=$(if_tiny 4 "${lengths#*:}")
            bench "${kind%%:*}-$repeat.json" -m "$weights" --ctx 2048 --prompt "${lengths%:*}" --gen "$n"
            line "${kind%%:*},$repeat,$(tokens_per_s "${kind%%:*}-$repeat.json" "$n")"
        done
    done
    figure kind tokens_per_s
    got=$(medians kind 'chat creative summarization' tokens_per_s)
    result 'thesis Fig. 7.3' 'tokens/s with a short prompt and reply, a long reply, a long prompt' 'long ones keep a quarter' "$(echo "$got" | rounded)" - \
        "$(shape "$got" 'v[2] > 0.25 * v[1] && v[3] > 0.25 * v[1]' 'better: attention reads the KV cache once' 'not shown')"
}
paper_thesis_sizes() {
    table megabytes,repeat,tokens_per_s
    for repeat in $(seq "$repeats"); do
        for layers in 4 8 16 32; do
            weights=$(model_of "table4-$layers" --layers $layers)
            bench "$layers-$repeat.json" -m "$weights" --ctx 256 --prompt 25 --gen "$(if_tiny 2 128)"
            line "$(($(wc -c <"$weights") / 1000000)),$repeat,$(tokens_per_s "$layers-$repeat.json" "$(if_tiny 2 128)")"
        done
    done
    figure megabytes tokens_per_s
    sizes_mb=$(ours megabytes repeat 1 | words)
    got=$(for mb in $sizes_mb; do ours tokens_per_s megabytes "$mb" | middle; done | words)
    result 'thesis Fig. 7.4' "tokens/s of models of $sizes_mb MB" 'falls a little less than the size grows' "$(echo "$got" | rounded)" - \
        "$(shape "$got $sizes_mb" 'v[1] / v[4] < 1.1 * v[8] / v[5]' same 'not shown')"
}
paper_thesis_workers() {
    learn_and_measure ring 'rtts=0.4 repeats=1' group --set kinds='alone even' --set rtts="$(if_tiny 0.4 '0.4 20')" --set repeats="$repeats"
    taken ring/group.csv
    figure rtt_ms tpot_ms kind
    result 'thesis Fig. 7.5' 'TPOT of one device and of a ring of two, fast network (0.4 ms) and 20 ms, ms' '16, 20; 39, 84' \
        "$(for rtt in 0.4 20; do for kind in alone even; do ours tpot_ms rtt_ms $rtt kind $kind | middle; done; done | words | rounded)" - \
        "$(shape "$(for kind in alone even; do ours tpot_ms rtt_ms 20 kind $kind | middle; done | words)" 'v[2] > v[1]' 'same: on a slow network latency is the largest part' 'not shown')"
}
