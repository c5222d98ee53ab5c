#!/bin/sh
# kin serve with the options and requests of scripts that were written for llama-server.
#
#   test_llama_words.sh PATH_TO_KIN
set -u
# shellcheck source=tests/checks.sh
. "$(dirname "$0")/checks.sh"
# shellcheck source=tests/serving.sh
. "$(dirname "$0")/serving.sh"

demo=$(dirname "$0")/../assets/demo.gguf
chat() { # FIELDS: sends a chat with one message
    answers 200 /v1/chat/completions -d "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"max_tokens\": 2$1}"
}
template() { # FIELDS: renders the prompt into $out
    answers 200 /apply-template -d "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]$1}"
}

claim='templates come by name or as text, --no-jinja changes nothing, --tags are shown'
serve -m "$demo" --no-jinja --chat-template llama3 --tags 'small, home'
template ''
says "$out" '"prompt":"<|start_header_id|>user<|end_header_id|>\\n\\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>'
answers 200 /v1/models
says "$out" '"tags":\["small","home"\]'
claim='a last message of the assistant is gone on with, unless the request says not'
answers 200 /apply-template -d '{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Well"}]}'
says "$out" 'assistant<|end_header_id|>\\n\\nWell"'
answers 200 /apply-template -d '{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Well"}], "continue_final_message": false}'
says_not "$out" 'Well"'
claim='input_tokens counts what a chat takes'
for path in /v1/chat/completions/input_tokens /chat/completions/input_tokens; do
    answers 200 $path -d '{"messages": [{"role": "user", "content": "Hi"}]}'
    says "$out" '"input_tokens":[1-9]'
done
for path in /v1/responses/input_tokens /responses/input_tokens; do
    answers 200 $path -d '{"input": "Hi"}'
    says "$out" '"object":"response.input_tokens"'
done
claim='the context is shared, which /props says'
answers 200 /props
says "$out" '"context_is_shared":true'
says "$out" '"is_sleeping":false'
claim='__verbose is there when a request asks for it'
chat ''
says_not "$out" __verbose
chat ', "verbose": true'
says "$out" '"__verbose":{.*"prompt":"<|endoftext|><|start_header_id|>user'
claim='metrics count as llama-server counts'
answers 200 /metrics
says "$out" '^llamacpp:prompt_tokens_total [1-9]'
before=$(sed -n 's/^llamacpp:prompt_tokens_total //p' "$out")
cached=$(sed -n 's/^llamacpp:prompt_tokens_cached_total //p' "$out")
chat '' # the prefix is cached now
says "$out" '"cache_n":[1-9][0-9]*,"prompt_n":[1-9]'
n_cached=$(sed -n 's/.*"cache_n":\([0-9]*\).*/\1/p' "$out")
n_computed=$(sed -n 's/.*"prompt_n":\([0-9]*\).*/\1/p' "$out")
answers 200 /metrics
says "$out" "^llamacpp:prompt_tokens_total $((before + n_computed))\$"
says "$out" "^llamacpp:prompt_tokens_cached_total $((cached + n_cached))\$"
says "$out" '^llamacpp:n_tokens_max [1-9]'
rate() { # METRIC TOKENS SECONDS: it must be the quotient of the two counters
    awk -v rate="llamacpp:$1" -v tokens="$2" -v seconds="llamacpp:$3" '
        { value[$1] = $2 }
        END { q = value[seconds] > 0 ? tokens / value[seconds] : 0; exit !(q > 0 && value[rate] > q * 0.99 && value[rate] < q * 1.01) }' "$out" ||
        fail "$1 is not $2 / $3: $(grep '_seconds' "$out" | grep -v '#' | tr '\n' ' ')"
}
rate prompt_tokens_seconds $((before + n_computed)) prompt_seconds_total
n=$(sed -n 's/^llamacpp:tokens_predicted_total //p' "$out")
rate predicted_tokens_seconds $((n / 2)) tokens_predicted_seconds_total # each chat has a first token and another one
claim='a seed of 64 bits, and content that is null, are taken'
chat ', "seed": 18446744073709551615'
answers 200 /apply-template -d '{"messages": [{"role": "user", "content": null}]}'
stop

