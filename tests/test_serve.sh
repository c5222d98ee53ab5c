#!/bin/sh
# kin serve as client programs meet it: statuses, refusals, the queue, keys, signals. Runs the built-in demo model.
#
#   test_serve.sh PATH_TO_KIN
set -u
# shellcheck source=tests/checks.sh
. "$(dirname "$0")/checks.sh"
# shellcheck source=tests/serving.sh
. "$(dirname "$0")/serving.sh"
user='"messages": [{"role": "user", "content": "Tell me a story."}]'
chat() { answers "$1" /v1/chat/completions -d "{$user, $2}"; } # STATUS FIELDS
long=$(printf 'The dragon went up the hill. %.0s' 1 2 3 4 5 6 7 8 9 10)

serve --ctx 2048 --seed 5

# ---- paths

claim='who asks whether it is there gets an answer'
answers 200 /health
says "$out" '"ok"'
answers 200 / -I
answers 200 /v1/models
says "$out" '"id":"demo"'

claim='a large body is read, whatever else is in it'
awk 'BEGIN { printf "{\"prompt\": \"Hi\", \"n_predict\": 2, \"x\": [0"; for (i = 0; i < 200000; i++) printf ",1"; print "]}" }' >"$dir/large.json"
answers 200 /completion -d "@$dir/large.json"
says "$out" '"tokens_predicted":2'
sed -i 's/"prompt": "Hi", "n_predict": 2/"input": "Hi"/' "$dir/large.json"
answers 200 /v1/embeddings -d "@$dir/large.json"

claim='an unknown path is 404, another method 405 with those that are allowed'
answers 404 /nope
says "$out" '"type":"not_found_error"'
answers 405 /v1/chat/completions
says "$out" '"type":"invalid_request_error"'
says "$dir/head" '^Allow: POST'
for path in /rerank /reranking /v1/rerank /v1/reranking; do
    answers 501 $path -d '{}'
done

claim='a page of another name cannot ask'
answers 403 /v1/models -H 'Host: evil.example'
says "$out" '--allow-hosts NAME'

# ---- the page

claim='browsers get a page at /, others a line; it may load, run and ask nothing but what this server has'
answers 200 / -H 'Accept: */*'
says "$out" '^kin is running'
answers 200 / -H 'Accept: text/html,*/*;q=0.8'
says "$out" '<!doctype html>'
says "$dir/head" "^Content-Security-Policy: default-src 'none'; script-src 'self'; .*frame-ancestors 'none'"
says "$dir/head" '^X-Content-Type-Options: nosniff'
for file in $(sed -n 's/.*="\(page\/[a-z.]*\)".*/\1/p' "$out"); do answers 200 "/$file"; done
says "$dir/head" '^Content-Type: text/javascript'
answers 304 /page/main.js -H "If-None-Match: $(sed -n 's/^ETag: //p' "$dir/head" | tr -d '\r')"
answers 404 /page/none.js
answers 404 /page/index.html
answers 404 /join/page/index.html
answers 404 /page/../page.c --path-as-is

claim='who listens to events is told of the machine within a second, and does not keep the server from its end'
curl -sN -m 2000 -o "$dir/events" "$base/kin/events" &
listener=$!
until_says "$dir/events" '"cluster":{"head":{.*"devices":\[{'
until_says "$dir/events" '"is_up":true'

claim='no more than 16 listen, and those that went away are forgotten'
for i in $(seq 15); do
    curl -sN -m 600 -o "$dir/listener$i" "$base/kin/events" &
    others="${others:-} $!"
done
for i in $(seq 15); do until_says "$dir/listener$i" '^event: state'; done
answers 503 /kin/events
# shellcheck disable=SC2086 # a list of numbers
kill $others
n=0
while ! curl -sN -m 5 "$base/kin/events" | grep -q '^event: state' && [ $n -lt 100 ]; do
    sleep 0.1
    n=$((n + 1))
done
[ $n -lt 100 ] || fail 'no place was given back'

claim='there is no code to join a machine on its own'
answers 404 /kin/code
answers 403 /kin/code -H 'Sec-Fetch-Site: same-site'

# ---- refusals

claim='what is wrong with a request is a 400 that names it'
for body in '' '[]' '{' '{}' '{"messages": []}' '{"messages": "hi"}' '{"messages": [{"role": "user"}]}' "{$user, \"temperature\": \"hot\"}" \
    "{$user, \"n\": 0}" "{$user, \"n\": 129}" "{$user, \"max_tokens\": -5}" "{$user, \"tool_choice\": \"bogus\"}" \
    "{$user, \"response_format\": {\"type\": \"xml\"}}" "{$user, \"json_schema\": {\"type\": \"nonsense\"}}" "{$user, \"grammar\": \"root ::= foo\"}"; do
    answers 400 /v1/chat/completions -d "$body"
    says "$out" '"type":"invalid_request_error"'
