#!/bin/sh
# A model file that is written to while kin uses it: no text comes from mixed weights, clients learn which file it is, and the model is
# loaded again when the file is complete. Stored prefixes stay right.
#
#   test_changed_file.sh PATH_TO_KIN      (mkmodel is in the same folder)
set -u
# shellcheck source=tests/checks.sh
. "$(dirname "$0")/checks.sh"
# shellcheck source=tests/serving.sh
. "$(dirname "$0")/serving.sh"
export KIN_DRAFT=off

model=$dir/model.gguf
make() { "$mkmodel" --preset tiny --layers 3 --vocab 300 --ctx 4096 --type f16 "$@" >/dev/null || exit 1; }
make --seed 1 -o "$dir/right.gguf"
make --seed 2 -o "$dir/wrong.gguf"
make --seed 4 --split 2 -o "$dir/parts"
words='one two three four five six seven eight nine ten eleven twelve'
prompt="$words $words $words $words"
ask() { # STATUS [FIELDS]: requests a text and sets $text
    answers "$1" /completion -d "{\"prompt\": \"$prompt\", \"n_predict\": 24, \"temperature\": 0, \"ignore_eos\": true${2:-}}"
    text=$(sed -n 's/.*"content":"\(.*\)","tokens".*/\1/p' "$out")
}
until_answers() { # STATUS PATH: 503 may be the answer for a moment only
    n=0
    [ "$1" = 200 ] && pause=0.2 || pause=0.05
    while [ $n -lt 1200 ] && [ "$(curl -s -m 10 -o "$out" -w '%{http_code}' "$base$2")" != "$1" ]; do
        sleep $pause
        n=$((n + 1))
    done
    answers "$1" "$2"
}
is_right() { [ -n "$text" ] && [ "$text" = "$right" ] || fail "'$text' is not '$right'"; }

claim='what the two models write differs'
cp "$dir/wrong.gguf" "$model"
XDG_CACHE_HOME=$dir/elsewhere serve -m "$model"
ask 200
wrong=$text
stop
cp "$dir/right.gguf" "$model"
XDG_CACHE_HOME=$dir/elsewhere serve -m "$model" --no-kv-disk
ask 200
right=$text
[ "$right" != "$wrong" ] || fail 'they write the same'
stop

patch() { # FILE: other weights in the middle of a tensor, in place
    dd if="$dir/wrong.gguf" of="$1" bs=4096 skip=280 seek=280 count=8 conv=notrunc 2>/dev/null
}
claim='a file that is patched writes another text than before'
cp "$dir/right.gguf" "$dir/patched.gguf"
patch "$dir/patched.gguf"
XDG_CACHE_HOME=$dir/elsewhere serve -m "$dir/patched.gguf" --no-kv-disk
ask 200
patched=$text
[ "$right" != "$patched" ] || fail 'they write the same'
stop

claim='another model is copied over the file: 503 says which file, in /health, too'
serve -m "$model"
cp "$dir/wrong.gguf" "$model"
ask 503
says "$out" 'model.gguf: was overwritten or truncated'
until_answers 503 /health
says "$out" 'model.gguf: was overwritten or truncated'
answers 503 /v1/models

claim='the right file back: it is loaded anew, and its text is right, after a restart, too'
cp "$dir/right.gguf" "$model"
until_answers 200 /health
says "$log" 'the model was reloaded'
ask 200
is_right
stop
serve -m "$model"
ask 200
is_right

claim='the other model stays there: it is loaded, and takes nothing from texts of the first one'
cp "$dir/wrong.gguf" "$model"
until_answers 503 /health
until_answers 200 /health
ask 200
[ "$text" = "$wrong" ] || fail "'$text' is not '$wrong'"
cp "$dir/right.gguf" "$model"
until_answers 503 /health
until_answers 200 /health
ask 200
is_right

claim='a patch of the file starts a new name: what was kept of the text before is not found'
patch "$model"
until_answers 503 /health
until_answers 200 /health
ask 200
[ "$text" = "$patched" ] || fail "'$text' is not '$patched'"
cp "$dir/right.gguf" "$model"
until_answers 503 /health
until_answers 200 /health
ask 200
is_right

claim='in the middle of a text: it ends with the sentence'
curl -sN -m 240 -d "{\"prompt\": \"$prompt\", \"n_predict\": 3500, \"ignore_eos\": true, \"stream\": true}" "$base/completion" \
    >"$dir/stream" &
reader=$!
until_says "$dir/stream" '"content"'
cp "$dir/wrong.gguf" "$model"
wait $reader
says "$dir/stream" 'model.gguf: was overwritten or truncated'
cp "$dir/right.gguf" "$model"
until_answers 200 /health

