#!/bin/sh
# kin plan --what-if as a user meets it: the plan for a file of facts, refused input, and the documentation showing exactly this output.
# Computes only plans.
#
#   test_plan_cli.sh PATH_TO_KIN      (mkmodel is in the same folder)
set -u
# shellcheck source=tests/checks.sh
. "$(dirname "$0")/checks.sh"
root=$(cd "$(dirname "$0")/.." && pwd)
facts=$root/assets/facts

# plan STATUS WORD...: runs kin plan.
plan() {
    expected=$1
    shift
    status "$expected" "$kin" plan "$@"
}

# ---- plans

claim='the plan of A.4 with 70B is the one in docs/PLANNING.md, sentence by sentence'
plan 0 --what-if "$facts/a4-70b.json"
silent "$err"
sed -n '/^## Selection/,/^## Beside/s/^    //p' "$root/docs/PLANNING.md" >"$dir/shown"
[ "$(wc -l <"$dir/shown")" -ge 4 ] || fail 'the section Selection shows nothing'
while read -r line; do
    grep -q -x -F "$line" "$out" || fail "not printed: $line"
done <"$dir/shown"

claim='the examples in docs/PLANNING.md are what is printed'
"$kin" plan --scheduler help >"$out"
if grep -q '^halda .*without HiGHS' "$out"; then all=; else all=--all; fi
for words in 'table3-70b.json' ${all:+"a4-70b.json --all"}; do
    awk -v command="    \$ kin plan --what-if assets/facts/$words" '
        $0 == command { on = 1; next }
        on && !/^(    .*)?$/ { exit }
        on { sub(/^    /, ""); text = text $0 "\n"; if ($0 != "") whole = text }
        END { printf "%s", whole }' "$root/docs/PLANNING.md" >"$dir/shown"
    # shellcheck disable=SC2086 # a file and an option
    plan 0 --what-if "$facts"/$words
    [ -s "$dir/shown" ] || fail "docs/PLANNING.md does not show $words"
    cmp -s "$dir/shown" "$out" || fail "$words: $(diff "$dir/shown" "$out" | head -n 4)"
done

claim='a small model stays on one device'
plan 0 --what-if "$facts/a4-8b.json"
says "$out" '^laptop *32 *32 '
says_not "$out" '^host PC *[0-9]'
says_not "$out" 'network'

