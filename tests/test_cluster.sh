#!/bin/sh
# A ring of real processes on loopback: its output, and its reaction to devices that die, hang, or have no right to be there.
#
#   test_cluster.sh PATH_TO_KIN
set -u
# shellcheck source=tests/ring.sh
. "$(dirname "$0")/ring.sh"
tokens='1 50 60 70 80 90 100 110 120 130 140 150 160 170 180 190 200'

claim='two devices without the model give the bits of one machine'
alone eval --tokens "$tokens" --batch 8 --greedy 24 --logits "$dir/want" >"$dir/want.ids"
join anna
join ben
on_head eval --devices 2 --batch 8 --chunk 8 --tokens "$tokens" --greedy 24 --logits "$dir/got" >"$dir/got.ids"
same "$dir/want.ids" "$dir/got.ids"
same "$dir/want" "$dir/got"
claim='so they do in four rounds, planned by memory, and the devices outlive their head'
on_head eval --devices 2 --rounds 4 --plan memory --batch 8 --chunk 8 --tokens "$tokens" --greedy 24 --logits "$dir/got" >"$dir/got.ids"
same "$dir/want.ids" "$dir/got.ids"
same "$dir/want" "$dir/got"
claim='a plan by hand: a relay, uneven windows, a head without layers'
cat >"$dir/plan.json" <<END
{"devices": [{"device": "anna", "window": 3}, {"device": "ben", "window": 0}, {"device": "cleo", "window": 2, "memory": "1G"}]}
END
join cleo
on_head eval --plan "$dir/plan.json" --batch 8 --chunk 8 --tokens "$tokens" --greedy 24 --logits "$dir/got" >"$dir/got.ids"
same "$dir/want.ids" "$dir/got.ids"
same "$dir/want" "$dir/got"

claim='two processes that share a key file are two devices, and none of them has the name of the head'
join desk
HOME=$dir/anna "$kin" join "127.0.0.1:$port" --name twin --key-file "$dir/anna/key" --listen 127.0.0.1 -t 1 --cache "$dir/twin" \
    >>"$dir/twin.log" 2>&1 &
pid_twin=$!
pids="$pids $pid_twin"
on_head eval --devices 5 --batch 8 --chunk 8 --tokens "$tokens" --greedy 24 --logits "$dir/got" >"$dir/got.ids"
same "$dir/want.ids" "$dir/got.ids"
says "$dir/head.log" "device 'desk-2' (stage . of 5) is ready"
says "$dir/head.log" "device 'twin' (stage . of 5) is ready"
says "$dir/head.log" "device 'anna' (stage . of 5) is ready"
kill "$pid_desk" "$pid_twin"
wait "$pid_desk" "$pid_twin"

claim='a timeline: a row for each device, with bars, in a file that is whole'
on_head run --plan "$dir/plan.json" -p 'Once upon a time' --temp 0 -n 12 --timeline "$dir/line.svg" >"$dir/line.txt"
check [ "$(grep -c 'class="device"' "$dir/line.svg")" -eq 4 ]
for who in anna ben cleo desk; do
    n_checks=$((n_checks + 1))
    row=$(awk -v name=">$who<" 'index($0, name) { on = 1 } /<\/g>/ { on = 0 } on' "$dir/line.svg")
    for kind in compute wait send; do
        [ "$(echo "$row" | grep -c "class=\"$kind\".*<title>")" -ge 6 ] || fail "less than 6 bars of $kind for $who"
    done
done
check [ "$(grep -c '>token ' "$dir/line.svg")" -eq 8 ]
check [ "$(tail -n 1 "$dir/line.svg")" = '</svg>' ]
check [ "$(grep -o '<[a-z]*[ >]' "$dir/line.svg" | wc -l)" -eq "$(grep -o -e '</' -e '/>' "$dir/line.svg" | wc -l)" ]
on_head run --plan "$dir/plan.json" -p 'Once upon a time' --temp 0 -n 12 >"$dir/plain.txt"
same "$dir/line.txt" "$dir/plain.txt"
claim='a machine alone has a timeline, too'
alone run -p 'Once upon a time' --temp 0 -n 12 --timeline "$dir/one.svg" >"$dir/one.txt"
same "$dir/plain.txt" "$dir/one.txt"
check [ "$(grep -c 'class="device"' "$dir/one.svg")" -eq 1 ]
check [ "$(grep -c 'class="compute".*<title>' "$dir/one.svg")" -ge 8 ]
alone run -p 'Once upon a time' --temp 0 -n 1 --timeline "$dir/none.svg" >"$dir/one.txt" 2>"$dir/none.log" && fail 'a picture of nothing'