claim='the file is emptied, or cut: no crash'
: >"$model"
ask 503
says "$out" 'model.gguf: was overwritten or truncated'
until_answers 503 /health
answers 503 /tokenize -d '{"content": "a"}'
cp "$dir/right.gguf" "$model"
until_answers 200 /health
ask 200
is_right
truncate -s 70000 "$model"
ask 503
head -c 90000 "$dir/right.gguf" >"$model"
until_answers 503 /health
cp "$dir/right.gguf" "$model"
until_answers 200 /health
ask 200
is_right

claim='a file that takes its place by a rename, permissions and links disturb nobody'
cp "$dir/wrong.gguf" "$dir/new.gguf"
mv "$dir/new.gguf" "$model"
ask 200 ', "cache_prompt": false'
is_right
chmod 600 "$model"
answers 200 /health
stop
serve -m "$model"
ask 200
[ "$text" = "$wrong" ] || fail 'the new file is used by the next start'
stop

claim='a part of a split model'
mkdir "$dir/split"
cp "$dir"/parts-0000?-of-00002.gguf "$dir/split/"
serve -m "$dir/split/parts-00001-of-00002.gguf"
ask 200
of_parts=$text
truncate -s 60000 "$dir/split/parts-00002-of-00002.gguf"
ask 503
says "$out" 'parts-00002-of-00002.gguf: was overwritten or truncated'
cp "$dir/parts-00002-of-00002.gguf" "$dir/split/"
until_answers 503 /health
until_answers 200 /health
ask 200
[ "$text" = "$of_parts" ] || fail 'the parts write another text'
stop

claim='a draft model that changes: its drafts end, the text goes on'
cp "$dir/right.gguf" "$model"
cp "$dir/right.gguf" "$dir/small.gguf"
serve -m "$model" --draft "$dir/small.gguf" --draft-min 2 --no-kv-disk --no-prefix-cache
prompt=$words
ask 200
drafted=$text
says "$out" '"draft_sources":{"model":'
: >"$dir/small.gguf"
ask 200
[ "$text" = "$drafted" ] || fail "'$text' is not '$drafted'"
until_says "$log" 'the draft model is disabled: .*small.gguf: '
answers 200 /health
prompt="$words $words $words $words"
stop

claim='a draft or a template that is missing when the model is loaded anew is named, and awaited'
for missing in small.gguf template; do
    cp "$dir/right.gguf" "$dir/small.gguf"
    echo '{% for m in messages %}{{ m.content }}{% endfor %}' >"$dir/template"
    serve -m "$model" --draft "$dir/small.gguf" --chat-template-file "$dir/template" --no-kv-disk
    mv "$dir/$missing" "$dir/away"
    cp "$dir/wrong.gguf" "$model"
    ask 503
    until_says "$log" "$missing: No such file"
    answers 503 /health
    says "$out" "$missing: No such file"
    mv "$dir/away" "$dir/$missing"
    until_answers 200 /health
    ask 200
    cp "$dir/right.gguf" "$model"
    stop
done

claim='one of several models: the others answer, and it is loaded anew'
mkdir "$dir/models"
cp "$dir/right.gguf" "$dir/models/a.gguf"
cp "$dir/wrong.gguf" "$dir/models/b.gguf"
serve --models-dir "$dir/models" --models-max 2
ask 200 ', "model": "a"'
is_right
cp "$dir/wrong.gguf" "$dir/models/a.gguf"
ask 503 ', "model": "a"'
says "$out" 'a.gguf: was overwritten or truncated'
ask 200 ', "model": "b"'
cp "$dir/right.gguf" "$dir/models/a.gguf"
n=0
while [ $n -lt 1200 ] && ! curl -sf -m 10 -o "$out" "$base/v1/completions" -d '{"model": "a", "prompt": "One", "max_tokens": 1}'; do
    sleep 0.05
    n=$((n + 1))
done
ask 200 ', "model": "a"'
is_right
stop

claim='kin run ends with the sentence'
mkfifo "$dir/prompts"
: >"$out"
"$kin" run --lines -m "$model" -n 4 --ignore-eos <"$dir/prompts" >"$out" 2>"$err" &
pid=$!
exec 3>"$dir/prompts"
echo 'a b c' >&3
until_says "$out" .
cp "$dir/wrong.gguf" "$model"
(echo 'd e f' >&3) 2>"$dir/closed"
exec 3>&-
wait $pid
got=$?
[ $got -eq 1 ] || fail "status $got"
says "$err" 'model.gguf: was overwritten or truncated'
tally
