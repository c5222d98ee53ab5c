#!/bin/sh
# The kin program as a user meets it: what it prints where, and its exit status. Runs the built-in demo model.
#
#   test_cli.sh PATH_TO_KIN      (mkmodel is in the same folder)
set -u
# shellcheck source=tests/checks.sh
. "$(dirname "$0")/checks.sh"

# ---- help

claim='the version, its commit, the kernels, the back-ends and the libraries are on stdout'
commit=
command -v git >/dev/null && commit=$(git -C "$(dirname "$0")/.." rev-parse HEAD 2>/dev/null)
for words in --version version -V; do
    status 0 "$kin" $words
    head -n 1 "$out" >"$dir/first"
    says "$dir/first" '^kin [0-9][0-9.]*\( (commit [0-9a-f]*\(-dirty\)\{0,1\})\)\{0,1\}$'
    [ -z "$commit" ] || says "$dir/first" '(commit '
    says "$out" '^kernels  *.*scalar'
    says "$out" '^ggml  *[0-9][0-9.]* with [A-Za-z]'
    for library in OpenSSL libuv llhttp wslay PCRE2 jansson; do says "$out" "^libraries .*$library [0-9]"; done
    for library in libcurl HiGHS; do says "$out" "^libraries .*\\(no $library\\|$library [0-9]\\)"; done
    lines "$out" 4
    silent "$err"
done

claim='help lists the commands'
for words in '' help --help -h 'help help'; do
    status 0 "$kin" $words
    for command in run eval bench info; do says "$out" "kin $command "; done
    silent "$err"
done

claim='every command has help with its options, asked for in either way'
for command in $("$kin" help | sed -n 's/^  kin \([a-z]*\) .*/\1/p'); do
    status 0 "$kin" help "$command"
    says "$out" "^kin $command "
    says "$out" '^ *\(-., \)\{0,1\}--[a-z]'
    silent "$err"
    cp "$out" "$dir/help"
    for flag in --help -h; do
        status 0 "$kin" "$command" $flag
        same "$out" "$dir/help"
    done
done

# ---- mistakes

claim='an unknown command is a usage error that points to help'
for words in nope 'help nope' "'two words'" ''"''"; do
    eval "status 2 \"\$kin\" $words"
    says "$err" "kin help"
    lines "$err" 1
    silent "$out"
done

claim='a wrong option is a usage error that names it and points to help'
wrong() { # PATTERN COMMAND WORD...
    pattern=$1
    shift
    status 2 "$kin" "$@"
    says "$err" "^kin $1: .*$pattern"
    says "$err" "kin help $1"
    lines "$err" 2
    silent "$out"
}
wrong "unknown option '--nope'" run --nope
wrong "unknown option '--tem'; did you mean --temp?" run --tem 1
wrong "unknown option '-x'" eval -x
wrong "unknown option '--nope=3'" bench --nope=3
wrong "unknown option '--prompt'" info --prompt x
wrong "unexpected argument 'word': .*a prompt needs -p" run -p x word
wrong "unexpected argument 'word': there is no such file" bench word
wrong "two models were given: 'a.gguf' and 'b.gguf'" run -m a.gguf -p x b.gguf
wrong '--window needs --weights window' run -p x --window 4
wrong '--retain needs --weights window' bench --weights mmap --retain 2
wrong '--window 0: must be a whole number from 1 to 1000' run -p x --weights window --window 0
wrong '--gpu-layers many: must be a number, all or auto' run -p x --gpu-layers many
wrong '--kv-type f32: must be f16 or q8_0' run -p x --kv-type f32
wrong '--weights : must be stream, mmap, mmap+willneed or window' run -p x --weights ''
wrong '--scheduler nope: must be exact, halda' run -p x --cluster --scheduler nope
wrong '--plan : must be auto, even, memory, tp or a FILE' run -p x --cluster --plan ''
wrong '--listen here: must be a numeric address' run -p x --cluster --listen here
wrong '--listen here: must be a numeric address' join --listen here
wrong 'cannot be combined with' run -p x --grammar a --json-schema b
wrong '--logit-bias 1=nan' run -p x --logit-bias 1=nan
for name in model file cache profile trace timeline; do wrong "--$name: the value is empty" run --$name ''; done
wrong "'127.0.0.1:0': the port must be 1 to 65535" join 127.0.0.1:0
wrong "'' is not an address" status ''
wrong "is not the address of a head: must be NAME or NAME:PORT, without http" join http://127.0.0.1:8080/join
wrong '-p cannot be combined with -f' run -p x -f /dev/null
wrong '--lines reads prompts from stdin and cannot be combined with -p' run --lines -p x
wrong "unexpected argument 'b'" info a b
wrong '--n needs a value' run -p x -n
wrong '--n -1: must be a whole number' run -p x -n -1
wrong '--n x: must' run -p x -n x
wrong '--ctx 999999999999: must' run -p x --ctx 999999999999
wrong '--temp -1: must be a number from 0' run -p x --temp -1
wrong '--top-p 2: must' run -p x --top-p 2
wrong '--seed x: must' run -p x --seed x
wrong '--reps 0: must' bench --reps 0
wrong '--logit-bias 3: must be' run -p x --logit-bias 3
wrong '4294967297 is not a token id' run -p x --logit-bias 4294967297=inf
wrong 'is not a token id' run -p x --logit-bias 99999999999999999999=1
wrong '-1 is not a token id' run -p x --logit-bias -1=1
wrong '--devices has no effect without --cluster' run -p x --devices 2
wrong '--rounds has no effect without --cluster' bench --rounds 2
wrong '--plan has no effect without --cluster' eval --tokens 1 --plan even
wrong '--greedy has no effect without --tokens' eval --ppl /dev/null --greedy 2
wrong '--logits has no effect without --tokens' eval --tokenize /dev/null --logits x

