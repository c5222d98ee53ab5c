#!/bin/sh
# Several models: kin models, and kin serve --models-dir, where each request names its model.
#
#   test_models.sh PATH_TO_KIN      (mkmodel is in the same folder)
set -u
# shellcheck source=tests/checks.sh
. "$(dirname "$0")/checks.sh"
# shellcheck source=tests/serving.sh
. "$(dirname "$0")/serving.sh"

models=$dir/models
mkdir -p "$models/more" "$models/more/deeper"
cp "$(dirname "$0")/../assets/demo.gguf" "$models/demo.gguf"
"$mkmodel" --preset tiny --arch qwen3 --layers 2 -o "$models/more/small.gguf" >/dev/null
"$mkmodel" --preset tiny --layers 2 --seed 2 --split 2 -o "$models/parts" >/dev/null
cp "$models/demo.gguf" "$models/more/demo.gguf"
cp "$models/demo.gguf" "$models/more/deeper/unseen.gguf"
mkdir "$models/a first folder"
cp "$models/more/small.gguf" "$models/a first folder/demo.gguf"
cp "$models/demo.gguf" "$models/UPPER.GGUF"
odd=$(printf 'caf\351') # Latin-1
cp "$models/demo.gguf" "$models/$odd.gguf"
head -c 5000 "$models/demo.gguf" >"$models/broken.gguf"
echo 'not a model' >"$models/notes.txt"

# ---- kin models

claim='kin models lists what a folder has, and says what is wrong with the rest'
status 0 "$kin" models "$models"
says "$out" '^demo  *llama  *6.7M  *q4_K  *3.90 MiB  *512'
says "$out" '^more/demo '
says "$out" '^a first folder/demo  *qwen3 '
says "$out" '^UPPER  *llama '
says "$out" '^parts '
says "$out" '^small  *qwen3 '
says "$out" '^caf\\xe9 '
lines "$out" 8
says "$err" 'not usable: .*broken.gguf: '
status 0 "$kin" models "$models" --json
says "$out" '"parameters": 6656256'
says "$out" '"error": ".*broken.gguf'
status 1 "$kin" models "$dir/nowhere"
says "$err" 'No such file or directory'

# ---- one model in memory

asks() { # STATUS MODEL [FIELDS]: sends a request to /v1/completions
    answers "$1" /v1/completions -d "{\"model\": \"$2\", \"prompt\": \"One\", \"max_tokens\": 4, \"temperature\": 0${3:-}}"
}
loaded() { # NAME...: exactly these models are loaded
    answers 200 /api/ps
    got=$(grep -o '"name":"[^"]*"' "$out" | tr -d '\n')
    want=$(for name; do printf '"name":"%s"' "$name"; done)
    [ "$got" = "$want" ] || fail "loaded: $got"
}

serve --models-dir "$models"
claim='all models are listed, and none is loaded before it is asked for'
says "$log" 'skipped: .*broken.gguf'
loaded
for path in /v1/models /models; do
    answers 200 $path
    for name in demo more/demo parts small 'caf\\\\xe9'; do says "$out" "\"id\":\"$name\""; done
    says "$out" '"status":{"value":"unloaded"}'
    says_not "$out" '"value":"loaded"'
done
answers 200 /api/tags
says "$out" '"name":"small"'
small=$(grep -o '"name":"small"[^{]*"digest":"[0-9a-f]\{64\}"' "$out") || fail 'no digest of 64 digits'
answers 200 /v1/models/more/demo
answers 200 /api/show -d '{"model": "small"}'
says "$out" '"family":"qwen3"'
loaded

claim='a page elsewhere has no model loaded: by an image, by a link, or where the browser does not say from where it asks'
answers 403 '/props?model=small' -H 'Sec-Fetch-Site: cross-site' -H 'Sec-Fetch-Mode: no-cors' -H 'Sec-Fetch-Dest: image'
answers 403 '/props?model=small' -H 'Sec-Fetch-Site: cross-site' -H 'Sec-Fetch-Mode: navigate' -H 'Sec-Fetch-Dest: document'
says "$out" 'is not loaded'
answers 403 '/slots?model=small' -A 'Mozilla/5.0 (X11; Linux x86_64)'
answers 403 /models/load -d '{"model": "small"}' -H 'Origin: http://evil.example'
loaded
answers 200 / -H 'Sec-Fetch-Site: cross-site' -H 'Sec-Fetch-Mode: navigate' -H 'Sec-Fetch-Dest: document'

