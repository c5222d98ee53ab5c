#!/bin/sh
# Groups of real processes on loopback that share each layer: on their own, inside a ring, and when a device dies in the middle.
#
#   test_group_devices.sh PATH_TO_KIN      (mkmodel is in the same folder)
set -u
# shellcheck source=tests/ring.sh
. "$(dirname "$0")/ring.sh"
"$mkmodel" --preset tiny --type f16 --heads 8 --heads-kv 4 --layers 3 -o "$dir/model.gguf" 2>"$dir/log" || exit 1
export KIN_PLAN=tp

claim='devices that cannot share a model are told, in the log and by status, to the end of the sentence'
"$mkmodel" --preset tiny --type f16 --heads 8 --heads-kv 1 --layers 2 -o "$dir/narrow.gguf" 2>"$dir/log" || exit 1
join dora
on_head run -m "$dir/narrow.gguf" -p x -n 4 >"$dir/text" &
pid_head=$!
why='2 devices cannot share the layers of this model: its weights divide into only 1 piece of attention and .* of the feed-forward block'
wait_for 20 "$dir/head.log" "$why"
HOME=$dir/head "$kin" status --key-file "$dir/head/key" "127.0.0.1:$port" >"$dir/status.txt" 2>"$dir/status.log"
says "$dir/status.txt" "^head 'desk': .*$why\$"
kill "$pid_dora" # the remaining devices can do it
wait "$pid_head" || fail "it gave up"

endless() { # NAME OPTION...: starts an endless text on the head, in the background; sets $pid_head
    who=$1
    key head
    shift
    anew "$dir/$who"
    HOME=$dir/head "$kin" run --cluster --name desk --key-file "$dir/head/key" --listen 127.0.0.1 --port "$port" --hidden -t 1 \
        -p 'Once upon a time' --temp 0 -n 30000 --ctx 30100 --ignore-eos "$@" >"$dir/$who" 2>>"$dir/head.log" &
    pid_head=$!
    pids="$pids $pid_head"
}

claim='of more devices than can share the layers some have none, and one of them takes the place of a device that dies'
"$mkmodel" --preset tiny --type f16 --heads 8 --heads-kv 2 --layers 2 -o "$dir/pair.gguf" 2>"$dir/log" || exit 1
join anna
join ben
mkfifo "$dir/lines"
mark "$dir/head.log"
on_head run --devices 2 -m "$dir/pair.gguf" --lines -n 4 <"$dir/lines" >"$dir/few" &
pid_head=$!
exec 9>"$dir/lines" # the ring stays as long as more lines may come
wait_for 20 "$dir/head.log" "serving on 1 device; '.*' has no layers"
without=$(sed -n "s/.*serving on 1 device; '\(.*\)' has no layers/\1/p" "$dir/head.log" | tail -n 1)
left_out="joined the head 'desk', whose plan leaves this device out: --plan tp assigns no layers to it"
wait_for 20 "$dir/$without.log" "$left_out"
HOME=$dir/head "$kin" status --key-file "$dir/head/key" "127.0.0.1:$port" >"$dir/status.txt" 2>"$dir/status.log"
says "$dir/status.txt" "^head 'desk': serving on 1 device; '.*' has no layers"
says "$dir/status.txt" "^$without: $left_out"
exec 9>&-
wait "$pid_head" || fail "it gave up"
mark "$dir/head.log"
endless pair --devices 2 -m "$dir/pair.gguf"
wait_for 20 "$dir/head.log" '2 devices can share the layers of this model, but 3 have joined: 1 has none'
wait_for 20 "$dir/head.log" "serving on 1 device; '.*' has no layers"
idle=$(sed -n "s/.*serving on 1 device; '\(.*\)' has no layers/\1/p" "$dir/head.log" | tail -n 1)
[ "$idle" = ben ] && member=anna || member=ben
wait_until 20 [ -s "$dir/pair" ]
eval "kill -9 \$pid_$member"
written=$(wc -c <"$dir/pair")
end_text "$pid_head" "$dir/pair" $((written + 2000))
endless undisturbed --devices 1 -m "$dir/pair.gguf"
end_text "$pid_head" "$dir/undisturbed" $((written + 2000))
alike "$dir/pair" "$dir/undisturbed" $((written + 1000)) # a group of the same size gives the same bits
[ "$idle" = ben ] && kill "$pid_ben" || kill "$pid_anna"
wait "$pid_anna" "$pid_ben" 2>/dev/null

export KIN_MODEL="$dir/model.gguf"
tokens='1 50 60 70 80 90 100 110 120 130 140 150 160 170 180 190 200'