claim='what cannot be done is one sentence and status 1'
refused() { # PATTERN COMMAND WORD...
    pattern=$1
    shift
    status 1 "$kin" "$@"
    says "$err" "^kin: .*$pattern"
    lines "$err" 1
    silent "$out"
}
refused 'none.txt' run -f "$dir/none.txt"
refused '/none/picture.svg: No such file' run -p x -n 2 --timeline /none/picture.svg
refused 'none.gguf' run -m "$dir/none.gguf" -p x
status 1 "$kin" run --cluster --plan nonsense --key-file "$dir/plan.key" --listen 127.0.0.1 --port 0 -p x
says "$err" 'plan nonsense: there is no such file, and the words are auto, even, memory and tp'
refused 'use a larger --ctx' run -p 'one two three four five six seven' --ctx 4
refused 'use a smaller --ctx' run -p x --ctx 134217728 --batch 1
wrong "'x' is not a token id" eval --tokens '1 x'
wrong '4294967297 is not a token id' eval --tokens '4294967297'
wrong '--tokens: the value is empty' eval --tokens ''
wrong 'no token ids' eval --tokens ' '
refused 'not in the vocabulary' eval --tokens '1 -1'
refused 'not in the vocabulary' eval --tokens '1 99999999'
refused 'do not fit' eval --tokens '1 5 80' --greedy 4 --ctx 5

claim='more than the model or the machine has is said, and done as far as it goes'
status 0 "$kin" run -p 'Once' -n 2 --ctx 600
says "$err" 'trained with a context of 512 tokens'
status 0 "$kin" run -p 'Once' -n 2 --ctx 512
silent "$err"
status 0 "$kin" run -p 'Once' -n 2 --threads 1024
says "$err" 'threads 1024: this machine has only'

claim='the cache is shown and emptied by name, and a name that is not there is no success'
mkdir -p "$dir/kept/models/0123456789abcdef"
echo x >"$dir/kept/models/0123456789abcdef/model.gguf"
echo x >"$dir/kept/00aa-00bb.pack"
status 0 "$kin" cache ls --cache "$dir/kept"
says "$out" '^0123456789abcdef .*fetched'
says "$out" '^00aa-00bb.pack .*prepacked'
refused 'NOSUCH' cache rm NOSUCH --cache "$dir/kept"
status 0 "$kin" cache rm 0123 --cache "$dir/kept"
says "$out" '^removed 0123456789abcdef'
mkdir -p "$dir/kept/kv/89abcdef01234567"
echo x >"$dir/kept/kv/89abcdef01234567/0123456789abcdef0123456789abcdef"
wrong 'is an option of rm' cache ls --conversations --cache "$dir/kept"
wrong 'without a name' cache rm all --conversations --cache "$dir/kept"
status 0 "$kin" cache rm --conversations --cache "$dir/kept"
says "$out" '^removed 89abcdef01234567'
lines "$out" 1
status 0 "$kin" cache rm --texts --cache "$dir/kept" # its older name, which help does not list
says "$err" 'no on-disk KV cache'
status 0 "$kin" help cache
says "$out" '--conversations'
says_not "$out" '--texts'
status 0 "$kin" cache rm all --cache "$dir/kept"
says "$out" '^removed 00aa-00bb.pack'
status 0 "$kin" cache ls --cache "$dir/kept"
says "$err" 'is empty'

