#!/bin/sh
# A ring in which the head's model file is written to, then a device's own file: no text comes from mixed weights. Real processes on
# loopback.
#
#   test_changed_file_ring.sh PATH_TO_KIN      (mkmodel is in the same folder)
set -u
# shellcheck source=tests/ring.sh
. "$(dirname "$0")/ring.sh"
export KIN_DRAFT=off
model=$dir/model.gguf
for seed in 1 2; do
    "$mkmodel" --preset tiny --layers 6 --vocab 300 --ctx 4096 --type f16 --seed $seed -o "$dir/$seed.gguf" >/dev/null || fail 'no model'
done
cp "$dir/1.gguf" "$model"
words='one two three four five six seven eight nine ten eleven twelve'
ask() { # NAME: requests a text and stores it under NAME; the status is in $status
    status=$(curl -s -m 60 -o "$dir/$1.json" -w '%{http_code}' -d "{\"prompt\": \"$words $words $words $words\",
        \"n_predict\": 24, \"temperature\": 0, \"ignore_eos\": true}" "$base/completion")
    sed -n 's/.*"content":"\(.*\)","tokens".*/\1/p' "$dir/$1.json" >"$dir/$1.text"
}
has_health() { [ "$(curl -s -m 10 -o "$dir/health" -w '%{http_code}' "$base/health")" = "$1" ]; } # STATUS
is_right() {                                                                                      # NAME
    check [ "$status" = 200 ]
    check [ -s "$dir/$1.text" ]
    same "$dir/right.text" "$dir/$1.text"
}
stop_head() {
    kill "$pid_head"
    wait "$pid_head" 2>/dev/null
}

claim='a text of an undisturbed ring'
join anna
serve_with 1 --no-kv-disk -m "$model"
ask right
is_right right
stop_head

claim="another model is copied over the head's file: 503 says which file, in /health, too"
serve_with 1 -m "$model"
cp "$dir/2.gguf" "$model"
ask changed
check [ "$status" = 503 ]
says "$dir/changed.json" 'model.gguf: was overwritten or truncated'
wait_until 10 has_health 503
says "$dir/health" 'model.gguf: was overwritten or truncated'

claim='the right file back: the ring comes up again, and its text is right, after a restart, too'
cp "$dir/1.gguf" "$model"
wait_until 60 has_health 200
wait_for 20 "$dir/serve.log" 'the model was reloaded'
ask anew
is_right anew
stop_head
serve_with 1 -m "$model"
ask restarted
is_right restarted

claim="the head's file is emptied"
: >"$model"
ask emptied
check [ "$status" = 503 ]
wait_until 10 has_health 503
cp "$dir/1.gguf" "$model"
wait_until 60 has_health 200
ask filled
is_right filled
stop_head
kill "$pid_anna"
wait "$pid_anna" 2>/dev/null

claim="a device's own file is overwritten: it fetches its layers from the head, and the text is right"
cp "$dir/1.gguf" "$dir/own.gguf"
join bert -m "$dir/own.gguf"
serve_with 1 --no-kv-disk -m "$model"
ask own
is_right own
cp "$dir/2.gguf" "$dir/own.gguf"
ask overwritten
is_right overwritten
wait_for 20 "$dir/bert.log" 'own.gguf: was overwritten or truncated'
wait_until 60 has_line "$dir/serve.log" "device 'bert' (stage"
ask again
is_right again
: >"$dir/own.gguf"
ask without
is_right without
check kill -0 "$pid_bert"
tally