claim='every example has a plan that fits on 100 columns'
for file in "$facts"/*.json; do
    plan 0 --what-if "$file"
    silent "$err"
    says "$out" '^a token .*tokens/s'
    says "$out" '^a prompt '
    [ "$(awk 'length > 100' "$out" | wc -l)" -eq 0 ] || fail "$(basename "$file"): $(awk 'length > 100' "$out")"
done

claim='more rounds where the disk is the limit, and as many as are asked for'
plan 0 --what-if "$facts/table3-70b.json"
says "$out" '6 passes around the ring'
says "$out" '^  waiting for disks'
plan 0 --what-if "$facts/table3-70b.json" --rounds 2
says "$out" '2 passes around the ring'

claim='a plan that ignores a metric is predicted with it, and is no faster'
plan 0 --what-if "$facts/thesis-4b.json" --json
best=$(sed -n 's/^  "tpot_ms": \([0-9.]*\),/\1/p' "$out")
for metric in speed latency bandwidth; do
    plan 0 --what-if "$facts/thesis-4b.json" --json --ignore $metric
    says "$out" "\"ignored\": \"$metric\""
    awk -v best="$best" '/^  "tpot_ms"/ { found = $2 + 0 } /"expected_tpot_ms"/ { expected = $2 + 0 } END { exit !(found >= best * 0.999999 && expected < best) }' "$out" ||
        fail "without $metric: $(grep tpot "$out")"
done
plan 0 --what-if "$facts/thesis-4b.json" --ignore speed
says "$out" '^planned without speed, which expected .* ms a token$'
plan 1 --what-if "$facts/thesis-4b.json" --ignore colour
says "$err" "^kin: --ignore: 'colour' is no metric; these are: speed, latency, bandwidth$"

claim='the command line wins over the work in the file'
plan 0 --what-if "$facts/a4-8b.json" --ctx 2048 --prompt 33 --cached 55 --batch 8
says "$out" 'context 2048'
says "$out" 'after 55 tokens'
says "$out" 'of 33 tokens'

claim='what --ctx has no room for is refused if it was asked for, and made smaller if it was not'
plan 0 --what-if "$facts/a4-8b.json" --ctx 8
says "$out" 'after 7 tokens'
says "$out" 'of 8 tokens'
plan 1 --what-if "$facts/a4-8b.json" --ctx 512 --cached 100000000
says "$err" '^kin: a token after 100000000 others does not fit into a context of 512; '
plan 1 --what-if "$facts/a4-8b.json" --ctx 512 --cached 512
silent "$out"
plan 0 --what-if "$facts/a4-8b.json" --ctx 512 --cached 511
plan 1 --what-if "$facts/a4-8b.json" --ctx 512 --prompt 513
says "$err" '^kin: a prompt of 513 tokens does not fit into a context of 512; '
lines "$err" 1
silent "$out"
plan 0 --what-if "$facts/a4-8b.json" --ctx 512 --prompt 512

claim='an option that a plan would not heed is refused, and in the environment it is none of its'
senseless() { # PATTERN WORD...
    pattern=$1
    shift
    plan 2 "$@"
    says "$err" "^kin plan: $pattern"
    lines "$err" 2
    silent "$out"
}
for option in '--memory 4G' '--threads 2' '--profile x' '--devices 2' --cluster --no-repack; do
    # shellcheck disable=SC2086 # an option and its value
    senseless "--what-if takes the devices from its file: unknown option '${option%% *}'" --what-if "$facts/home.json" $option
done
senseless "--what-if without -m .*: unknown option '--kv-type'" --what-if "$facts/home.json" --kv-type q8_0
senseless "--what-if without -m .*: unknown option '--wire'" --what-if "$facts/home.json" --wire f16
senseless "without --cluster .*: unknown option '--devices'" --devices 2
senseless "--all runs every scheduler: unknown option '--ignore'" --what-if "$facts/home.json" --all --ignore speed
senseless "--all runs every scheduler: unknown option '--scheduler'" --what-if "$facts/home.json" --all --scheduler exact
senseless "--all runs every scheduler: unknown option '--plan'" --what-if "$facts/home.json" --all --plan even
for option in '--accept thesis' '--gpu-layers 3' '--chunk 4' '--weights mmap' --no-flash --no-cache; do
    # shellcheck disable=SC2086
    senseless "unknown option '${option%% *}'" --cluster $option
done
plan 0 --what-if "$facts/home.json"
cp "$out" "$dir/plain"
export KIN_MEMORY=1G KIN_CLUSTER=1 KIN_DEVICES=9 KIN_PLAN=even KIN_KV_TYPE=q8_0
plan 0 --what-if "$facts/home.json"
cmp -s "$out" "$dir/plain" || fail 'the environment changes the plan of a file'
unset KIN_MEMORY KIN_CLUSTER KIN_DEVICES KIN_PLAN KIN_KV_TYPE

claim='what is saved gives the same plan; stdout is the plan, and takes no file beside it'
plan 0 --what-if "$facts/home.json" --save "$dir/saved.json"
plan 0 --what-if "$dir/saved.json"
cmp -s "$out" "$dir/plain" || fail 'another plan'
plan 2 --what-if "$facts/home.json" --save -
says "$err" '^kin plan: --save -: needs a file name'

claim='help tells what is planned where nothing is said'
plan 0 --help
says "$out" '--prompt N .*(default: '
says "$out" '--cached N .*(default: '

claim='with -m the model is that file'
"$mkmodel" --preset tiny --layers 3 --vocab 300 -o "$dir/tiny.gguf" >/dev/null
plan 0 --what-if "$facts/home.json" -m "$dir/tiny.gguf"
says "$out" '5 devices; 3 layers and the output'
says "$out" '^desktop *3 '
plan 0 --what-if "$facts/home.json" -m "$dir/tiny.gguf" --kv-type q8_0
plan 1 --what-if "$facts/home.json" -m "$dir/none.gguf"
says "$err" 'none.gguf'
"$mkmodel" --preset tiny --layers 1 --vocab 300 -o "$dir/one.gguf" >/dev/null
plan 0 --what-if "$facts/home.json" -m "$dir/one.gguf"
says "$out" '; 1 layer and the output'

claim='what a draft model would gain, and whether it is worth its memory'
draft=$root/assets/demo-draft.gguf
sed 's/"n_vocab": 128256/"n_vocab": 1408/' "$facts/a4-8b.json" >"$dir/8b.json" # the draft's vocabulary size
plan 0 --what-if "$dir/8b.json" --draft "$draft"
says "$out" '^a draft .* of the head.s memory'
says "$out" '^  90 % right .* times as fast, with [0-9]* drafted in a pass'
says "$out" '^The draft model is worth its memory if at least [0-9]* % of its tokens are accepted'
plan 0 --what-if "$facts/home.json" -m "$draft" --draft "$draft" # a draft of itself
says "$out" '^The draft model is not worth its memory here'
plan 0 --what-if "$dir/8b.json" --draft "$draft" --json
for key in memory_bytes pass_ms plain_ms beside_ms worth_from; do says "$out" "\"$key\": [0-9]"; done
plan 0 --what-if "$dir/8b.json" --draft "ngram,$draft"
says "$out" '^a draft '
plan 1 --what-if "$dir/8b.json" --draft "$dir/none.gguf"
says "$err" 'none.gguf'
plan 1 --what-if "$facts/home.json" -m "$dir/tiny.gguf" --draft "$draft"
says "$err" 'demo-draft.gguf cannot draft for this model: '
plan 1 --what-if "$facts/home.json" --draft "$draft"
says "$err" 'demo-draft.gguf: cannot be the draft model: its vocabulary has 1408 tokens, the model.s 128256'
status 0 env KIN_DRAFT=off "$kin" plan --what-if "$facts/home.json" # KIN_DRAFT is for other commands
for words in auto off ngram auto, "off,$draft" nothing; do
    plan 2 --what-if "$facts/a4-8b.json" --draft "$words"
    says "$err" "^kin plan: --draft $words: "
done

claim='a draft model with recurrent layers is refused with the sentence of kin run'
"$mkmodel" --preset tiny --arch qwen35 --interval 2 --vocab 300 -o "$dir/recurrent.gguf" >/dev/null
for model in '' "-m $dir/one.gguf"; do
    # shellcheck disable=SC2086 # none, or an option and its value
    plan 1 --what-if "$facts/home.json" $model --draft "$dir/recurrent.gguf"
    cut -d : -f 2- "$err" >"$dir/refusal"
    says "$dir/refusal" 'recurrent.gguf cannot write drafts: the states of its recurrent layers cannot go back'
done
status 1 "$kin" run -m "$dir/one.gguf" -p a -n 1 --no-cache --draft "$dir/recurrent.gguf"
cut -d : -f 2- "$err" >"$dir/of_run"
same "$dir/refusal" "$dir/of_run"

claim="draft blocks, in the model's file or in their own, take the head's memory"
for part in whole trunk blocks; do
    [ $part = whole ] && words='' || words="--draft-part $part"
    # shellcheck disable=SC2086 # none, or an option and its value
    "$mkmodel" --preset tiny --arch qwen35 --interval 2 --vocab 300 --draft-block $words -o "$dir/$part.gguf" >/dev/null
done
# head_bytes FILE WORDS...: the head's memory in the facts that a plan saves
head_bytes() {
    file=$1
    shift
    plan 0 "$@" -m "$file" --save "$dir/saved" --json
    sed -n 's/.*"memory_bytes": *\([0-9]*\).*/\1/p' "$dir/saved" | head -n 1
}
here="--profile $root/tests/machine.json --memory 100M --cache $dir/cache"
for of in "--what-if $facts/home.json" "$here"; do
    # shellcheck disable=SC2086 # options and their values
    {
        without=$(head_bytes "$dir/trunk.gguf" $of)
        inside=$(head_bytes "$dir/whole.gguf" $of --draft mtp)
        apart=$(head_bytes "$dir/trunk.gguf" $of --draft "mtp:$dir/blocks.gguf")
        by_file=$(head_bytes "$dir/trunk.gguf" $of --draft "$dir/blocks.gguf")
    }
    [ $((without - apart)) -gt 500000 ] || fail "the head's memory: $without, with draft blocks $apart"
    [ "$apart" -eq "$inside" ] || fail "in their own file: $apart, in the model's: $inside"
    [ "$apart" -eq "$by_file" ] || fail "by mtp:FILE: $apart, by FILE: $by_file"