done
answers 400 /v1/messages -d '{}'
says "$out" '^{"type":"error"'
answers 400 /v1/completions -d '{"prompt": [1, 999999999]}'

claim='a prompt longer than the context is refused with both numbers'
printf '{"prompt": "%s"}' "$(printf 'x%.0s' $(seq 5000))" >"$dir/body"
answers 400 /v1/completions -d "@$dir/body"
says "$out" '"type":"exceed_context_size_error"'
says "$out" '"n_ctx":2048'
says "$out" 'start the server with a larger --ctx"'

claim='a request of more texts than there is ever room for is told so, and takes nobody else room'
answers 400 /v1/completions -d "{\"prompt\": [$(printf '"a",%.0s' $(seq 15))\"a\"], \"n\": 128}"
says "$out" 'for 2048 completions'
chat 200 '"max_tokens": 1'

# ---- texts

claim='n, several prompts, stop words, seeds and probabilities are as asked'
chat 200 '"n": 128, "max_tokens": 1'
n=$(grep -o '"index":' "$out" | wc -l)
[ "$n" -eq 128 ] || fail "$n choices"
answers 200 /v1/completions -d '{"prompt": ["One day", "There was"], "n": 2, "max_tokens": 2}'
says "$out" '"index":3'
answers 200 /completion -d '{"prompt": "One", "stop": [" "], "n_predict": 50}'
says "$out" '"stop_type":"word"'
answers 200 /completion -d '{"prompt": "One", "temperature": 0, "grammar": "root ::= \"a\\n  b\\n    c\\n  d\\n e\\n   f\"", "n_indent": 2}'
says "$out" '"content":"a\\n  b\\n    c\\n  d\\n "'
says "$out" '"stop_type":"limit"'
chat 200 '"logprobs": true, "top_logprobs": 3, "max_tokens": 1'
says "$out" '"top_logprobs":\[{'
for i in 1 2; do
    answers 200 /v1/completions -d '{"prompt": "One", "max_tokens": 20, "seed": 7, "temperature": 1.5}'
    sed 's/.*"text":"\([^"]*\)".*/\1/' "$out" >"$dir/text$i"
done
same "$dir/text1" "$dir/text2"

claim='a request that names no seed has that of --seed, and another one has its own'
for seed in '' '' ', "seed": 6'; do
    answers 200 /v1/completions -d "{\"prompt\": \"One\", \"max_tokens\": 20, \"temperature\": 1.5$seed}"
    { sed 's/.*"text":"\([^"]*\)".*/\1/' "$out" && echo; } >>"$dir/seeded"
done
n=$(sort -u "$dir/seeded" | wc -l)
[ "$n" -eq 2 ] || fail "$n different texts, not 2"

claim="with echo a prompt's tokens have the probabilities that they had when they were written"
numbers() { sed 's/.*"token_logprobs":\[\([^]]*\)\].*/\1/' "$out"; }
answers 200 /completion -d '{"prompt": "One", "n_predict": 80, "temperature": 0, "ignore_eos": true, "return_tokens": true}'
ids=$(sed 's/.*"tokens":\[\([^]]*\)\].*/\1/' "$out")
answers 200 /v1/completions -d '{"prompt": "One", "max_tokens": 80, "temperature": 0, "ignore_eos": true, "logprobs": 0}'
written=$(numbers)
answers 200 /tokenize -d '{"content": "One", "add_special": true}'
ids=$(sed 's/.*\[\([^]]*\)\].*/\1/' "$out"),$ids
answers 200 /v1/completions -d '{"prompt": "One", "max_tokens": 1, "temperature": 0, "echo": true, "logprobs": 0}'
says "$out" '"text":"One' # as the client wrote it, without the BOS token
says "$out" '"text_offset":\[0,0,'
for n in 0 1; do
    answers 200 /v1/completions -d "{\"prompt\": [[$ids], [$ids]], \"max_tokens\": $n, \"echo\": true, \"logprobs\": 2}"
    got=$(numbers)
    case "$got" in
    null,-*,"$written"*) ;;
    *) fail "$got" ;;
    esac
done