claim='a request gets the model that it names, which takes the place of the one before'
asks 200 demo
says "$out" '"model":"demo"'
says "$out" '"text":" [a-z]*, a'
loaded demo
asks 200 small
says "$out" '"model":"small"'
loaded small
says "$out" "$small"
answers 200 /v1/models
says "$out" '"id":"small".*"status":{"value":"loaded"}'
asks 200 parts
asks 200 demo:latest
answers 200 '/props?model=more/demo'
says "$out" '"model_alias":"more/demo"'
loaded more/demo
answers 200 /api/chat -d '{"model": "demo", "stream": false, "messages": [{"role": "user", "content": "a"}], "options": {"num_predict": 2}}'
says "$out" '"model":"demo"'
answers 200 /v1/embeddings -d '{"model": "parts", "input": "a"}'
answers 200 /tokenize -d '{"model": "demo", "content": "One day"}'
loaded demo

claim='a model that is not there is 404 in the form of each API'
asks 404 nope
says "$out" '"code":"model_not_found"'
answers 404 /v1/messages -d '{"model": "nope", "max_tokens": 1, "messages": []}'
says "$out" '^{"type":"error","error":{"type":"not_found_error"'
answers 404 /api/chat -d '{"model": "../demo", "messages": []}'
says "$out" '^{"error":"'
answers 404 /v1/models/nope
asks 404 'demo\u0000x'
says "$out" 'model .demo.*x00x.* not found'
answers 400 /v1/completions -d '{"model": '
loaded demo

claim='a request that names none gets the model that is there; none is there: it is asked to'
answers 200 /v1/completions -d '{"prompt": "One", "max_tokens": 1}'
says "$out" '"model":"demo"'
claim='keep_alive 0, and /models/unload, take a model out of memory when its texts are written'
answers 200 /api/generate \
    -d '{"model": "demo", "prompt": "One", "raw": true, "stream": false, "keep_alive": 0, "options": {"num_predict": 50, "stop": []}}'
says "$out" '"done":true'
n=0
while answers 200 /api/ps && grep -q '"name"' "$out" && [ $n -lt 1200 ]; do
    sleep 0.05
    n=$((n + 1))
done
loaded
answers 400 /v1/completions -d '{"prompt": "One", "max_tokens": 1}'
says "$out" 'several models'
answers 200 /models/load -d '{"model": "small"}'
loaded small
answers 200 /models/unload -d '{"model": "small"}'
answers 400 /models/unload -d '{"model": "demo"}'
asks 200 demo
loaded demo

claim='a text is written to its end before another model takes the place of its model'
curl -sN -m 240 -o "$dir/stream" "$base/v1/completions" \
    -d '{"model": "demo", "prompt": "One", "max_tokens": 300, "ignore_eos": true, "stream": true}' &
client=$!
until_says "$dir/stream" '"text"'
curl -s -m 240 -o "$dir/other" "$base/v1/completions" -d '{"model": "small", "prompt": "One", "max_tokens": 4}' &
other=$!
asks 200 demo ', "ignore_eos": true' # it may have to wait for the other model
wait "$other" "$client" || fail "a client ended with $?"
says "$dir/other" '"model":"small"'
says "$dir/stream" '"finish_reason":"length"'
says "$dir/stream" '"completion_tokens":300'
says "$dir/stream" '^data: \[DONE\]'

claim='who asks for several models at once gets each of them, in turns'
clients=
for i in 1 2 3; do
    for name in demo small parts; do
        curl -s -m 240 -o "$dir/turn-$name-$i" "$base/v1/completions" \
            -d "{\"model\": \"$name\", \"prompt\": \"One\", \"max_tokens\": 4, \"temperature\": 0}" &
        clients="$clients $!"
    done
done
# shellcheck disable=SC2086 # a list of numbers
wait $clients
for i in 1 2 3; do
    for name in demo small parts; do
        says "$dir/turn-$name-$i" "\"model\":\"$name\".*\"completion_tokens\":4"
        sed 's/.*"text":\("[^"]*"\).*/\1/' "$dir/turn-$name-$i" >"$dir/text-$name-$i"
        same "$dir/text-$name-1" "$dir/text-$name-$i"
    done
done

claim='a model that cannot be loaded any more is refused with the reason, and others go on'
asks 200 demo
mv "$models/more/small.gguf" "$dir/away"
asks 404 small
says "$out" "there is no model 'small' any more: its file was removed"
says "$out" '"code":"model_not_found"'
asks 200 demo
mv "$dir/away" "$models/more/small.gguf"
asks 200 small
stop

# ---- several models in memory