done
plan 1 --what-if "$facts/home.json" -m "$dir/trunk.gguf" --draft mtp
says "$err" 'the file has no block for multi-token prediction'
plan 2 --what-if "$facts/home.json" --draft "mtp:$dir/blocks.gguf"
says "$err" "blocks.gguf: give the model's file with -m"

# ---- schedulers

claim='each scheduler can be asked, and all beside each other'
plan 0 --scheduler help
lines "$out" 6
halda=halda
grep -q '^halda .*without HiGHS' "$out" && halda=
for scheduler in exact memsched perfsched fill-gpus dp-sa $halda; do
    plan 0 --what-if "$facts/a4-70b.json" --scheduler "$scheduler"
    says "$out" "scheduler $scheduler"
done
says_not "$out" 'phone left out' # only `exact` gives reasons
plan 0 --what-if "$facts/a4-70b.json" --all
for scheduler in exact halda memsched perfsched fill-gpus dp-sa; do says "$out" "^$scheduler"; done
says "$out" '^exact .* x 1.00 '
says "$out" '^memsched .* x 1.30 '

claim='a scheduler without a plan says why, beside those with one'
plan 0 --what-if "$facts/table3-70b.json" --all
says "$out" '^exact .* x 1.00 '
says "$out" '^dp-sa: no plan: .*does not stream'
plan 1 --what-if "$facts/table3-70b.json" --scheduler dp-sa
says "$err" '^kin: no plan: .*does not stream'
lines "$err" 1