# ---- text

prompt='Once upon a time'
claim='stdout holds the prompt and the text, and nothing else'
status 0 "$kin" run -p "$prompt" -n 12 --temp 0
says "$out" "^$prompt"
silent "$err"
cp "$out" "$dir/greedy"
[ "$(tail -c 1 "$out" | od -An -tu1 | tr -d ' ')" = 10 ] || fail 'no newline at the end'
status 0 "$kin" run -p "$prompt" -n 12 --temp 0 --stats
same "$out" "$dir/greedy"
says "$err" 'tokens/s'

claim='with --lines a prompt that fails is said, the next one is written, and the status tells at the end'
lines_of() { printf "$1" | "$kin" run --lines -n 2 --temp 0 --ctx 16; }
status 0 lines_of 'Once\nTom\n'
lines "$out" 2
status 1 lines_of 'Once\nTom saw a dog and a cat and a bird and a cow and a hen and a pig and a fox\nTom\n'
lines "$out" 2
says "$err" 'use a larger --ctx'
says "$err" '^kin: 1 prompt failed'

claim='greedy text is the same each time, however it is computed at the same precision'
status 0 "$kin" run -p "$prompt" -n 12 --temp 0
same "$out" "$dir/greedy"
status 0 "$kin" run -p "$prompt" -n 12 --temp 0 --seed 7
same "$out" "$dir/greedy"
status 0 "$kin" run -p "$prompt" -n 12 --top-k 1
same "$out" "$dir/greedy"

claim='--no-echo leaves the prompt out'
status 0 "$kin" run -p "$prompt" -n 12 --temp 0 --no-echo
{ printf %s "$prompt" && cat "$out"; } >"$dir/echoed"
same "$dir/echoed" "$dir/greedy"

claim='-f reads the prompt from a file'
printf %s "$prompt" >"$dir/prompt"
status 0 "$kin" run -f "$dir/prompt" -n 12 --temp 0
same "$out" "$dir/greedy"

claim='what comes from a pipe or from stdin is a prompt, too'
printf %s "$prompt" | "$kin" run -f - -n 12 --temp 0 >"$out" 2>"$err"
same "$out" "$dir/greedy"
claim='a prompt from a stdin that is closed is an error'
status 1 sh -c '"$0" run -f - <&-' "$kin"
says "$err" '^kin: stdin: '

mkfifo "$dir/fifo"
printf %s "$prompt" >"$dir/fifo" &
status 0 "$kin" run -f "$dir/fifo" -n 12 --temp 0
same "$out" "$dir/greedy"
wait

claim='a model may stand without -m, and without run'
"$mkmodel" --preset tiny --layers 2 --vocab 300 -o "$dir/random.gguf" >/dev/null
status 0 "$kin" run -m "$dir/random.gguf" -p "$prompt" -n 8 --temp 0
cp "$out" "$dir/random.txt"
for words in "run $dir/random.gguf" "$dir/random.gguf" "-m $dir/random.gguf"; do
    # shellcheck disable=SC2086 # words
    status 0 "$kin" $words -p "$prompt" -n 8 --temp 0
    same "$out" "$dir/random.txt"
done
status 0 env KIN_MODEL=none.gguf "$kin" run "$dir/random.gguf" -p "$prompt" -n 8 --temp 0
same "$out" "$dir/random.txt"
status 0 "$kin" -p "$prompt" -n 12 --temp 0
same "$out" "$dir/greedy"
status 0 "$kin" "$dir/random.gguf" --help
says "$out" '^kin run '
status 2 "$kin" --nope
says "$err" "^kin run: unknown option '--nope'"