claim='two may be in memory; the one not used for longest makes room'
serve --models-dir "$models" --models-max 2 --ctx 16384 -m "$models/demo.gguf" --alias mine
loaded mine
asks 200 small
asks 200 mine
loaded mine small
asks 200 parts
loaded mine parts
answers 200 /v1/completions -d '{"prompt": "One", "max_tokens": 1}'
says "$out" '"model":"mine"'
answers 200 /metrics
says "$out" '^llamacpp:n_decode_total [1-9]'
says "$out" '^kin:requests_total 4$'
curl -sN -m 240 -o "$dir/events" "$base/kin/events" &
client=$!
until_says "$dir/events" '"generated_tokens":9,'
kill "$client"

claim='texts of two models are written at the same time'
endless() { # FILE MODEL
    : >"$1"
    curl -sN -m 240 -o "$1" "$base/v1/completions" \
        -d "{\"model\": \"$2\", \"prompt\": \"One\", \"ignore_eos\": true, \"stream\": true}" &
    client=$!
    until_says "$1" '"text"'
}
endless "$dir/both" mine
asks 200 parts
says_not "$dir/both" '^data: \[DONE\]'
kill "$client"
stop

claim='a stream that waits for its model is kept alive; why the model does not come is an event of it'
serve --models-dir "$models" --ctx 16384 --sse-ping-interval 1
endless "$dir/long" demo
waits() { # FILE PATH BODY: sends it in the background
    : >"$1"
    curl -sN -m 240 -o "$1" "$base$2" -d "$3" &
    waiter=$!
}
waits "$dir/chat" /v1/completions '{"model": "small", "prompt": "One", "max_tokens": 4, "stream": true}'
chat=$waiter
sleep 0.2 # the stream that waits longer gets its model first
waits "$dir/claude" /v1/messages \
    '{"model": "parts", "max_tokens": 4, "messages": [{"role": "user", "content": "One"}], "stream": true}'
mv "$models/parts-00001-of-00002.gguf" "$dir/away"
for file in chat claude; do until_says "$dir/$file" '^:$'; done # a sign of life
says_not "$dir/chat" '^data'
kill "$client"
wait "$chat" "$waiter" || fail "a client ended with $?"
says "$dir/chat" '"model":"small"'
says "$dir/chat" '^data: \[DONE\]'
says "$dir/claude" '^event: error'
says "$dir/claude" '^data: {"type":"error","error":{"type":"not_found_error","message":"there is no model .parts. any more'
mv "$dir/away" "$models/parts-00001-of-00002.gguf"
stop

claim='clients that wait for a model may go away, and not too many may wait'
serve --models-dir "$models" --ctx 16384 --parallel 1 --max-queue 0
endless "$dir/long" demo
curl -s -m 0.3 -o /dev/null "$base/v1/completions" -d '{"model": "small", "prompt": "One"}'
n=0 # an EOF may end only the request, so the server probes the client and drops it within a second
while answers 200 /metrics && ! grep -q '^llamacpp:requests_deferred 0' "$out" && [ $n -lt 100 ]; do
    sleep 0.05
    n=$((n + 1))
done
says "$out" '^llamacpp:requests_deferred 0'
curl -s -m 240 -o "$dir/late" "$base/v1/completions" -d '{"model": "small", "prompt": "One", "max_tokens": 4}' &
late=$!
answers 200 /metrics
n=0
while answers 200 /metrics && ! grep -q '^llamacpp:requests_deferred 1' "$out" && [ $n -lt 1200 ]; do
    sleep 0.05
    n=$((n + 1))
done
asks 429 small
says "$dir/head" '^Retry-After: '
answers 200 /health
says_not "$dir/long" '^data: \[DONE\]'
kill "$client"
wait "$late" || fail "the client ended with $?"
says "$dir/late" '"model":"small"'
stop

claim='what cannot be served together is refused'
status 1 "$kin" serve --port 0 --models-dir "$models" --cluster
says "$err" 'a ring runs one model'
status 1 "$kin" serve --port 0 --models-dir "$models/more/deeper/none"
status 1 "$kin" serve --port 0 --models-dir "$dir/cache"
says "$err" 'No such file\|no usable model file'

claim='an embedding is made of those tokens that the model file names'
mkdir "$dir/poolings"
for n in 0 1 2 3 4; do "$mkmodel" --preset tiny --layers 1 --pooling-type $n -o "$dir/poolings/type$n.gguf" >/dev/null; done
vector() { # MODEL IDS: prints the embedding
    answers 200 /v1/embeddings -d "{\"model\": \"$1\", \"input\": [$2]}"
    grep -o '"embedding":\[[^]]*' "$out"
}
serve --models-dir "$dir/poolings"
mean=$(vector type1 '[300, 400]')
{ [ -n "$mean" ] && [ "$(vector type0 '[300, 400]')" = "$mean" ]; } || fail 'without a word it is not the mean'
first=$(vector type1 '[300]')
[ "$(vector type2 '[300, 400]')" = "$first" ] || fail 'type 2 is not the first'
last=$(vector type3 '[300, 400]')
{ [ "$last" != "$mean" ] && [ "$last" != "$first" ]; } || fail 'type 3 is not the last'
answers 501 /v1/embeddings -d '{"model": "type4", "input": "a"}'
says "$out" 'pooling_type does not produce embeddings'
answers 200 /v1/completions -d '{"model": "type4", "prompt": "a", "max_tokens": 1}'
stop
serve -m "$dir/poolings/type4.gguf" --pooling last
[ "$(vector type4 '[300, 400]')" = "$last" ] || fail '--pooling does not rule'
stop