claim='dp-sa says so if the head cannot hold the output'
sed '0,/"memory_bytes": "2G"/s//"memory_bytes": "0.9G"/' "$facts/thesis-4b.json" >"$dir/headless.json"
plan 1 --what-if "$dir/headless.json" --scheduler dp-sa
says "$err" "^kin: no plan: the head's memory does not hold the output, and this scheduler does not stream$"

claim='without HiGHS halda says so'
if [ -z "$halda" ]; then
    plan 1 --what-if "$facts/a4-70b.json" --scheduler halda
    says "$err" 'built without .*HiGHS'
    plan 0 --what-if "$facts/a4-70b.json" --all
    says "$out" '^halda: .*built without .*HiGHS'
fi

claim='a plan by a rule or a person is predicted as kin run would use it'
plan 0 --what-if "$facts/table3-70b.json" --plan even --rounds 4
says "$out" 'scheduler none (--plan even)'
says "$out" '^D1 .* 20 .* 4 x 5 '
says "$out" '; 4 passes around the ring'
plan 0 --what-if "$facts/table3-70b.json" --plan memory
says "$out" '^D2 .* 18 '
echo '{"devices": [{"device": "D2", "window": 5, "gpu_layers": 1}, {"device": "head", "window": 3, "gpu_layers": 2, "memory": "4G"},
    {"device": "D1", "window": 2}]}' >"$dir/by-hand.json"
plan 0 --what-if "$facts/table3-70b.json" --plan "$dir/by-hand.json"
says "$out" 'scheduler none (--plan FILE)'
says "$out" '^D2 .* 40 .* 8 x 5 '
says "$out" '^D3 .* 24 .* 8 x 3 .* [34][.0-9]* GiB .* GiB .* GiB ' # with 4 GiB of memory the head streams
plan 1 --what-if "$facts/table3-70b.json" --plan "$dir/none.json"
says "$err" '^kin: --plan .*/none.json: there is no such file, and the words are auto, even, memory and tp$'
lines "$err" 1
sed -i 's/D1/D9/' "$dir/by-hand.json"
plan 1 --what-if "$facts/table3-70b.json" --plan "$dir/by-hand.json"
says "$err" "^kin: device 'D9' of the plan has not joined"
for words in '--ignore speed' '--scheduler halda' '--halda released'; do
    # shellcheck disable=SC2086 # words
    plan 2 --what-if "$facts/table3-70b.json" --plan even $words
    says "$err" '^kin plan: --plan even cannot be combined with --'
done
plan 2 --what-if "$facts/table3-70b.json" --plan "$dir/by-hand.json" --rounds 2
says "$err" 'cannot be combined with --rounds'

claim='rounds that cannot be are refused'
plan 1 --what-if "$facts/a4-70b.json" --rounds 81
says "$err" '81 rounds for 80 layers'
plan 1 --what-if "$facts/a4-70b.json" --rounds 2 --scheduler dp-sa
says "$err" 'dp-sa chooses'