claim='what was meant is said'
status 2 "$kin" stauts
says "$err" "did you mean 'kin status'?"
status 2 "$kin" "$prompt"
says "$err" 'kin run -p TEXT'
refused 'is not here, and --offline forbids' run --offline -m https://example.com/model.gguf -p x
refused 'is not here, and --offline forbids' --offline https://example.com/model.gguf
refused "$dir: is a directory" info -m "$dir"
refused "$dir: is a directory" info "$dir"
refused "$dir/fifo: is a pipe" info "$dir/fifo"
refused "$dir/fifo: is a pipe" "$dir/fifo" -p x

claim='a seed repeats its text, another one has another'
status 0 "$kin" run -p "$prompt" -n 30 --seed 1 --temp 1.5
cp "$out" "$dir/seed1"
status 0 "$kin" run -p "$prompt" -n 30 --seed 1 --temp 1.5
same "$out" "$dir/seed1"
status 0 "$kin" run -p "$prompt" -n 30 --seed 2 --temp 1.5
cmp -s "$out" "$dir/seed1" && fail 'seeds 1 and 2 give the same text'
claim='the seed -1 is another one each time'
status 0 "$kin" run -p "$prompt" -n 30 --seed -1 --temp 1.5
cp "$out" "$dir/seed1"
status 0 "$kin" run -p "$prompt" -n 30 --seed -1 --temp 1.5
cmp -s "$out" "$dir/seed1" && fail 'twice the same text'

claim='-n says how many tokens, in the environment too, and the command line wins'
count() { sed -n 's/^kin: \([0-9]*\) tokens generated.*/\1/p' "$err"; }
status 0 "$kin" run -p "$prompt" -n 3 --ignore-eos --stats
[ "$(count)" = 3 ] || fail "-n 3 wrote $(count)"
status 0 env KIN_N=4 KIN_IGNORE_EOS=1 "$kin" run -p "$prompt" --stats
[ "$(count)" = 4 ] || fail "KIN_N=4 wrote $(count)"
status 0 env KIN_N=4 KIN_IGNORE_EOS=1 KIN_STATS=1 "$kin" run -p "$prompt" -n 5
[ "$(count)" = 5 ] || fail "-n 5 with KIN_N=4 wrote $(count)"
status 2 env KIN_N=x "$kin" run -p "$prompt"
says "$err" 'environment variable KIN_N'

claim='what is set in the environment can be switched off there'
for word in 0 false no off; do
    status 0 env KIN_STATS=$word KIN_VERBOSE=$word "$kin" run -p "$prompt" -n 3
    silent "$err"
done
for name in KIN_STATS KIN_VERBOSE; do
    status 2 env $name=maybe "$kin" run -p "$prompt" -n 3
    says "$err" "environment variable $name: .*'maybe': must be 1 or 0"
done

claim='--grammar and --json-schema bind the text, for every seed'
printf 'root ::= "Tom" (" and " ("Lily" | "Ben"))? "."\n' >"$dir/names.gbnf"
printf '{"type":"object","properties":{"age":{"type":"integer","minimum":10,"maximum":29}},"required":["age"]}' >"$dir/schema.json"
for seed in 1 2 3 4 5; do
    status 0 "$kin" run -p "$prompt" --no-echo --seed $seed --grammar "$dir/names.gbnf"
    says "$out" '^Tom\( and \(Lily\|Ben\)\)\{0,1\}\.$'
    status 0 "$kin" run -p "$prompt" --no-echo --seed $seed --json-schema "$dir/schema.json"
    tr -d ' \t\n' <"$out" >"$dir/packed"
    says "$dir/packed" '^{"age":[12][0-9]}$'
done
status 0 "$kin" run -p "$prompt" --no-echo --json-schema ' {"enum":["red",7]}'
says "$out" '^\("red"\|7\)$'
printf 'root ::= <[300]>\n' >"$dir/token.gbnf"
status 1 "$kin" run -p "$prompt" --grammar "$dir/token.gbnf"
says "$err" '<\[300\]> is .*, which is not a control token'