claim='a plan that cannot be is refused with the place'
echo '{"devices": [{"device": "anna", "windows": 3}]}' >"$dir/wrong.json"
on_head run --plan "$dir/wrong.json" -p x && fail "it ran"
says "$dir/head.log" 'wrong.json: device 1: unknown key "windows"'

claim='when all devices that are waited for are there, and there is no plan, nobody waits any longer'
echo '{"devices": [{"device": "zoe", "window": 3}, {"device": "desk", "window": 2}]}' >"$dir/zoe.json"
on_head run --plan "$dir/zoe.json" --devices 3 -p x && fail "it ran"
says "$dir/head.log" '3 devices are here as requested: .*zoe'
claim='but a plan by hand waits for those whom it names, whoever else is there'
on_head run --plan "$dir/zoe.json" -p 'Once upon a time' --temp 0 -n 12 >"$dir/zoe.txt" &
waiting=$!
sleep 7 # longer than its timeout would be
join zoe
wait $waiting || fail "it did not run"
same "$dir/plain.txt" "$dir/zoe.txt"
kill "$pid_zoe"
wait "$pid_zoe"

claim='somebody with another key stays outside, and is told'
key eve 8
join eve
mkfifo "$dir/prompts"
mark "$dir/head.log"
on_head run --devices 3 --lines --temp 0 -n 60 <"$dir/prompts" >"$dir/text" &
pid_head=$!
pids="$pids $pid_head"
while echo 'Once upon a time'; do :; done >"$dir/prompts" 2>/dev/null &
pids="$pids $!"
wait_for 10 "$dir/head.log" 'another key'
wait_for 10 "$dir/head.log" 'serving on 3 devices'
wait_for 10 "$dir/eve.log" 'another key'

claim='status: all devices with their windows, as text and as JSON'
status() { # NAME OPTION...
    who=$1
    key "$who"
    shift
    HOME=$dir/$who "$kin" status --key-file "$dir/$who/key" "$@"
}
tokens_are_counted() { status olga "127.0.0.1:$port" --json 2>"$dir/status.log" | grep -q '"tokens_per_s": [1-9]'; }
wait_until 10 tokens_are_counted # they appear a second after the first tokens
status olga "127.0.0.1:$port" >"$dir/status.txt" 2>"$dir/status.log"
check [ $? -eq 0 ]
says "$dir/status.txt" "^head 'desk': serving on 3 devices"
says "$dir/status.txt" 'sequences: 1 active'
for who in anna ben cleo desk; do says "$dir/status.txt" "^$who  *computing  *[0-9]-[0-9] .* %  .* ms "; done
status olga "127.0.0.1:$port" --json >"$dir/status.json"
check [ $? -eq 0 ]
check [ "$(grep -c '"name": ' "$dir/status.json")" -eq 5 ]
cp "$dir/status.txt" "$dir/status1.txt"; cp "$dir/status.json" "$dir/status1.json"
check [ "$(grep -c '"layer_begin": ' "$dir/status.json")" -eq 4 ]
for who in '"layer_begin": 0' '"layer_begin": 2' '"layer_end": 8' '"role": "head"' '"tokens_per_s": [1-9]'; do
    says "$dir/status.json" "$who"
done
claim='status without the key, or without a head, fails with a sentence'
status eve "127.0.0.1:$port" >"$dir/status.txt" 2>"$dir/status.log" && fail 'it showed something'
says "$dir/status.log" 'another key'
status olga 127.0.0.1:1 >"$dir/status.txt" 2>"$dir/status.log" && fail 'it showed something'
says "$dir/status.log" '^kin: 127.0.0.1: '

grows() { # waits until the text does
    size=$(wc -c <"$dir/text") n=0
    while [ "$(wc -c <"$dir/text")" -le $((size + 2000)) ] && [ $n -lt 1200 ]; do
        sleep 0.05
        n=$((n + 1))
    done
    check [ $n -lt 1200 ]
}

# The log names the lost device and the reason. Between two texts the ring is idle, and the loss may be reported only when the next one
# begins.
lost() { echo "device '$1'.* \(broke: ..*\|is gone (..*)\)\(; \(generation continues\|rebuilding the ring\)\|, waiting for it to come back\)"; } # NAME