claim='reasoning can be turned off, or on, for chats that do not say; --verbose is for all answers'
thinks='{% if enable_thinking is undefined %}?{% elif enable_thinking %}yes{% else %}no{% endif %}{% for m in messages %} {{ m.content }}{% endfor %}'
serve -m "$demo" --chat-template "$thinks" --reasoning off -v --cors-origins 'https://chat.example, localhost'
template ''
says "$out" '"prompt":"no Hi'
template ', "chat_template_kwargs": {"enable_thinking": true}'
says "$out" '"prompt":"yes Hi'
chat ''
says "$out" '"__verbose":{.*"prompt":"<|endoftext|>no Hi'
claim='pages of the listed origins may ask, and others not'
preflight() { # ORIGIN: the header is in $dir/head
    answers 200 /v1/chat/completions -X OPTIONS -H "Origin: $1" -H 'Access-Control-Request-Method: POST' \
        -H 'Access-Control-Request-Headers: authorization,x-mine' -H 'Access-Control-Request-Private-Network: true'
}
preflight https://chat.example
says "$dir/head" '^Access-Control-Allow-Origin: https://chat.example'
says "$dir/head" '^Access-Control-Allow-Headers: authorization,x-mine'
says "$dir/head" '^Access-Control-Allow-Private-Network: true'
preflight http://localhost:3000
says "$dir/head" '^Access-Control-Allow-Origin: http://localhost:3000'
preflight https://other.example
says_not "$dir/head" '^Access-Control-Allow-Origin'
answers 403 /v1/models -H 'Origin: https://chat.example.org'
stop

claim='a model sleeps when nothing asks for it, and wakes'
serve -m "$demo" --sleep-idle-seconds 1 --seed -1 --chat-template "$thinks{# <think> </think> #}" --reasoning on --reasoning-format none
n=0
while answers 200 /v1/models && ! grep -q '"value":"unloaded"' "$out" && [ $n -lt 600 ]; do
    sleep 0.05
    n=$((n + 1))
done
says "$out" '"value":"unloaded"'
answers 200 /health
chat ', "model": "of-another-name"'
says "$out" '"content":"'
claim='what is gone on with keeps the white space at its end where the template does'
answers 200 /apply-template -d '{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Well "}]}'
says "$out" 'Well "'
claim='reasoning is on for chats that do not say, and stays in the content, unless the request asks for a field'
template ''
says "$out" '"prompt":"yes Hi'
thought='"max_tokens": 20, "grammar": "root ::= \"<think>a</think>b\""'
answers 200 /v1/chat/completions -d "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], $thought}"
says "$out" '"content":"<think>a</think>b"'
answers 200 /v1/chat/completions -d "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], $thought, \"reasoning_format\": \"deepseek\"}"
says "$out" '"reasoning_content":"a"'
claim='the seed -1 is another one for each request'
for i in 1 2; do
    answers 200 /completion -d '{"prompt": "One", "n_predict": 20, "temperature": 1.5}'
    sed 's/.*"content":"\([^"]*\)".*/\1/' "$out" >"$dir/text$i"
done
cmp -s "$dir/text1" "$dir/text2" && fail 'twice the same text'
stop

claim='what cannot be is refused with the words that can'
status 1 "$kin" serve --port 0 -m "$demo" --chat-template nonsense
says "$err" 'neither a template .* nor a known name: chatml, llama2'
status 2 "$kin" serve --port 0 -m "$demo" --reasoning maybe
says "$err" 'on, off or auto'
status 2 "$kin" serve --port 0 -m "$demo" --reasoning-format yes
says "$err" 'none'
status 1 "$kin" serve --port 0 -m "$demo" --cors-origins example
says "$err" 'origins like https://'
status 1 "$kin" serve --port 0 --sleep-idle-seconds 5
says "$err" 'needs -m or --models-dir'
status 1 "$kin" serve --port 0 -m "$demo" --chat-template chatml --chat-template-file x
says "$err" 'cannot be combined with --chat-template-file'

tally