claim='with post_sampling_probs they are those of what the sampler draws from'
post='"prompt": "One", "n_predict": 1, "n_probs": 5, "post_sampling_probs": true'
answers 200 /completion -d "{$post, \"top_k\": 2, \"top_p\": 1, \"min_p\": 0}"
n=$(grep -o '"prob":' "$out" | wc -l)
[ "$n" -eq 3 ] || fail "$n probabilities, not the chosen one and two"
answers 200 /completion -d "{$post, \"temperature\": 0}"
says "$out" '"prob":1.0,"top_probs":\[{[^}]*"prob":1.0}\]'
answers 200 /completion -d "{$post, \"grammar\": \"root ::= \\\"zebra\\\"\"}"
says "$out" '"prob":0\.[0-9]*[1-9]\|"prob":1.0'

claim='a grammar, a schema and a required tool hold'
answers 200 /completion -d '{"prompt": "x", "grammar": "root ::= \"yes\"", "n_predict": 10}'
says "$out" '"content":"yes"'
schema='{"type": "object", "properties": {"a": {"enum": ["x"]}}, "required": ["a"], "additionalProperties": false}'
tools="\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": $schema}}], \"parallel_tool_calls\": false"
chat 200 "$tools, \"tool_choice\": \"required\""
says "$out" '"name":"f"'
says "$out" '"finish_reason":"tool_calls"'
claim='a part of a schema that is not understood is named by its tool and place, or refused where the schema is strict'
odd='{"type": "object", "properties": {"a": {"type": "string", "pattern": "(?<=a)b"}}}'
odd_tool() { printf '"max_tokens": 2, "tools": [{"type": "function", "function": {"name": "f", "parameters": %s%s}}]' "$odd" "$1"; }
chat 200 "$(odd_tool '')"
says "$dir/head" '^X-Kin-Relaxed: tools.f#/properties/a/pattern (.*look-behind'
chat 400 "$(odd_tool ', "strict": true')"
says "$out" '#/properties/a/pattern'
answers 200 /v1/messages -d "{$user, \"max_tokens\": 2, \"tools\": [{\"name\": \"f\", \"input_schema\": $odd}]}"
says "$dir/head" '^X-Kin-Relaxed: tools.f#/properties/a/pattern '
answers 400 /v1/messages -d "{$user, \"max_tokens\": 2, \"output_format\": {\"type\": \"json_schema\", \"schema\": $odd}}"
says "$out" '#/properties/a/pattern'
claim='a grammar that names an ordinary token is the fault of the request'
answers 400 /completion -d '{"prompt": "x", "grammar": "root ::= <[300]>", "n_predict": 2}'
says "$out" '<\[300\]> is .*, which is not a control token'
claim='a call that is cut in its beginning is no text'
for n in 1 2 3 4 5 6 7 8 9; do
    chat 200 "$tools, \"tool_choice\": \"required\", \"max_tokens\": $n"
    says "$out" '"finish_reason":"length"'
    says_not "$out" '<tool\|{\\"name'
done
claim='in the Responses API a call that is cut is incomplete, as its response'
for n in 6 9 14; do
    answers 200 /v1/responses -d "{\"input\": \"Hi\", \"tools\": [{\"type\": \"function\", \"name\": \"f\", \"parameters\": $schema}],
        \"tool_choice\": \"required\", \"max_output_tokens\": $n}"
    says "$out" '"status":"incomplete"'
    says_not "$out" '"status":"completed"'
done
claim='schemas that take long to compile leave threads to others. Too many of them are refused, and those of clients that left are dropped'
costly=
for i in $(seq 12); do costly="$costly\"p$i\": {\"type\": \"string\", \"pattern\": \"a.{1$i}\$\", \"maxLength\": 400}, "; done
costly="{\"prompt\": \"x\", \"n_predict\": 1, \"json_schema\": {\"type\": \"object\", \"properties\": {$costly\"z\": true}}}"
echo "$costly" >"$dir/costly"
clients=
for i in $(seq 80); do
    curl -s -m 240 -o "$dir/costly$i" -w '%{http_code}\n' --data-binary "@$dir/costly" "$base/completion" >"$dir/status$i" &
    clients="$clients $!"
done
n=0
while [ "$(cat "$dir"/status[0-9]* | grep -c 503)" -eq 0 ] && [ $n -lt 1200 ]; do # the lane is full
    sleep 0.05
    n=$((n + 1))