claim='a device that is killed in mid-text: it is named, generation continues without it, and it may come back'
grows
mark "$dir/head.log"
kill -9 "$pid_ben"
wait_for 5 "$dir/head.log" "$(lost ben)"
check [ "$(tail -n "+$((seen + 1))" "$dir/head.log" | grep -c "'ben'.*no answer")" -eq 0 ] # noticed at once, not by a timeout
wait_for 10 "$dir/head.log" "serving on 2 devices"
grows
join ben
wait_for 15 "$dir/head.log" "serving on 3 devices"
grows

claim='a device that hangs is noticed when it has not answered for one and a half seconds'
mark "$dir/head.log"
kill -STOP "$pid_anna"
wait_for 5 "$dir/head.log" "$(lost anna)"
check has_line "$dir/head.log" 'no answer for 1.5 s'
grows
kill -CONT "$pid_anna"
wait_for 15 "$dir/head.log" "serving on 3 devices"
grows
claim='every text is the same, also of those that lost a device in the middle'
strangers=$(awk '{ lines[NR] = $0; if (length($0) > length(longest)) longest = $0 }
    END { for (i = 1; i <= NR; i++) n += index(longest, lines[i]) != 1; print n + 0 }' "$dir/text")
check [ "$strangers" -eq 0 ]
check [ "$(grep -c 'the text ends here' "$dir/head.log")" -eq 0 ]

claim='Ctrl-C ends the head cleanly'
for child in $(cat "/proc/$pid_head/task/$pid_head/children"); do kill -INT "$child"; done
wait "$pid_head"
status=$?
check [ $status -eq 130 ] || echo "status $status"

claim='Ctrl-C ends a device cleanly'
kill -INT "$pid_cleo"
wait "$pid_cleo"
check [ $? -eq 0 ]

claim='kin serve: a device that is killed is a pause for its clients, and their texts are the same'
join dora
serve_with 3 --metrics --ctx 8192
ask() { # FILE SEED N
    curl -s -m 240 -N -d "{\"prompt\": \"Once upon a time\", \"n_predict\": $3, \"ignore_eos\": true, \"stream\": true, \"seed\": $2}" \
        "$base/completion" >"$1"
}
ask_all() { # NAME N
    asking=
    for i in 1 2 3; do
        anew "$dir/$1$i"
        ask "$dir/$1$i" $i "$2" &
        asking="$asking $!"
    done
}
words() { sed -n 's/^data: {.*"content":"\([^"]*\)".*/\1/p' "$1" | tr -d '\n'; }
ask_all whole 200
n=0
until curl -s -m 10 "$base/metrics" >"$dir/metrics" && grep -q '^kin:device' "$dir/metrics" || [ $n -ge 1200 ]; do
    sleep 0.05
    n=$((n + 1))
done
for who in anna ben dora desk; do says "$dir/metrics" "^kin:device_compute_ratio{device=\"$who\"} [01]"; done
wait $asking
curl -s -m 240 -d '{"prompt": ["One", "Two"], "n": 2, "max_tokens": 1}' "$base/v1/completions" >"$dir/four"
ask_all cut 2500 # long enough to be running still when the device dies
has_events() { [ "$(grep -c '^data' "$dir/$1")" -ge "$2" ]; } # NAME N
wait_until 60 has_events cut1 10
kill -9 "$pid_dora"
for i in 1 2 3; do
    wait_until 60 has_events "cut$i" 210
    words "$dir/whole$i" >"$dir/words$i"
    n=$(wc -c <"$dir/words$i")
    check [ "$n" -gt 500 ]
    words "$dir/cut$i" | head -c "$n" >"$dir/words"
    same "$dir/words$i" "$dir/words"
done
status olga "127.0.0.1:$port" >"$dir/status.txt" 2>"$dir/status.log"
says "$dir/status.txt" '^sequences: [0-3] active, 10 total' # those that the loss interrupted are counted once
# shellcheck disable=SC2086 # a list of numbers
kill $asking
says "$dir/serve.log" "device 'dora'.*; generation continues"
kill "$pid_head"
wait "$pid_head"

claim='code: not in a log, from a file that is its user'"'"'s alone'
mkdir "$dir/new"
code_of() { "$kin" code --key-file "$dir/new/key" "$@" 2>"$dir/code.log"; }
code_of && fail 'a code of nothing'
says "$dir/code.log" 'no cluster yet'
serve() { # a head that creates its key, or has one; it waits for devices
    HOME=$dir/new timeout 480 "$kin" run --cluster --name desk --key-file "$dir/new/key" --listen 127.0.0.1 --port "$port" --hidden \
        -t 1 --temp 0 -n 12 -p 'Once upon a time' >"$dir/new.txt" 2>>"$dir/new.log" &
    pid_head=$!
    pids="$pids $pid_head"
}
serve
wait_for 20 "$dir/new.log" "kin code' to see its code"
code=$(code_of)
check [ ${#code} -eq 19 ]
! grep -q -e "$code" "$dir/new.log" || fail "the code is in a log, which others may read"
check [ "$(ls -l "$dir/new/key.code" | cut -c1-10)" = -rw------- ]
claim='code --new: not while a head runs; then another one'
code_of --new && fail 'a key in use was changed'
says "$dir/code.log" 'stop it, then'
check [ "$(code_of)" = "$code" ]
kill "$pid_head"
wait "$pid_head"
cp "$dir/new/key" "$dir/old.key"
new_code=$(code_of --new)
says "$dir/code.log" 'the code was changed'
check [ "$new_code" != "$code" ]
check [ "$(code_of)" = "$new_code" ]
claim='code: a key without its code, or with that of another, says what to do'
mv "$dir/new/key" "$dir/new/key.kept"
cp "$dir/old.key" "$dir/new/key"
code_of && fail 'a code of another key'
says "$dir/code.log" 'does not match the code'
mv "$dir/new/key.code" "$dir/new/code.kept"
code_of && fail 'a code from nowhere'
says "$dir/code.log" 'code --new'
mv "$dir/new/key.kept" "$dir/new/key"
mv "$dir/new/code.kept" "$dir/new/key.code"

claim='a code that does not fit is not kept, and the device says what to do'
newcomer() { # NAME OPTION...: a device that reads the code from stdin
    (become "$@")
}
become() { # the same in place of this shell, so that its pid is the device's
    who=$1
    shift
    mkdir -p "$dir/$who"
    HOME=$dir/$who exec "$kin" join "127.0.0.1:$port" --name "$who" --key-file "$dir/$who/key" --listen 127.0.0.1 -t 1 "$@" \
        >>"$dir/$who.log" 2>&1
}
serve
echo "$code" | newcomer fay --ask-code && fail 'it joined'
says "$dir/fay.log" "another key: wrong code; run 'kin code' on the head, then 'kin join --ask-code'"
check [ ! -e "$dir/fay/key" ]
claim='a code file that others can read, or with a wrong code, is refused, and nobody is asked'
(umask 077 && echo "$code" >"$dir/code.file")
chmod 644 "$dir/code.file"
newcomer fay --code-file "$dir/code.file" </dev/null && fail 'it joined'
says "$dir/fay.log" "code-file: $dir/code.file: other users can read or change this key; fix it with: chmod 600"
chmod 600 "$dir/code.file"
newcomer fay --code-file "$dir/code.file" </dev/null && fail 'it joined'
says "$dir/fay.log" "write the code that 'kin code' shows on the head into $dir/code.file"
check [ ! -e "$dir/fay/key" ]
claim='code --new has cut off a device that kept the old key'
mkdir "$dir/gus"
cp "$dir/old.key" "$dir/gus/key"
newcomer gus && fail 'it joined'
says "$dir/gus.log" "another key: wrong code; run 'kin code' on the head, then 'kin join --ask-code'"
same "$dir/old.key" "$dir/gus/key"
claim='on a terminal the code is asked for again, and kept when the head has accepted it'
if script --version 2>/dev/null | grep -q util-linux; then # only util-linux's script has -c
    printf '%s\n%s\n' "$code" "$new_code" | HOME=$dir/gus SHELL=/bin/sh script -qec \
        "exec $kin join 127.0.0.1:$port --name gus --key-file $dir/gus/key --listen 127.0.0.1 -t 1" /dev/null >"$dir/tty.log" 2>&1 &
else
    echo 'skipped: no script of util-linux, so the code is asked for once only'
    rm "$dir/gus/key"
    echo "$new_code" | newcomer gus --ask-code &
fi
pids="$pids $!"
wait "$pid_head"
check [ $? -eq 0 ]
same "$dir/plain.txt" "$dir/new.txt"
same "$dir/new/key" "$dir/gus/key"
claim='a device without a terminal joins with the code in a file, and keeps its key'
serve
echo "$new_code" >"$dir/code.file"
become fay --code-file "$dir/code.file" </dev/null &
pids="$pids $!"
wait "$pid_head"
check [ $? -eq 0 ]
same "$dir/plain.txt" "$dir/new.txt"
same "$dir/new/key" "$dir/fay/key"
[ ! -e "$dir/tty.log" ] || check [ "$(grep -c 'another key' "$dir/tty.log")" -eq 2 ]
check [ "$(ls -l "$dir/gus/key" | cut -c1-10)" = -rw------- ]

tally