claim='drafts change no text, whatever chooses its tokens'
assets=$(dirname "$0")/../assets
# A repetitive prompt, in which the n-gram drafter finds matches.
again="$prompt, Tom and Lily had a red ball. $prompt, Tom and Lily had a red"
printf 'root ::= ("Tom " | "Lily ")+ "end"\n' >"$dir/again.gbnf"
for words in '--temp 0' '--seed 3 --temp 1 --top-p 0.9' '--seed 4 --repeat-penalty 1.3 --presence-penalty 0.5' \
    "--seed 5 --grammar $dir/again.gbnf" '--temp 0 --memory 22M --ctx 512 --batch 16'; do
    # shellcheck disable=SC2086 # options and their values
    status 0 "$kin" run -p "$again" -n 80 --ignore-eos --draft off $words
    cp "$out" "$dir/plain"
    # shellcheck disable=SC2086
    status 0 "$kin" run -p "$again" -n 80 --ignore-eos --draft auto --stats $words
    same "$out" "$dir/plain"
    # shellcheck disable=SC2086
    status 0 "$kin" run -p "$again" -n 80 --ignore-eos --draft "$assets/demo-draft.gguf" --draft-min 3 --stats $words
    same "$out" "$dir/plain"
    says "$err" 'model: [0-9]* drafted, [0-9]* accepted'
done
status 2 "$kin" run -p "$again" --draft ngrams
status 1 "$kin" run -p "$again" --draft auto,/no/such.gguf
says "$err" '/no/such.gguf'
for words in auto, ngram,; do
    status 2 "$kin" run -p "$again" --draft $words
    says "$err" "--draft $words: the draft model file is missing after the comma"
done
status 2 "$kin" run -p "$again" --draft "off,$assets/demo-draft.gguf"
says "$err" 'off cannot be combined with a draft model'
status 2 "$kin" run -p "$again" --draft-min 3 --draft-max 2
says "$err" '--draft-min 3 is larger than --draft-max 2'
status 0 "$kin" run -p "$again" -n 250 --temp 0 --ignore-eos --stats
says "$err" 'ngram: [0-9]* drafted, [0-9]* accepted'
status 0 "$kin" run -p "$again" -n 250 --temp 0 --ignore-eos --stats --kernels ggml
says_not "$err" 'ngram: '

claim='a bad grammar or schema is a sentence'
printf 'root ::= "a" x\n' >"$dir/bad.gbnf"
status 1 "$kin" run -p "$prompt" --grammar "$dir/bad.gbnf"
says "$err" "bad.gbnf: grammar: the rule 'x' is used, but not defined"
status 1 "$kin" run -p "$prompt" --json-schema '{"type":"object","properties":{"a":{"not":{"type":"string"}}}}'
says "$err" 'json-schema: schema: #/properties/a/not: this keyword is only supported with a schema that accepts everything'
status 1 "$kin" run -p "$prompt" --json-schema "$dir/no-such-file"
says "$err" 'no-such-file'

claim='a run ends when the context is full'
status 0 "$kin" run -p "$prompt" -n 0 --ctx 40 --ignore-eos --stats
says "$err" 'for 40 tokens'

claim='a closed stdout is no crash'
"$kin" run -p "$prompt" -n 200 --ignore-eos 2>"$err" | head -c 1 >/dev/null
n_checks=$((n_checks + 1))
silent "$err"

# ---- Ctrl-C

claim='Ctrl-C ends a run at once, with status 130 and a whole last line'
# random.gguf never ends a text on its own.
mkfifo "$dir/written"
interrupt() { # SIGNAL
    "$kin" run -m "$dir/random.gguf" -p "$prompt" -n 1000000 --ctx 1000000 --ignore-eos >"$dir/written" 2>"$err" &
    pid=$!
    { # once it writes
        head -c 41 >"$out"
        kill -"$1" $pid
        { # without the signal, the text would take minutes
            n=0
            while [ $n -lt 400 ] && kill -0 $pid; do
                sleep 0.05
                n=$((n + 1))
            done
            [ $n -lt 400 ] || kill -KILL $pid
        } >/dev/null 2>&1 &
        killer=$!
        cat >>"$out"
    } <"$dir/written"
    wait $pid
    got=$?
    kill $killer 2>/dev/null
    n_checks=$((n_checks + 1))
    [ $got -eq 130 ] || fail "status $got after SIG$1"
    lines "$err" 1 # the line about the context's length
    [ "$(wc -c <"$out")" -gt 40 ] || fail 'no text before it'
    [ "$(tail -c 1 "$out" | od -An -tu1 | tr -d ' ')" = 10 ] || fail 'no newline at the end'
}
interrupt INT
interrupt TERM

# ---- figures

# This machine's profile, which otherwise would be measured: test_profile_cli.sh has that.
KIN_PROFILE=$(dirname "$0")/machine.json
export KIN_PROFILE