claim='perfsched has one round, and halda obeys a divisor of the layers'
plan 1 --what-if "$facts/a4-70b.json" --rounds 2 --scheduler perfsched
says "$err" '^kin: perfsched chooses the number of rounds itself'
if [ -n "$halda" ]; then
    plan 0 --what-if "$facts/a4-70b.json" --rounds 2 --scheduler halda
    says "$out" '; 2 passes around the ring'
    plan 1 --what-if "$facts/a4-70b.json" --rounds 7 --scheduler halda
    says "$err" '^kin: halda: 80 layers cannot be divided into 7 rounds'
fi

claim='halda has two objectives, and no other scheduler has them'
if [ -n "$halda" ]; then
    for objective in published released; do
        plan 0 --what-if "$facts/a4-70b.json" --scheduler halda --halda $objective
        cp "$out" "$dir/$objective"
    done
    says "$dir/published" '^host PC  *29 '
    says "$dir/released" '^host PC  *19 '
fi
plan 0 --what-if "$facts/a4-70b.json" --all --halda released
plan 2 --what-if "$facts/a4-70b.json" --scheduler halda --halda new
says "$err" '^kin plan: --halda new: must be published or released'
plan 2 --what-if "$facts/a4-70b.json" --halda released
says "$err" '^kin plan: --halda released: only --scheduler halda has it, not exact'
export KIN_HALDA=released
plan 0 --what-if "$facts/a4-70b.json" --scheduler exact
unset KIN_HALDA

claim='an unknown scheduler is a usage error'
plan 2 --what-if "$facts/a4-70b.json" --scheduler best
says "$err" '^kin plan: --scheduler best'
silent "$out"

# ---- JSON

claim='--json prints one object with the same figures'
for words in '' '--all'; do
    # shellcheck disable=SC2086 # no word is one too
    plan 0 --what-if "$facts/table3-70b.json" --json $words
    silent "$err"
    [ "$(head -c 1 "$out")" = '{' ] || fail 'no object'
    if command -v python3 >/dev/null; then python3 -m json.tool "$out" >/dev/null || fail 'no JSON'; fi
done
says "$out" '"schedulers": \['
says "$out" '"no_plan": "no plan: '
says "$out" '"n_ctx": 1024'
plan 0 --what-if "$facts/a4-70b.json" --json
for key in tpot_ms ttft_ms hops_ms compute_ms resident_bytes streamed_bytes memory_bytes; do
    says "$out" "\"$key\": [0-9]"
done
says "$out" '"tpot_ms": 69[67]'
for key in resident_bytes gpu_resident_bytes streamed_bytes memory_bytes gpu_bytes; do
    says "$out" "\"$key\": [0-9]"
    says_not "$out" "\"$key\": .*[.e]"
done
for work in '"n_ctx": 1024' '"n_cached": 128' '"n_prompt": [0-9]' '"n_batch": [0-9]'; do says "$out" "$work"; done
says "$out" '"why": "phone left out: it would add 27.1 ms/token"'
says "$out" '"layer_begin": '