done
answers 200 /completion -d '{"prompt": "x", "n_predict": 1}'
n=$(cat "$dir"/status[0-9]* | grep -c 200)
[ "$n" -lt 30 ] || fail "$n schemas were compiled before a request without one was answered"
cat "$dir"/costly[0-9]* >"$out" 2>/dev/null
says "$out" 'schemas or grammars take long to compile'
# shellcheck disable=SC2086 # a list of numbers
kill $clients 2>/dev/null
# shellcheck disable=SC2086
wait $clients 2>/dev/null
n=0
while [ "$(curl -s "$base/metrics" | sed -n 's/^kin:requests_cancelled_total //p')" -lt 30 ] && [ $n -lt 1200 ]; do
    sleep 0.05
    n=$((n + 1))
done
[ $n -lt 1200 ] || fail 'they are not dropped'
answers 200 /completion --data-binary "@$dir/costly"
says "$dir/head" 'X-Kin-Relaxed: .*p1/pattern .too complex'
claim='of several texts the best ones are given back'
answers 200 /v1/completions -d '{"prompt": ["One", "Two"], "n": 2, "best_of": 4, "max_tokens": 3, "seed": 1}'
says "$out" '"index":3'
says_not "$out" '"index":4'
says "$out" '"completion_tokens":24'
says "$out" '"logprobs":null'
answers 400 /v1/completions -d '{"prompt": "One", "best_of": 4, "stream": true}'
claim='a suffix needs a model with tokens for it'
answers 400 /v1/completions -d '{"prompt": "One", "suffix": "Two"}'
says "$out" '"param":"suffix"'
says "$out" 'prefix token is missing'
claim='a tool without parameters is called without arguments'
for function in '{"name": "f"}' '{"name": "f", "parameters": null}'; do
    chat 200 "\"tools\": [{\"type\": \"function\", \"function\": $function}], \"tool_choice\": \"required\", \"parallel_tool_calls\": false"
    says "$out" '"arguments":"{}"'
done
claim="a text that is too long to embed is cut, as Ollama's API has it, unless that is forbidden"
words=$(printf 'hill %.0s' $(seq 2100))
answers 200 /api/embed -d "{\"input\": \"$words\"}"
says "$out" '"prompt_eval_count":2048'
answers 400 /api/embed -d "{\"input\": \"$words\", \"truncate\": false}"
answers 400 /v1/embeddings -d "{\"input\": \"$words\"}"

claim='a prompt that was there is not computed again, and the usage says so'
for stream in false true; do
    for i in 1 2; do
        answers 200 /v1/chat/completions \
            -d "{\"messages\": [{\"role\": \"user\", \"content\": \"$stream $long\"}], \"max_tokens\": 2, \"stream\": $stream, \"stream_options\": {\"include_usage\": true}}"
    done
    says "$out" '"cached_tokens":[1-9][0-9]'
done

claim='a slot that is erased loses its texts, and no other one does'
slot() { answers 200 /completion -d "{\"prompt\": \"slot $1 $long\", \"id_slot\": $1, \"n_predict\": 2}"; }
cached() { says "$out" "\"cache_n\":$1"; }
for id in 3 4; do slot $id; done
slot 3
says "$out" '"id_slot":3'
cached '[1-9][0-9]'
answers 200 '/slots/3?action=erase' -X POST
says "$out" '^{"id_slot":3,"n_erased":[1-9][0-9]*}$'
answers 200 '/slots/3?action=erase' -X POST
says "$out" '"n_erased":0'
slot 3
cached '0,'
slot 4
cached '[1-9][0-9]'
answers 501 '/slots/3?action=save' -d '{"filename": "a"}'
says "$out" 'slot-save-path'
answers 400 '/slots/3?action=nonsense' -X POST
answers 400 '/slots/3x?action=erase' -X POST

claim='the same text in all APIs'
answers 200 /v1/messages -d "{$user, \"max_tokens\": 2}"
says "$out" '"stop_reason":"max_tokens"'
answers 200 /v1/responses -d '{"input": "hi", "max_output_tokens": 2}'
says "$out" '"status":"incomplete"'
answers 200 /api/chat -d "{\"model\": \"demo\", $user, \"stream\": false, \"options\": {\"num_predict\": 2}}"
says "$out" '"done_reason":"length"'

# ---- clients that disconnect

claim='clients that vanish leave nothing behind'
vanish='{"prompt": "One", "max_tokens": 1900, "ignore_eos": true, "stream": true}'
for i in $(seq 40); do
    curl -sN -m 0.$((2 * (1 + i % 4))) -o /dev/null "$base/v1/completions" -d "$vanish" &
    gone="${gone:-} $!"
done
# shellcheck disable=SC2086 # a list of numbers
wait $gone
n=0
none_is_there() { grep -q '^llamacpp:requests_processing 0' "$out" && grep -q '^llamacpp:requests_deferred 0' "$out"; }
while answers 200 /metrics && ! none_is_there && [ $n -lt 1200 ]; do
    sleep 0.05
    n=$((n + 1))