claim='a profile can be given as a file, and one that is damaged is refused with its place'
cp "$KIN_PROFILE" "$dir/profile.json"
status 0 env KIN_PROFILE= "$kin" bench --prompt 8 --gen 2 --reps 1 --cache "$dir/elsewhere" --profile "$dir/profile.json"
says "$out" '^predicted  *TPOT [0-9.]* ms'
silent "$err"
echo '{"memory_bytes": "much"' >"$dir/profile.json"
status 1 "$kin" bench --profile "$dir/profile.json"
says "$err" 'profile.json, line 2'
status 1 "$kin" bench --profile "$dir/none.json"
says "$err" "^kin: this machine's profile (--profile): $dir/none.json: No such file or directory\$"

claim='a device that has no place for weights says so before it joins'
(umask 077 && printf '%064d\n' 7 >"$dir/place.key")
status 1 "$kin" join 127.0.0.1:1 --key-file "$dir/place.key" --cache "$dir/profile.json/cache" --profile "$dir/profile.json"
says "$err" '^kin: cannot store fetched weights; set another directory with --cache DIR: .*profile.json'

claim='a device that cannot have its profile does not join'
printf '%064d\n' 7 >"$dir/key"
chmod 600 "$dir/key"
status 1 "$kin" join 127.0.0.1:1 --key-file "$dir/key" --memory 1G --profile "$dir/none.json"
says "$err" "^kin: this machine's profile (--profile): $dir/none.json: No such file or directory\$"
lines "$err" 1

claim='bench prints figures, as JSON too'
status 0 "$kin" bench --prompt 8 --gen 4 --reps 2
says "$out" TTFT
says "$out" TPOT
silent "$err"
status 0 "$kin" bench --prompt 8 --gen 4 --reps 2 --json
silent "$err"
for key in model threads ttft_ms tpot_ms tokens_per_s peak_bytes memory_pressure; do says "$out" "\"$key\": [\"0-9]"; done
[ "$(head -c 1 "$out")" = '{' ] || fail 'no object'
[ "$(tail -n 1 "$out")" = '}' ] || fail 'the object is not closed'
if command -v python3 >/dev/null; then python3 -m json.tool "$out" >/dev/null || fail 'no JSON'; fi
for key in predicted_tpot_ms predicted_tpot_error predicted_ttft_ms corrected_tpot_ms corrected_tpot_error; do
    says "$out" "\"$key\": [-0-9]"
done

claim='bench --energy says joules per token, and whether they were measured'
status 0 "$kin" bench --prompt 8 --gen 4 --reps 1 --energy
says "$out" '^energy  *[0-9.e-]* J per token on this machine, by '
status 0 "$kin" bench --prompt 8 --gen 4 --reps 1 --energy --json
says "$out" '"energy_j_per_token": [0-9]'
says "$out" '"energy_source": "\(rapl\|model\)"'
status 2 "$kin" bench --energy --oracle 0.5
says "$err" '--energy cannot be combined with --oracle'

claim='bench writes the same text with drafts, and says what they gained'
status 0 "$kin" bench --prompt 8 --gen 24 --reps 2 --oracle 0.8
says "$out" 'times as fast'
says "$out" 'same output'
status 0 "$kin" bench --prompt 8 --gen 24 --reps 2 --oracle 0.8 --json
for key in plain_tpot_ms tpot_ms tokens_per_pass; do says "$out" "\"$key\": [0-9]"; done
status 0 "$kin" bench --prompt 8 --gen 60 --reps 1 --oracle 0.6 --second 0.5 --draft-min 12
says "$out" 'same output'
says "$out" 'branches .* verified'
status 2 "$kin" bench --second 0.5
says "$err" '--second needs --oracle'
status 2 "$kin" bench --rows 2 --oracle 0.8
says "$err" '--rows cannot be combined with'
status 0 "$kin" bench --prompt 40 --gen 60 --reps 1 --edit
says "$out" 'same output'
status 0 "$kin" bench --prompt 8 --gen 60 --reps 1 --draft "$assets/demo-draft.gguf" --draft-min 2 --draft-max 2
says "$out" 'same output'

claim='nothing is predicted of what the prediction is not about'
for words in --no-flash '--weights mmap' '--weights mmap+willneed' '--weights window'; do
    # shellcheck disable=SC2086 # an option and its value
    status 0 "$kin" bench --prompt 8 --gen 2 --reps 1 $words
    says "$out" TPOT
    says_not "$out" '^predicted'
    # shellcheck disable=SC2086
    status 0 "$kin" bench --prompt 8 --gen 2 --reps 1 --json $words
    says "$out" '"tpot_ms"'
    says_not "$out" 'predicted\|corrected'
