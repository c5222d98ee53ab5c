# shellcheck shell=sh disable=SC2154
# thesis.sh: experiments of the thesis on dynamic graph partitioning, and TPI-LLM's laptops, that need only plans.

paper_thesis_dp() {
    n=17000
    [ -z "$tiny" ] || n=3000
    once dp.csv "$build/paper" dp $n
    cp "$raw/dp.csv" "$folder/$name.csv"
    result 'thesis chapter 5' 'instances in which the dynamic program is the best of all orders and divisions' 'all (claimed)' \
        "$(ours equal) of $(ours with_a_plan)" - 'same: brute force finds nothing better'
}
paper_thesis_orders() {
    n=100
    [ -z "$tiny" ] || n=1
    once orders.csv "$build/paper" orders $n
    cp "$raw/orders.csv" "$folder/$name.csv"
    figure workers mean_excess_percent search
    for search in annealed random; do
        result 'thesis section 8.2.5' "$search orders of 8, 10, ... 20 workers: % above the optimum on average (worst)" 'left open' \
            "$(ours mean_excess_percent search $search | words) ($(ours worst_excess_percent search $search | sort -n | tail -n 1))" - \
            "$([ $search = random ] || echo 'new: it tries at most 1010 orders, and stops after 200 without a better one')$([ $search = annealed ] || echo 'new: 2000 orders')"
    done
}

# Figures 7.9 and 7.10: what a plan expects, and what it takes, without one metric. Memory for 3 of 5 workers, or for all of them.
ablation_of() { # NETWORK WORKERS FILTER
    for metric in none speed latency bandwidth; do
        ablation="$1-$2-$metric.json"
        # shellcheck disable=SC2046 # an option and its value
        plan "$ablation" "$(facts thesis thesis-4b "$3")" --scheduler dp-sa $([ $metric = none ] || echo --ignore $metric)
        line "$1,$2,$metric,$(of "$ablation" '.expected_tpot_ms // .tpot_ms // "" | if type == "number" then . * 10 | round / 10 else . end'),$(tpot_of "$ablation")"
    done
}
paper_thesis_ablation() {
    # Littlecorn 5 ms, 10 and 50 MB/s; Aidos 100 ms; Pgx 128 KB/s. A pair's way leads through the server.
    slow='.links.pairs = [.links.pairs[]? | .rtt_s += 0.005 | .bytes_per_s = ([.bytes_per_s, 10e6] | min)
        | if .from == "Aidos" or .to == "Aidos" then .rtt_s += 0.1 else . end
        | if .from == "Pgx" or .to == "Pgx" then .bytes_per_s = 128e3 else . end]
        | if .links.default then .links.default.rtt_s += 0.005 else . end'
    three='.devices |= map(if .name == "server" then . else .memory_bytes = ([.memory_bytes, 6.3e9] | min) end)'
    five='.devices |= map(if .name == "server" then . else .memory_bytes = ([.memory_bytes, 3.9e9] | min) end)'
    table network,workers,ignored,expected_ms,tpot_ms
    for pair in "3:$three" "5:$five"; do
        ablation_of fast "${pair%%:*}" "${pair#*:}"
        ablation_of slow "${pair%%:*}" "${pair#*:} | $slow"
    done
    figure_of network 'slow' ignored tpot_ms
    for network in fast slow; do
        result 'thesis Fig. 7.9 (RQ5)' "expected TPOT with all metrics; without speed, latency, bandwidth; $network network, 5 workers, ms" \
            "$([ $network = fast ] && echo '288; 13, and the network counts for nothing' || echo 'larger errors everywhere')" - \
            "$(ours expected_ms network $network workers 5 | words | rounded)" "$(shape "$(ours expected_ms network $network workers 5 | words)" 'v[2] < 0.6 * v[1]' 'same: without speed the estimate means nothing' 'not shown')"
    done
    result 'thesis Fig. 7.10 (RQ5)' 'TPOT of the plans with all metrics; without speed, latency, bandwidth; slow network, 3 workers, ms' 'worst without bandwidth' - \
        "$(ours tpot_ms network slow workers 3 | words | rounded)" "$(shape "$(ours tpot_ms network slow workers 3 | words)" 'v[4] > v[1] && v[4] > v[3]' 'same: without bandwidth the plan uses Pgx over 128 KB/s' 'not shown: the plan does not need the slow link')"
}

# ---- TPI-LLM, Table 3: four laptops, F32

paper_tpi_laptops() {
    table model,who,tpot_ms,ttft_ms
    while read -r model latency ttft heads; do
        plan "$model.json" "$(facts laptops "$model" ".model.share_heads = $heads | .model.share_ff = 64 | .work.n_prompt = 16")"
        line "$model,TPI-LLM,$latency,$ttft"
        line "$model,kin,$(tpot_of "$model.json"),$(of "$model.json" '.ttft_ms // ""')"
    done <<END
f32-3b 2000 2500 32
f32-7b 5000 6000 32
f32-13b 9000 10000 40
f32-8b 8000 11000 8
f32-34b 29000 33000 8
END
    figure_of who kin model tpot_ms
    result 'TPI-LLM Table 3' 's per token of 3, 7, 13, 8, 34B (F32) on four laptops' '2 5 9 8 29' - \
        "$(ours tpot_ms who kin | awk '{ print $1 / 1000 }' | words | rounded)" 'better: weights stay in memory where there is room, where TPI-LLM reads all of them for each token'
}