done
says "$out" '^llamacpp:requests_processing 0'
says "$out" '^llamacpp:requests_deferred 0'
says "$out" '^kin:requests_cancelled_total [1-9][0-9]'

claim='a client that says that it sends nothing more is answered, and one that is gone is not waited for'
half() {
    python3 - "${base#http://}" "$@" <<'EOF'
import socket, sys
host, port = sys.argv[1].rsplit(":", 1)
body = sys.argv[2].encode()
s = socket.create_connection((host, int(port)))
# The FIN goes out in one segment with the request: to a stream that has already begun, a later one looks like a disconnect.
more = getattr(socket, "MSG_MORE", 0) if sys.argv[3] == "stays" else 0
s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body, more)
if sys.argv[3] == "gone":
    sys.exit()
s.shutdown(socket.SHUT_WR)
answer = b""
while piece := s.recv(65536):
    answer += piece
print(answer.decode())
EOF
}
if command -v python3 >/dev/null; then
    half '{"prompt": "One", "max_tokens": 300, "ignore_eos": true}' stays >"$out"
    says "$out" '"completion_tokens":300'
    half '{"prompt": "One", "max_tokens": 3, "stream": true}' stays >"$out"
    says "$out" 'data: \[DONE\]'
    answers 200 /metrics
    before=$(sed -n 's/^kin:requests_cancelled_total //p' "$out") n=0
    half '{"prompt": "One", "max_tokens": 1900, "ignore_eos": true, "n": 12}' gone
    while answers 200 /metrics && ! none_is_there && [ $n -lt 1200 ]; do
        sleep 0.05
        n=$((n + 1))
    done
    [ "$(sed -n 's/^kin:requests_cancelled_total //p' "$out")" -gt "$before" ] || fail "nobody noticed that the client was gone"
else
    echo 'no python3: clients that send nothing more are left out'
fi

claim='a device that is sent to a port where no head is says so at once, and ends'
KIN_PROFILE=$(dirname "$0")/machine.json
export KIN_PROFILE
"$kin" code --new --key-file "$dir/keys/key" >"$out" 2>"$err"
status 1 timeout 60 "$kin" join "${base#http://}" --key-file "$dir/keys/key"
says "$err" '127.0.0.1:[0-9]* answers, but is not kin'
says_not "$err" 'TLS'
status 1 timeout 60 "$kin" status "${base#http://}" --key-file "$dir/keys/key"
says "$err" '127.0.0.1:[0-9]*: it answers, but is not kin'

claim='two servers cannot have one port'
status 1 "$kin" serve --port "${base##*:}"
says "$err" 'address already in use'
claim='what cannot be written is refused, and a doubled path is explained'
curl -s "$base/v1/models" | grep -o '"n_vocab":[0-9]*' | tr -dc 0-9 >"$dir/n_vocab"
awk -v n="$(cat "$dir/n_vocab")" 'BEGIN { printf "{\"prompt\": \"a\", \"logit_bias\": ["; for (i = 0; i < n; i++) printf "%s[%d, false]", i ? "," : "", i; print "]}" }' >"$dir/all"
answers 400 /completion -d "@$dir/all"
says "$out" "forbids every token"
awk -v n="$(cat "$dir/n_vocab")" 'BEGIN { printf "{\"prompt\": \"a\", \"grammar\": \"root ::= \\\"(7\\\"\", \"logit_bias\": ["; for (i = 0; i < n - 1; i++) printf "%s[%d, false]", i ? "," : "", i; print "]}" }' >"$dir/most"
answers 400 /completion -d "@$dir/most"
says "$out" "after 0 tokens the grammar .* allows only tokens that 'logit_bias'"
answers 404 /v1/v1/models
says "$out" 'has /v1 twice'

stop
wait "$listener" || fail "the listener's stream ended with $?"

# ---- reasoning

claim='without a code, browsers are told one thing: that they cannot join'
rm "$dir/keys/key.code"
serve --cluster --key-file "$dir/keys/key" --listen 127.0.0.1
until_says "$log" 'browsers cannot join: .*: the code of this key is not stored here'
says_not "$log" 'browsers join'
stop

claim='the code is not written into a journal'
serve --cluster --key-file "$dir/new/key" --listen 127.0.0.1
says "$log" "'kin code' to see its code"
code=$("$kin" code --key-file "$dir/new/key")
says_not "$log" "$code"
stop