done

claim='eval prints greedy ids, all on one line, and the same each time'
status 0 "$kin" eval --tokens '1 5 80' --greedy 4
[ "$(wc -w <"$out")" -eq 4 ] || fail 'not 4 words'
says "$out" '^[0-9 ]*$'
lines "$out" 1
silent "$err"
cp "$out" "$dir/ids"
status 0 "$kin" eval --tokens '1 5 80' --greedy 4 --logits "$dir/logits"
same "$out" "$dir/ids"

claim='eval writes a row of logits for each token fed'
n_vocab=$("$kin" info | sed -n 's/^vocabulary *\([0-9]*\) .*/\1/p')
[ "$(wc -c <"$dir/logits")" -eq $((7 * 4 * n_vocab)) ] || fail "$(wc -c <"$dir/logits") bytes for a vocabulary of $n_vocab"

claim='eval prints the ids of each text'
printf 'once\n__ggml_vocab_test__\nupon a time' >"$dir/texts"
status 0 "$kin" eval --tokenize "$dir/texts"
lines "$out" 2
says "$out" '^[0-9 ]*$'

claim='eval prints the ids of a file that holds nothing but a vocabulary'
LC_ALL=C sed 's/token_embd.weight/token_embD.weight/; s/general.architecture\(.\{12\}\)llama/general.architecture\1xxxxx/' "$dir/random.gguf" \
    >"$dir/vocab.gguf" # not a model: a tensor is missing and the family is unknown
status 0 "$kin" eval "$dir/random.gguf" --tokenize "$dir/texts"
cp "$out" "$dir/ids"
refused 'not supported\|missing' info "$dir/vocab.gguf"
status 0 "$kin" eval "$dir/vocab.gguf" --tokenize "$dir/texts"
same "$out" "$dir/ids"
status 0 sh -c '"$0" eval "$1" --tokenize - <"$2"' "$kin" "$dir/vocab.gguf" "$dir/texts"
same "$out" "$dir/ids"
for vocab in "$(dirname "$0")"/../../shared/vocab/*.gguf; do # vocabularies of real models
    [ -f "$vocab.out" ] || continue
    status 0 "$kin" eval "$vocab" --tokenize "$vocab.inp"
    sed 's/^ *//' "$vocab.out" >"$dir/ids"
    same "$out" "$dir/ids"
done

claim='commands of other programs name what does the same here'
for pair in download='kin pull' ls='kin list' ps='kin status' remove='kin rm' stop=Ctrl-C; do
    status 2 "$kin" "${pair%%=*}"
    silent "$out"
    says "$err" "unknown command '${pair%%=*}'.*${pair#*=}"
done
status 2 "$kin" run qwen3:8b
says "$err" "'qwen3:8b' is not a file .*ollama:qwen3:8b"

claim='a file at the limit of ulimit -f is an error of a write'
(ulimit -f 1 && "$kin" info --all >"$dir/limited" 2>"$err")
[ $? = 1 ] || fail 'the status is not 1'
says "$err" '^kin: stdout: File too large$'

claim='a port that is taken is named, with the option that gives another'
"$kin" serve --port 0 >/dev/null 2>"$dir/first" &
first=$!
for _ in $(seq 300); do
    grep -q 'serving demo at' "$dir/first" && break
    sleep 0.2
done
port=$(sed -n 's/.*serving demo at http:[^ ]*:\([0-9]*\) .*/\1/p' "$dir/first")
status 1 "$kin" serve --port "$port"
kill "$first"
wait "$first"
says "$err" "port $port: address already in use; another program uses it, perhaps another kin. Choose another port with --port N"

claim='eval measures perplexity'
yes 'Once upon a time there was a little dog.' | head -n 8 >"$dir/text"
status 0 "$kin" eval --ppl "$dir/text"
says "$out" '[0-9]'

claim='info tells what a model is'
status 0 "$kin" info
for word in family parameters layers context vocabulary weights; do says "$out" "^$word"; done
silent "$err"
status 0 "$kin" info "$dir/random.gguf" --all
says "$out" '^llama.block_count = 2'
says "$out" '^blk.1.ffn_down.weight .*768 x 256'

tally