claim='a bound is not above the time that it bounds, in any plan'
if command -v python3 >/dev/null; then
    for file in "$facts"/*.json; do
        plan 0 --what-if "$file" --json
        python3 - "$out" <<'EOF' || fail "$file"
import json, sys
plan = json.load(open(sys.argv[1]))
closed = plan["closed_form"]
sys.exit("bound_ms" in plan or closed.get("bound_ms", 0) > closed["tpot_ms"] * (1 + 1e-9))
EOF
    done
fi

claim='where a token is simulated, the proof stands beside the time that it is of'
plan 0 --what-if "$facts/table3-70b.json"
says "$out" '^closed form   1.76 s  by which no plan is faster'
says_not "$out" 'round the ring; no plan'
plan 0 --what-if "$facts/a4-70b.json"
says "$out" 'round the ring; no plan is faster'

claim='of a text that has no token yet, as of a file with n_cached 0'
plan 0 --what-if "$facts/a4-8b.json" --cached 0
says "$out" ' after 0 tokens'

claim='what lies on a GPU is told without its KV cache and buffers, as what lies in RAM is'
if command -v python3 >/dev/null; then
    for n_ctx in 512 2048; do
        plan 0 --what-if "$facts/a4-70b.json" --ctx $n_ctx --json
        python3 - "$facts/a4-70b.json" "$out" 2>"$err" <<'END' || fail "a context of $n_ctx: not the weights"
import json, sys
model = json.load(open(sys.argv[1]))["model"]
plan = json.load(open(sys.argv[2]))
on_gpu = [d for d in plan["devices"] if d["gpu_layers"]]
assert on_gpu
for d in on_gpu:
    weights = d["gpu_layers"] * sum(model["layer_bytes"].values())
    cache = d["gpu_layers"] * model["kv_bytes"] * plan["work"]["n_ctx"]
    assert abs(d["gpu_resident_bytes"] - weights) < 2, (d["gpu_resident_bytes"], weights)
    assert d["gpu_bytes"] >= weights + cache - 2, (d["gpu_bytes"], weights, cache)
END
    done
fi

# ---- nonsense

# nonsense NAME MEMBERS: writes a file with a good head, a good device, and a third device with these members.
nonsense() {
    cat >"$dir/$1.json" <<END
{"devices": [
  {"name": "head", "memory_bytes": "2G", "cpu": {"token_bytes_per_s": 4e10, "prompt_flop_per_s": 2e11, "read_bytes_per_s": 4e10}},
  {"name": "good", "memory_bytes": "2G", "cpu": {"token_bytes_per_s": 4e10, "prompt_flop_per_s": 2e11, "read_bytes_per_s": 4e10}},
  {"name": "odd", $2}],
 "links": {"default": {"rtt_s": 0.001, "bytes_per_s": 1e8}},
 "model": {"n_layer": 30, "n_vocab": 1000, "hidden_bytes": 8192, "layer_bytes": {"Q4_K": 1e8}, "layer_flops": {"Q4_K": 4e8},
           "block_bytes": 6e7, "unit_bytes": 25e6, "input_bytes": 1e8, "output_bytes": {"Q6_K": 1e8},
           "output_flops": {"Q6_K": 2e8}, "kv_bytes": 1024}}
END
}
cpu='"cpu": {"token_bytes_per_s": 4e10, "prompt_flop_per_s": 2e11, "read_bytes_per_s": 4e10}'
refused() { # NAME PATTERN
    plan 0 --what-if "$dir/$1.json"
    silent "$err"
    says "$out" "^odd refused: .*$2"
    says "$out" '^head  *1[0-9] '
    says "$out" '^good  *1[0-9] '
    says_not "$out" '^odd  *[0-9]'
    plan 0 --what-if "$dir/$1.json" --scheduler memsched
    says "$out" "^odd refused: .*$2"
    plan 0 --what-if "$dir/$1.json" --all
    says "$out" "^odd refused: .*$2"
    plan 0 --what-if "$dir/$1.json" --all --json
    says "$out" "\"why\": \"odd refused: .*$2"
}

claim='nonsense of one device is refused with a reason, and the others are planned'
nonsense negative "\"memory_bytes\": -8589934592, $cpu"
refused negative 'memory is negative'
nonsense petabyte "\"memory_bytes\": 1e15, $cpu"
refused petabyte 'memory is too large (1e+15'
nonsense nothing "\"memory_bytes\": 0, $cpu"
refused nothing 'memory is too small'
nonsense zero '"memory_bytes": "8G", "cpu": {"token_bytes_per_s": 0, "prompt_flop_per_s": 1e11, "read_bytes_per_s": 1e10}'
refused zero 'the rate for Q4_K weights is missing'
nonsense light '"memory_bytes": "8G", "cpu": {"token_bytes_per_s": 1e30, "prompt_flop_per_s": 1e11, "read_bytes_per_s": 1e10}'
refused light 'bytes per second is too large'
nonsense disk "\"memory_bytes\": \"8G\", \"disk_bytes_per_s\": -1, $cpu"
refused disk 'disk rate is negative'
nonsense alone "\"memory_bytes\": \"8G\", $cpu"
sed 's/"links": {/&"pairs": [{"from": "odd", "to": "head", "bytes_per_s": 0}, {"from": "odd", "to": "good", "rtt_s": -1}], /' \
    "$dir/alone.json" >"$dir/lonely.json"
refused lonely 'no usable link'

claim='a plan by a rule that uses such a device is refused with the reason; one that does not is predicted'
for word in even tp; do
    plan 1 --what-if "$dir/light.json" --plan $word
    says "$err" "^kin: --plan $word uses 'odd', whose facts cannot be: CPU: .*bytes per second is too large"
    lines "$err" 1
    silent "$out"
done
plan 1 --what-if "$dir/negative.json" --plan even
says "$err" "^kin: --plan even uses 'odd', whose facts cannot be: memory is negative"
plan 0 --what-if "$dir/negative.json" --plan memory # it gets no layers
says "$out" '^good  *15 '
echo '{"devices": [{"device": "good", "window": 14, "memory": "0"}, {"device": "head", "window": 16}]}' >"$dir/by-hand.json"
plan 1 --what-if "$dir/negative.json" --plan "$dir/by-hand.json"
says "$err" '^kin: .*by-hand.json: device 1: "memory" must be a size$'
sed -i 's/"0"/"2G"/' "$dir/by-hand.json"
plan 0 --what-if "$dir/negative.json" --plan "$dir/by-hand.json"
says "$out" '^good  *14 '

claim='where the others cannot hold the model, the sentence tells who was refused'
sed 's/"2G"/"1G"/' "$dir/negative.json" >"$dir/small.json"
plan 1 --what-if "$dir/small.json"
says "$err" '^kin: no plan: .*; try a smaller --ctx; odd refused: memory is negative'
lines "$err" 1
silent "$out"
for words in '' --json; do
    # shellcheck disable=SC2086 # no word is one too
    plan 1 --what-if "$dir/small.json" --all $words
    says "$err" '^kin: no scheduler found a plan'
    lines "$err" 1
    says "$out" 'odd refused: memory is negative'
done

claim='nonsense of the head, the model or the work is one sentence'
sed 's/"head", "memory_bytes": "2G"/"head", "memory_bytes": -1/' "$dir/negative.json" >"$dir/head.json"
plan 1 --what-if "$dir/head.json"
says "$err" "^kin: the head's facts: memory is negative"
plan 1 --what-if "$dir/head.json" --all
says "$err" "^kin: the head's facts: memory is negative"
sed 's/"block_bytes": 6e7/"block_bytes": 0/' "$dir/negative.json" >"$dir/block.json"
plan 1 --what-if "$dir/block.json"
says "$err" '^kin: model: largest block is too small'

claim='a file that cannot be understood is one sentence with its name and the place'
echo '{"devices": [{"nmae": "x"}]}' >"$dir/typo.json"
plan 1 --what-if "$dir/typo.json"
says "$err" '^kin: .*typo.json: device 1: "nmae" is unknown here$'
lines "$err" 1
plan 1 --what-if "$dir/none.json"
says "$err" "^kin: $dir/none.json: No such file or directory\$"
printf '{"devices": [{"name": "x", "memory_bytes": "1G", %s}]}' "$cpu" >"$dir/no_model.json"
plan 1 --what-if "$dir/no_model.json"
says "$err" 'no_model.json: contains no "model"; give one with -m'

claim='a browser is named as one, whether it has layers or not'
sed 's/"android"/"browser"/; s/"macos"/"browser-gpu"/' "$facts/home.json" >"$dir/tabs.json"
plan 0 --what-if "$dir/tabs.json"
says "$out" '^phone (browser) left out: it would add '
plan 0 --what-if "$dir/tabs.json" --json
[ "$(grep -c '"os": "browser"' "$out")" = 1 ] || fail 'not one is a browser'
sed '18s/"linux"/"browser"/' "$facts/home.json" >"$dir/tabs.json"
plan 0 --what-if "$dir/tabs.json"
says "$out" '^work laptop (browser)  *[0-9]'
says "$out" '^work laptop (browser): [0-9]* layers; without it '

claim='devices that share layers inside of a ring are one row, and are named with what their sums cost'
pair() { # RTT_S: two devices with that round trip between them and the head 5 ms away; the model does not fit on one of them
    member='"memory_bytes": 2.6e9, "cpu": {"token_bytes_per_s": 45e9, "prompt_flop_per_s": 2e11, "read_bytes_per_s": 2e10}'
    printf '{"devices": [{"name": "head", %s}, {"name": "den", %s}, {"name": "desk", %s}],' "$member" "$member" "$member"
    echo '"links": {"default": {"rtt_s": 5e-3, "bytes_per_s": 125e6}, "pairs": [{"from": "den", "to": "desk", "rtt_s": '"$1"'}]},
        "model": {"n_layer": 32, "n_vocab": 128256, "hidden_bytes": 16384, "layer_bytes": {"Q4_K": 124e6},
        "layer_flops": {"Q4_K": 436e6}, "attn_bytes": 24e6, "block_bytes": 33e6, "unit_bytes": 33e6, "input_bytes": 295e6,
        "output_bytes": {"Q4_K": 295e6}, "output_flops": {"Q4_K": 1e9}, "kv_bytes": 4096, "share_heads": 8, "share_ff": 56}}'
}
pair 1e-4 >"$dir/pair.json"
plan 0 --what-if "$dir/pair.json"
says "$out" '^den + desk  *[0-9]'
says "$out" '^  sums of groups'
says "$out" '^a group is faster: den + desk share [0-9]* layers, 2 x [0-9]* sums of 0\.20 ms cost .* ms; tensor parallelism gains '
says "$out" '^den: shares [0-9]* layers with desk; without it [0-9.]* ms/token more$'
says "$out" '^desk: shares [0-9]* layers with den; without it [0-9.]* ms/token more$'
pair 1e-4 | sed 's/"cpu"/"disk_bytes_per_s": 1e9, &/g' >"$dir/disks.json"
plan 0 --what-if "$dir/disks.json" --cached 128
for who in den desk; do says "$out" "^$who  *[0-9.]* s .* recomputing 128 tokens *\$"; done
plan 0 --what-if "$dir/pair.json" --json
says "$out" '"groups": \['
says "$out" '"saves_ms": '
says "$out" '"reason": "den and desk share the layers because together they are [1-9]\.[0-9] times as fast as one after the other"'
pair 1e-4 | sed 's/2\.6e9/1e9, "disk_bytes_per_s": 1e9/g; s/"kv_bytes"/"output_blocks": 19, &/' >"$dir/streams.json"
plan 0 --what-if "$dir/streams.json"
says "$out" '^a group is faster: .* share [0-9]* layers, [0-9]* of them from disk, 2 x [0-9]* sums of .* ms of waiting for disks: '
plan 0 --what-if "$dir/streams.json" --json
says "$out" '"layers_from_disk": [1-9]'
pair 5e-3 >"$dir/far.json"
plan 0 --what-if "$dir/far.json"
says "$out" '^no group: .* share [0-9]* layers, 2 x [0-9]* sums of 2\.'
plan 0 --what-if "$dir/far.json" --json
if grep -q '"groups"' "$out"; then fail 'groups where there are none'; fi

claim='one plain sentence says why devices compute together, or one alone'
says "$out" '"reason": "head and den compute the layers one after the other because head alone lacks memory for the model"'
pair 5e-3 | sed 's/2\.6e9/9e9/g' >"$dir/room.json"
plan 0 --what-if "$dir/room.json" --json
says "$out" '"reason": "head computes all layers: more devices would not be faster"'
pair 5e-3 | sed 's/2\.6e9/9e9/g; s/"token_bytes_per_s": 45e9/"token_bytes_per_s": 5e9/' >"$dir/slow_head.json"
plan 0 --what-if "$dir/slow_head.json" --json
says "$out" '"reason": "de[ns]k* computes all layers because it is [1-9]\.[0-9] times as fast as head alone"'

claim='sums are as long as --wire makes them'
"$mkmodel" --preset tiny --heads 8 --heads-kv 4 --layers 3 --vocab 300 --type f16 -o "$dir/shared.gguf" >/dev/null
slow='"memory_bytes": 2.6e9, "cpu": {"token_bytes_per_s": 1e4, "prompt_flop_per_s": 1e6, "read_bytes_per_s": 1e7}'
printf '{"devices": [{"name": "desk", %s}, {"name": "den", %s}], "links": {"default": {"rtt_s": 1e-6, "bytes_per_s": 1e3}}}' \
    "$slow" "$slow" >"$dir/slow.json"
for pair in f32:4 f16:2 q8:1.0625; do
    plan 0 --what-if "$dir/slow.json" -m "$dir/shared.gguf" --wire "${pair%:*}"
    n_embd=$(sed -n 's/.* sums of \([0-9.]*\) ms cost.*/\1/p' "$out" | awk -v bytes="${pair#*:}" '{ printf "%.0f", $1 / bytes }')
    [ -n "${first:-}" ] || first=$n_embd
    [ "$n_embd" -gt 0 ] && [ "$n_embd" = "$first" ] || fail "$n_embd values by ${pair%:*}, $first by f32"
done

claim='a name cannot move the cursor'
sed 's/"good"/"\\u001b[2Jgood"/' "$dir/negative.json" >"$dir/cursor.json"
plan 1 --what-if "$dir/cursor.json"
says "$err" 'device 2: "name": must be a name without control characters'

tally