claim='the page is told how devices reach the head, and whether they find it by themselves'
is_told() { # HIDDEN [OPTION]
    serve --cluster --key-file "$dir/new/key" --listen 127.0.0.1 ${2:+"$2"}
    curl -sN -m 600 -o "$dir/head_$1" "$base/kin/events" &
    listener=$!
    until_says "$dir/head_$1" '"head":{"address":"127.0.0.1","port":[1-9][0-9]*,"hidden":'"$1"
    stop
    wait "$listener" || fail "the stream of events ended with $?"
}
is_told false
is_told true --hidden

claim='reasoning ends when its budget is spent, with the message that was asked for'
printf '{%% for m in messages %%}{{ m.content }}{%% endfor %%}<think>' >"$dir/thinks.jinja"
"$mkmodel" --layers 2 --vocab 8000 -o "$dir/endless.gguf" >/dev/null # its texts never end on their own
serve --ctx 2048 -m "$dir/endless.gguf" --chat-template-file "$dir/thinks.jinja" --reasoning-budget 0
thinks() { chat 200 "\"seed\": 1, \"max_tokens\": 60, $1"; }
thinks '"thinking_budget_tokens": 10'
says "$out" '"reasoning_content":"[^"]'
says "$out" '"content":"[^"]'
n_marker=$(sed -n 's/.*"reasoning_tokens":\([0-9]*\).*/\1/p' "$out")
case $n_marker in 1[0-9]) ;; *) fail "$n_marker tokens of reasoning" ;; esac
thinks '"reasoning_budget": 10, "reasoning_budget_message": " No more."'
says "$out" '"reasoning_content":"[^"]* No more."'
thinks '"n": 1'
says_not "$out" '"reasoning_content":"[^"]'
says "$out" '"content":"[^"]'
thinks '"thinking_budget_tokens": -1'
says "$out" '"reasoning_tokens":60'
answers 200 /v1/messages -d "{$user, \"max_tokens\": 60, \"thinking\": {\"type\": \"enabled\", \"budget_tokens\": 10}}"
says "$out" '"type":"thinking".*"type":"text"'
schema='{"type": "object", "properties": {"a": {"enum": ["x"]}}, "required": ["a"], "additionalProperties": false}'
thinks "\"thinking_budget_tokens\": 10, \"json_schema\": $schema"
says "$out" '"content":"[^"]*{[^x]*x[^}]*}'
stop

# ---- the queue, and signals

# Starts a text that continues until the context is full.
endless() { # FILE
    curl -sN -m 240 -o "$1" "$base/v1/completions" -d '{"prompt": "One", "ignore_eos": true, "stream": true}' &
    client=$!
    until_says "$1" '"text"'
}

claim='who comes when all places are taken is told to come again, and health is still answered'
serve --ctx 8192 --parallel 1 --max-queue 0 --api-key one,two
answers 200 /health
answers 401 /v1/models
answers 401 /v1/models -H 'Authorization: Bearer on'
answers 200 /v1/models -H 'X-Api-Key: two'

for key in 'Authorization: Bearer one,two' 'Authorization: one' 'Authorization: Basic one' 'X-Api-Key: '; do answers 401 /v1/models -H "$key"; done
answers 200 /v1/models -H 'authorization: bearer one'
answers 401 '/v1/models?api_key=one'
answers 401 /v1/messages -d '{}'
says "$out" '^{"type":"error","error":{"type":"authentication_error"'
answers 200 /v1/health
answers 200 /v1/models -X OPTIONS

claim='the page needs no key, what it asks for does'
answers 200 / -H 'Accept: text/html'
answers 200 /page/main.js
answers 401 /kin/events
answers 401 /kin/code
stop

claim='the page can be behind a prefix, and be left out'
claim='a slot is saved to a file, and restored after a restart'
slots() { answers "$1" "/slots/$2" -d "$3"; } # STATUS SLOT?ACTION BODY
serve --ctx 2048 --no-kv-disk --slot-save-path "$dir/slots"
slot 3
slots 200 '3?action=save' '{"filename": "a.bin"}'
says "$out" '^{"id_slot":3,"filename":"a.bin","n_saved":[1-9][0-9]*,"n_written":[1-9]'
check_mode=$(ls -ld "$dir/slots" "$dir/slots/a.bin" | cut -c1-10 | tr '\n' ' ')
[ "$check_mode" = 'drwx------ -rw------- ' ] || fail "others can read it: $check_mode"
slots 400 '8?action=save' '{"filename": "b.bin"}'
for name in ../a /etc/passwd .hidden '' 'a/b' 'a.bin\u0000b'; do
    slots 400 '3?action=save' "{\"filename\": \"$name\"}"
    slots 400 '3?action=restore' "{\"filename\": \"$name\"}"