claim='a chat template that does not compile refuses chats only, with its place'
LC_ALL=C sed 's/{%- for /{%- fox /' "$models/demo.gguf" >"$dir/poolings/untalkative.gguf"
hi='"max_tokens": 2, "messages": [{"role": "user", "content": "Hi"}]'
only_chats_are_refused() {
    asks 200 untalkative
    answers 200 /v1/embeddings -d '{"model": "untalkative", "input": "a"}'
    for path in /v1/chat/completions /v1/messages /api/chat; do
        answers 501 $path -d "{\"model\": \"untalkative\", $hi}"
        says "$out" 'chat template does not compile .*line [0-9]'
    done
    answers 501 /v1/responses -d '{"model": "untalkative", "input": "Hi"}'
    says "$log" 'chat template does not compile'
    says_not "$log" 'no tool calls of its own'
}
serve -m "$dir/poolings/untalkative.gguf"
only_chats_are_refused
stop
printf Hi | "$kin" chat -m "$dir/poolings/untalkative.gguf" -t 1 >"$out" 2>"$err" && fail 'kin chat has an answer'
says "$err" 'chat template does not compile .*line [0-9]'
silent "$out"

"$mkmodel" --preset tiny --layers 2 --vocab 300 --type q4_0 -o "$dir/sound.gguf" >/dev/null
head -c 60000 "$dir/sound.gguf" >"$dir/poolings/damaged.gguf" # the rest are NaN
head -c $(($(wc -c <"$dir/sound.gguf") - 60000)) /dev/zero | tr '\000' '\377' >>"$dir/poolings/damaged.gguf"
serve --models-dir "$dir/poolings"
claim='such a model is one of several'
only_chats_are_refused
claim='a model whose logits are no numbers is refused with what to do, and others go on'
asks 503 damaged
says "$out" "no usable logits .*: the file may be damaged, or .*'kin cache rm --conversations'"
asks 200 type1
claim='a file that is put into the folder is served without a restart'
asks 404 later
cp "$dir/poolings/type1.gguf" "$dir/poolings/later.part" && mv "$dir/poolings/later.part" "$dir/poolings/later.gguf"
n=0
while answers 200 /v1/models && ! grep -q '"id":"later"' "$out" && [ $n -lt 600 ]; do
    sleep 0.05
    n=$((n + 1))
done
says "$out" '"id":"later"'
asks 200 later
says "$out" '"model":"later"'

claim='a file that is removed is listed no more, and asking for it is 404; its model goes on while it is loaded'
mv "$dir/poolings/type2.gguf" "$dir/away"
lists() { # NAME: 0 if it is listed by both
    answers 200 /api/tags
    grep -q "\"name\":\"$1\"" "$out" || return 1
    answers 200 /v1/models
    grep -q "\"id\":\"$1\"" "$out"
}
until_listed() { # NAME
    n=0
    while ! lists "$1" && [ $n -lt 600 ]; do
        sleep 0.05
        n=$((n + 1))
    done
    lists "$1" || fail "$1 is not listed"
}
until_gone() { # NAME
    n=0
    while lists "$1" && [ $n -lt 600 ]; do
        sleep 0.05
        n=$((n + 1))
    done
    ! lists "$1" || fail "$1 is listed"
}
! lists type2 || fail 'type2 is listed'
asks 404 type2
says "$out" "there is no model 'type2' any more: its file was removed"
answers 404 /v1/models/type2
answers 404 /api/show -d '{"model": "type2"}'
lists type1 || fail 'type1 is not listed'
rm "$dir/poolings/later.gguf"
sleep 3 # a scan
asks 200 later
lists later || fail 'it is in memory, and not listed'
asks 200 type1
until_gone later
asks 404 later
mv "$dir/away" "$dir/poolings/type2.gguf"
asks 200 type2
until_listed type2
cp "$dir/poolings/type1.gguf" "$dir/away" && mv "$dir/away" "$dir/poolings/later.gguf"
until_listed later
asks 200 later
stop

tally
