#!/bin/sh
# Runs kin beside a program that allocates memory, both in one cgroup whose limit fits the model but not both programs.
# Records memory and speed over time, as CSV and as a plot. Needs root (lab/limit makes cgroups).
#
#   sudo bench/governor.sh [OUT.svg] [MODEL.gguf]
#
# MEMORY: the cgroup's limit in MiB (default: the model's size and 160 MiB). HOG: options of bench/hog. DISK: bytes per second.
# OUT.csv, beside the plot: seconds; MiB of the cgroup, of the hog, of kin's budget and of its resident weights; tokens so far; kin's
# time stamp in ms.
set -eu
build=${BUILD:-build}
out=${1:-$build/bench/governor.svg}
model=${2:-$build/bench/1b.gguf}
threads=${THREADS:-2}
hog=${HOG:---bytes 400M --step 25M --every-ms 200 --wait-ms 10000 --hold-ms 10000 --cycles 1}
disk=${DISK:-1000000000}
seconds=${SECONDS_MAX:-45}
cache=$build/bench/cache
kin=$build/kin
here=${0%/*}
[ "$(id -u)" = 0 ] || { echo "governor: needs root" >&2; exit 77; }

mkdir -p "$build/bench"
[ -f "$model" ] || "$build/mkmodel" --preset 1b -o "$model" >&2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
memory=${MEMORY:-$(($(wc -c <"$model") / 1048576 + 160))}
"$kin" run -m "$model" --cache "$cache" -t "$threads" -p x -n 1 --ctx 2048 >/dev/null 2>&1 # makes the prepacked cache

# Runs in the cgroup: kin until the time is over, the hog beside it, and every 200 ms a line with the figures that both traced.
cat >"$dir/inside" <<'END'
dir=$1 seconds=$2 hog=$3
shift 3
last() { tail -n 1 "$1" 2>/dev/null | awk -F, -v n="$2" '{ print /^[0-9]/ ? $n : 0 }'; }
"$@" --trace "$dir/kin" >/dev/null 2>"$dir/log" &
kin=$!
$hog --trace "$dir/hog" &
begun=$(date +%s%N)
while :; do
    ms=$((($(date +%s%N) - begun) / 1000000))
    [ $ms -lt $((seconds * 1000)) ] && kill -0 $kin 2>/dev/null || break
    echo "$ms,$(last "$dir/hog" 2),$(last "$dir/kin" 2),$(last "$dir/kin" 3),$(last "$dir/kin" 4),$(last "$dir/kin" 1)" >>"$dir/inside.csv"
    sleep 0.2
done
kill -INT $kin 2>/dev/null || echo "kin ended early" >&2
wait $kin
wait
END

set -- --memory "${memory}M" --disk "$disk" --disk-of "$model" --sample "$dir/samples" --report "$dir/figures" --drop "$model" -- \
    sh "$dir/inside" "$dir" "$seconds" "$build/hog $hog" \
    "$kin" run -m "$model" --cache "$cache" -t "$threads" --ctx 2048 --batch 32 -p x --ignore-eos -n 0
for file in "$cache"/*.pack; do [ ! -f "$file" ] || set -- --drop "$file" "$@"; done
"$here/../lab/limit" "$@" || { echo "governor: failed" >&2; tail -n 3 "$dir/log" >&2; }

# The samples of the cgroup and of its processes have separate clocks with the same start; each line is joined with the latest earlier
# sample.
csv=${out%.svg}.csv
awk -F, '
    FNR == 1 && NR == 1 { next }
    FILENAME ~ /samples$/ { n++; t[n] = $1; used[n] = $2; next }
    {
        while (i < n && t[i + 1] <= $1) i++
        printf "%.2f,%.1f,%.1f,%.1f,%.1f,%d,%.1f\n", $1 / 1e3, used[i] / 1048576, $2 / 1048576, $3 / 1048576, $4 / 1048576, $5, $6
    }' "$dir/samples" "$dir/inside.csv" >"$dir/body"
{ echo s,cgroup_mib,hog_mib,kin_budget_mib,kin_resident_mib,tokens,token_ms; cat "$dir/body"; } >"$csv"

awk -F, -v limit="$memory" '
    function x(s) { return left + s / s_max * width }
    function y(v, top, most) { return top + height - v / most * height }
    function line(series, n, colour, top, most,    i, p) {
        for (i = 1; i <= n; i++) p = p sprintf("%.1f,%.1f ", x(time[i]), y(series[i], top, most))
        printf "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" points=\"%s\"/>\n", colour, p
    }
    function text(px, py, colour, what) { printf "<text x=\"%.0f\" y=\"%.0f\" fill=\"%s\">%s</text>\n", px, py, colour, what }
    function frame(top, most, unit,    i, v) {
        printf "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#999\"/>\n", left, top, width, height
        for (i = 0; i <= 4; i++) {
            v = most * i / 4
            printf "<text x=\"%d\" y=\"%.0f\" fill=\"#555\" text-anchor=\"end\">%g</text>\n", left - 6, y(v, top, most) + 4, v
            if (i % 4) printf "<path d=\"M%d %.1fh%d\" stroke=\"#eee\"/>\n", left, y(v, top, most), width
        }
        text(left, top - 8, "#222", unit)
    }
    function round_up(v,    ten, n) { # four steps of a round number
        ten = 10 ^ int(log(v / 4) / log(10) - (v < 4))
        n = v / 4 / ten
        return 4 * ten * (n <= 1 ? 1 : n <= 2 ? 2 : n <= 2.5 ? 2.5 : n <= 5 ? 5 : 10)
    }
    NR > 1 {
        n++
        time[n] = $1; used[n] = $2; hog[n] = $3; budget[n] = $4; resident[n] = $5; tokens[n] = $6; token_ms[n] = $7
        if ($1 > s_max) s_max = $1
    }
    END {
        left = 60; width = 720; height = 240
        # Tokens per second over at least the last second, by the clock that stamped the tokens.
        for (i = 1; i <= n; i++) {
            while (j + 1 < i && (token_ms[i] - token_ms[j + 1] >= 1000 || tokens[j + 1] == 0) && tokens[j + 1] < tokens[i]) j++
            if (tokens[i] > tokens[j] && j > 0 && tokens[j] > 0) speed[i] = 1e3 * (tokens[i] - tokens[j]) / (token_ms[i] - token_ms[j])
            else speed[i] = speed[i - 1] + 0
            if (speed[i] > fastest) fastest = speed[i]
        }
        most = round_up(limit); fastest = round_up(fastest > 0 ? fastest : 1)
        print "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 800 660\" font-family=\"sans-serif\" font-size=\"12\">"
        print "<rect width=\"800\" height=\"660\" fill=\"#fff\"/>"
        frame(40, most, "memory, MiB")
        printf "<path d=\"M%d %.1fh%d\" stroke=\"#c00\" stroke-dasharray=\"4 3\"/>\n", left, y(limit, 40, most), width
        line(used, n, "#888", 40, most); line(hog, n, "#c60", 40, most); line(budget, n, "#9c9", 40, most); line(resident, n, "#06c", 40, most)
        text(left + 170, 32, "#c00", "limit"); text(left + 220, 32, "#888", "all of the cgroup"); text(left + 340, 32, "#c60", "the other program")
        text(left + 470, 32, "#6a6", "budget for weights"); text(left + 600, 32, "#06c", "weights in memory")
        frame(350, fastest, "tokens per second"); line(speed, n, "#06c", 350, fastest)
        for (s = 0; s <= s_max; s += 5) text(x(s) - 5, 350 + height + 18, "#555", s)
        text(left + width / 2 - 20, 350 + height + 36, "#555", "seconds")
        print "</svg>"
    }' "$csv" >"$out"
cat "$dir/figures"
tail -n 4 "$dir/log"
echo "$csv"
echo "$out"