done
slots 404 '3?action=restore' '{"filename": "c.bin"}'
echo '{"kin_slot": 1, "n_vocab": 7, "tokens": [1]}' >"$dir/slots/other"
echo 'nothing' >"$dir/slots/bad"
slots 400 '3?action=restore' '{"filename": "other"}'
says "$out" 'another vocabulary'
slots 400 '3?action=restore' '{"filename": "bad"}'
stop
serve --ctx 2048 --no-kv-disk --slot-save-path "$dir/slots"
slots 200 '5?action=restore' '{"filename": "a.bin"}'
says "$out" '"id_slot":5,"filename":"a.bin","n_restored":[1-9][0-9]*,"n_read":[1-9]'
slot 3
cached '[1-9][0-9]'
answers 200 '/slots/5?action=erase' -X POST
stop

claim='behind a prefix'
serve --api-prefix /deep/kin
answers 200 / -H 'Accept: text/html'
says "$out" '="/deep/kin/page/main.js"'
says_not "$out" '="page/'
answers 200 /page/main.js
stop

claim='environment variables of llama-server; --strict-model'
export LLAMA_ARG_WEBUI=off LLAMA_ARG_ALIAS=from-env,other LLAMA_ARG_ENDPOINT_SLOTS=0
serve --strict-model
unset LLAMA_ARG_WEBUI LLAMA_ARG_ALIAS LLAMA_ARG_ENDPOINT_SLOTS
answers 200 /v1/models
says "$out" '"id":"from-env","aliases":\["from-env","other"\]'
answers 200 /v1/models/other
says "$out" '"id":"from-env"'
answers 200 /v1/models/other:latest
says "$out" '"id":"from-env"'
answers 200 /api/show -d '{"model": "other"}'
says "$out" '"template":"[^"]'
says "$out" '"capabilities":\["completion".*"embedding"'
chat 200 '"model": "other", "max_tokens": 1'
says "$out" '"model":"from-env"'
chat 404 '"model": "from-env,other", "max_tokens": 1'
says "$out" '"code":"model_not_found"'
chat 200 '"model": "other:latest", "max_tokens": 1'
answers 404 /v1/embeddings -d '{"model": "demo", "input": "x"}'
says "$out" '"code":"model_not_found"'
answers 200 /v1/embeddings -d '{"model": "other", "input": "x"}'
answers 501 /props -d '{}'
answers 501 /slots
answers 200 / -H 'Accept: text/html'
says "$out" '^kin is running'
answers 404 /page/main.js
answers 403 /kin/code
stop
serve --ctx 8192 --parallel 1 --max-queue 3 --sse-ping-interval 1 --no-prefix-cache

claim="a stream's header is sent when its text is begun, not with its first token"
printf '{"prompt": [%s9], "max_tokens": 1, "stream": true, "sse_ping_interval": -1}' "$(printf '300,%.0s' $(seq 5000))" >"$dir/long"
curl -s -m 240 -o "$out" -w '%{time_starttransfer} %{time_total}' "$base/v1/completions" -d "@$dir/long" >"$err"
awk '{ exit !($1 < 0.8 * $2) }' "$err" || fail "the header came late: $(cat "$err")"

claim='a stream that waits is kept alive, unless its request says no, and leaves the queue with its client'
endless "$dir/stream0"
waiting() { # FILE FIELDS
    curl -sN -m 240 -o "$1" "$base/v1/chat/completions" -d "{$user, \"stream\": true$2}" &
    waiters="${waiters:-} $!"
}
waiting "$dir/kept" ''
waiting "$dir/silent" ', "sse_ping_interval": -1'
curl -sN -m 240 -o "$dir/message" "$base/v1/messages" -d "{$user, \"stream\": true}" &
waiters="$waiters $!"
until_says "$dir/kept" '^:$'
until_says "$dir/message" '^event: ping'
chat 429 '"max_tokens": 1'
says "$out" '"type":"rate_limit_error"'
[ ! -s "$dir/silent" ] || fail 'a stream that wants no signs of life gets some'
# shellcheck disable=SC2086 # a list of numbers
kill $waiters "$client"
n=0
while answers 200 /metrics && ! none_is_there && [ $n -lt 400 ]; do
    sleep 0.05
    n=$((n + 1))
done
says "$out" '^llamacpp:requests_deferred 0'
stop
serve --ctx 2048 --parallel 1 --max-queue 0
endless "$dir/stream"
chat 429 '"max_tokens": 1'
says "$dir/head" '^Retry-After: '
answers 200 /health