claim='a group of two gives what one machine gives, and the same bits twice and by every way'
alone eval --tokens "$tokens" --batch 8 --greedy 16 >"$dir/want.ids"
join anna
on_head eval --devices 1 --batch 8 --tokens "$tokens" --greedy 16 --logits "$dir/first" >"$dir/got.ids"
same "$dir/want.ids" "$dir/got.ids"
for way in mesh star tree ring; do
    on_head eval --devices 1 --allreduce $way --batch 8 --tokens "$tokens" --greedy 16 --logits "$dir/got" >"$dir/got.ids"
    same "$dir/want.ids" "$dir/got.ids"
    same "$dir/first" "$dir/got" # two numbers have only one sum
done
claim='what is on the wire may be rounded'
for type in f16 q8; do
    on_head eval --devices 1 --wire $type --batch 8 --tokens "$tokens" --greedy 16 --logits "$dir/first.$type" >"$dir/got.ids"
    check [ -s "$dir/got.ids" ]
    on_head eval --devices 1 --wire $type --batch 8 --tokens "$tokens" --greedy 16 --logits "$dir/got" >"$dir/got.ids"
    same "$dir/first.$type" "$dir/got"
    cmp -s "$dir/first" "$dir/got" && fail "nothing was rounded"
done

claim='weights come through a sliding window'
for words in '' '--window 3 --retain 2'; do
    # shellcheck disable=SC2086 # options and their values
    on_head eval --devices 1 --weights window $words --batch 8 --tokens "$tokens" --greedy 16 --logits "$dir/got" >"$dir/got.ids"
    same "$dir/want.ids" "$dir/got.ids"
    same "$dir/first" "$dir/got"
done

claim='a group inside of a ring: before, with and after others'
join ben
cat >"$dir/plan.json" <<END
{"devices": [{"group": ["anna", "ben"], "window": 3, "shares": [2, 1]}, {"device": "head", "window": 2}]}
END
on_head eval --plan "$dir/plan.json" --batch 8 --tokens "$tokens" --greedy 16 --logits "$dir/got" >"$dir/got.ids"
same "$dir/want.ids" "$dir/got.ids"
cat >"$dir/plan.json" <<END
{"devices": [{"device": "anna", "window": 1}, {"group": ["ben", "head"], "window": 2}]}
END
on_head eval --plan "$dir/plan.json" --batch 8 --tokens "$tokens" --greedy 16 >"$dir/got.ids"
same "$dir/want.ids" "$dir/got.ids"

claim='a plan that cannot be is refused with a sentence'
cat >"$dir/wrong.json" <<END
{"devices": [{"group": ["head", "ben"], "window": 2}, {"device": "anna", "window": 1}]}
END
on_head run --plan "$dir/wrong.json" -p x && fail "it ran"
says "$dir/head.log" 'a group with the head must be last'
on_head run --allreduce cube -p x && fail "it ran"
says "$dir/head.log" 'must be mesh, star, tree or ring'

claim='when devices of a group die in the middle of a text, the others write what they would have written'
mark "$dir/head.log"
endless text --devices 2 # of three devices, while all are alive
wait_for 20 "$dir/head.log" 'serving on 2 devices'
written=0
for pid in "$pid_anna" "$pid_ben"; do # three, two, one device: each after more of the text
    wait_until 30 longer "$dir/text" $written
    kill -9 "$pid"
    written=$(wc -c <"$dir/text")
done
end_text "$pid_head" "$dir/text" $((written + 1000))
join anna
join ben
endless undisturbed --devices 2
end_text "$pid_head" "$dir/undisturbed" $((written + 1000))
alike "$dir/text" "$dir/undisturbed" $((written + 500))

claim='when a device of a group inside of a ring dies in the middle of a text, and comes back, the text is the same'
cat >"$dir/plan.json" <<END
{"devices": [{"group": ["anna", "ben"], "window": 2}, {"device": "head", "window": 1}]}
END
endless text --plan "$dir/plan.json"
wait_until 30 [ -s "$dir/text" ]
kill -9 "$pid_anna"
written=$(wc -c <"$dir/text")
join anna
end_text "$pid_head" "$dir/text" $((written + 1000))
endless undisturbed --plan "$dir/plan.json"
end_text "$pid_head" "$dir/undisturbed" $((written + 1000))
alike "$dir/text" "$dir/undisturbed" $((written + 500))

claim='who was left out of a plan that cannot go on waits for the next one'
cat >"$dir/plan.json" <<END
{"devices": [{"device": "anna", "window": 2}, {"device": "head", "window": 1}]}
END
mark "$dir/ben.log"
endless text --plan "$dir/plan.json" --devices 2
wait_for 20 "$dir/ben.log" 'whose plan leaves this device out'
mark "$dir/ben.log"
kill -9 "$pid_anna"
wait_for 20 "$dir/ben.log" "joined the head 'desk', waiting for work"
kill "$pid_head"
wait "$pid_head" 2>/dev/null

tally