claim='SIGTERM lets the texts end that are being written'
kill -TERM "$server"
ends_well
says "$log" 'shutting down after the open requests'
wait "$client" || fail "the client ended with $?"
says "$dir/stream" '"finish_reason":"length"'
says "$dir/stream" '^data: \[DONE\]'

claim='a second signal ends them, and they are told'
serve --ctx 8192
endless "$dir/stream2"
kill -INT "$server"
kill -TERM "$server"
ends_well
wait "$client"
says_not "$dir/stream2" '^data: \[DONE\]'
says "$dir/stream2" 'the server is shutting down'

claim='a wrong option is a usage error'
for words in '--nope' '--port 99999' '--parallel 0'; do
    # shellcheck disable=SC2086 # a list of words
    status 2 "$kin" serve $words
done
claim="llama-server's options are understood: -1 is its word for what it finds right"
status 1 "$kin" serve "$dir/none.gguf" --port 0 --parallel -1 -t -1 --seed -1 --no-context-shift
says "$err" 'none.gguf: No such file'
says "$err" '--no-context-shift is ignored'
status 1 "$kin" serve "$dir/none.gguf" --port 0 -ngl -1 --cache-ram -1 --sleep-idle-seconds -1 --reasoning auto
says "$err" 'none.gguf: No such file'
if ! "$kin" run -p x -n 1 --gpu-layers 1 >"$out" 2>&1; then # this machine has no GPU
    serve -ngl 99
    says "$log" '--gpu-layers 99: no GPU found .*the CPU computes all layers'
    stop
fi
status 2 "$kin" serve --port 0 --reasoning maybe
says "$err" '--reasoning'
status 2 "$kin" serve --port 0 -ot 'x=CPU'
says "$err" '-ot: kin places whole layers, and experts'
claim="... and its environment variables, which the command line wins over; a misspelt name of its is told"
status 1 env LLAMA_ARG_MODEL="$dir/none.gguf" LLAMA_ARG_N_PARALLEL=-1 LLAMA_ARG_NO_CACHE_PROMPT=1 LLAMA_ARG_JINJA=on "$kin" serve --port 0
says "$err" 'none.gguf: No such file'
status 2 env LLAMA_ARG_CTX_SIZE=many "$kin" serve --port 0
says "$err" '^kin serve: environment variable LLAMA_ARG_CTX_SIZE: --ctx many: must be'
status 2 env LLAMA_ARG_CTX_SIZE=100 "$kin" serve --port 0 --ctx many
says "$err" '^kin serve: --ctx many: must be'
status 2 env KIN_CTX=many LLAMA_ARG_CTX_SIZE=many "$kin" serve --port 0
says "$err" '^kin serve: environment variable KIN_CTX: --ctx many: must be'
status 1 env LLAMA_ARG_PORT=1 LLAMA_ARG_ALIAS=other "$kin" serve "$dir/none.gguf" --port 0 --alias mine
says "$err" 'none.gguf: No such file' # it did not try to use port 1
status 2 env LLAMA_ARG_KV_UNIFIED=0 "$kin" serve --port 0
says "$err" 'LLAMA_ARG_KV_UNIFIED: all sequences share one KV cache'
status 2 env LLAMA_ARG_ENDPOINT_METRICS=maybe "$kin" serve --port 0
says "$err" 'LLAMA_ARG_ENDPOINT_METRICS: must be 1 or 0'
status 2 "$kin" serve --port 0 --ctx-sise 100
says "$err" 'did you mean --ctx-size?'
claim='--alias without a name, or with more than are kept, is refused'
status 1 "$kin" serve --port 0 --alias ,,
says "$err" '--alias ,,: contains no name'
status 1 "$kin" serve --port 0 --alias a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q
says "$err" '--alias: more than 16 names'
status 1 "$kin" serve --port 0 --alias "$(printf '%0256d' 0)"
says "$err" '--alias: more than 255 bytes'
claim='what would open the server to others by mistake is refused'
status 1 "$kin" serve --port 0 --host 0.0.0.0
says "$err" 'give --api-key-file FILE (or --api-key KEY, which every user'
for command in serve chat; do
    status 0 "$kin" help $command
    says "$out" 'visible to all local users, so prefer --api-key-file'
done
status 1 "$kin" serve --port 0 --cors-origins evil.example
says "$err" '--cors-origins'
status 1 "$kin" serve --port 0 --api-key-file "$dir/none"
says "$err" 'no such API key file'

tally
