#!/bin/sh
# kin chat on a terminal (tmux), in a pipe, and as a client of kin serve: commands, Ctrl-C at every moment, terminal features.
#
#   test_chat.sh PATH_TO_KIN      (mkmodel is in the same folder)
set -u
command -v tmux >/dev/null || { echo 'skipped: no tmux' && exit 77; }
# shellcheck source=tests/checks.sh
. "$(dirname "$0")/checks.sh"
# shellcheck source=tests/serving.sh
. "$(dirname "$0")/serving.sh"
t() { tmux -u -S "$dir/tmux" -f /dev/null "$@"; }
trap 't kill-server 2>/dev/null; [ -z "$server" ] || kill -9 $server 2>/dev/null; rm -rf "$dir"' EXIT
screen=$dir/screen
assets=$(cd "$(dirname "$0")/../assets" && pwd) || exit 1
cd "$dir" || exit 1 # file names stay short, so that messages with them fit on one line

# chat OPTION...: starts it in a new terminal of 60 x 24. Its exit status is written to the file `ended`.
chat() {
    rm -f ended
    t resize-window -x 60 -y 24
    # shellcheck disable=SC2016 # the inner shell's
    t respawn-pane -k env "TERM=${TERM_OF_CHAT:-screen}" sh -c 'trap : INT; "$@"; echo $? >ended.new; mv ended.new ended; sleep 60' sh "$kin" chat -t 1 "$@"
}
resize() { t resize-window -x "$1" -y "$2" && sleep 0.35; } # tmux tells its programs 0.25 s later
type() { t send-keys -l -- "$1"; }
key() { t send-keys "$@"; }
line() { type "$1" && key Enter; }
look() { t capture-pane -p >"$screen"; }
wait_for() { # COMMAND...
    n=0
    while [ $n -lt 3000 ] && ! "$@"; do
        sleep 0.02
        n=$((n + 1))
    done
    n_checks=$((n_checks + 1))
    [ $n -lt 3000 ]
}
shows_now() { look && grep -q -e "$1" "$screen"; }
shows() { # PATTERN
    wait_for shows_now "$1" || { fail "no '$1' on the screen" && cat "$screen"; }
}
hides() {
    wait_for hidden_now "$1" || { fail "'$1' on the screen" && cat "$screen"; }
}
hidden_now() { look && ! grep -q -e "$1" "$screen"; }
ends() { # STATUS
    wait_for test -f ended || fail 'it does not end'
    [ "$(cat ended)" = "$1" ] || fail "status $(cat ended), not $1"
}
long_now() { look && [ "$(wc -c <"$screen")" -gt 400 ]; } # a few lines of an answer
# Tries again, because another process may hold the port for a moment.
serve_again() { # PORT
    for _ in 1 2 3 4 5; do
        : >"$log" # otherwise the previous server's line would match
        "$kin" serve --port "$1" -t 1 --ctx 30000 -m "$dir/slow.gguf" --api-key secret 2>"$log" >/dev/null </dev/null &
        server=$!
        while kill -0 $server 2>/dev/null && ! grep -q 'serving .* at http' "$log"; do sleep 0.05; done
        kill -0 $server 2>/dev/null && return
        sleep 0.5
    done
    fail 'no server on the port of the one before' && cat "$log"
}
prompts_now() { look && [ "$(grep -c '^>' "$screen")" -ge "$1" ]; }
fresh() { key C-l && hides '/help'; } # clears the screen
t new-session -d -x 60 -y 24 'sleep 600'
"$mkmodel" --layers 2 --vocab 8000 --untied --endless -o slow.gguf >"$out"

# ---- in a pipe

claim='in a pipe stdin is one message, and stdout has the answer only'
printf 'Once upon a time\nthere was' | "$kin" chat -t 1 -n 5 --temp 0 >"$out" 2>"$err" || fail "status $?"
lines "$out" 1
says "$err" 'reached its token limit'
printf 'x' | "$kin" chat -t 1 -n 5 --temp 0 --system 'Be kind.' >"$dir/2" 2>"$err" || fail "status $?"
cmp -s "$out" "$dir/2" && fail 'another message has the same answer'
claim='what is no UTF-8 is U+FFFD in the message'
printf 'x\377\303' | "$kin" chat -t 1 -n 5 --temp 0 >"$out" 2>"$err" || fail "status $?: $(cat "$err")"
printf 'x\357\277\275\357\277\275' | "$kin" chat -t 1 -n 5 --temp 0 >"$dir/2" 2>"$err" || fail "status $?"
cmp -s "$out" "$dir/2" || fail 'another answer'
claim='in a pipe without a message, or a server, it fails with a sentence'
status 1 "$kin" chat -t 1
says "$err" 'stdin is empty'
status 1 "$kin" chat --server http://127.0.0.1:1
says "$err" '^kin: the server at 127.0.0.1:1: Connection refused$'
status 2 "$kin" chat --server desk --cluster
if [ -w /dev/full ]; then
    printf x | "$kin" chat -t 1 -n 5 >/dev/full 2>"$err" && fail 'a full disk is no error'
    says "$err" '^kin: stdout: '
fi

# ---- at a terminal

claim='an answer is broken between words, as wide as the terminal is'
printf 'Once upon a time' | "$kin" chat -t 1 -n 90 --temp 0 --seed 2 >"$out" 2>"$err"
chat -n 90 --seed 2 --stats --temp 0
shows '^kin: demo, .* /help lists'
line 'Once upon a time'
shows 'tokens/s;'
words() { tr -s ' \n' '  '; }
[ "$(sed 's/.\{60\}/& /g' "$out" | words)" != "$(words <"$out")" ] || fail 'no word of the answer is at the edge of the screen'
words <"$screen" >"$dir/words"
grep -qF -e "$(words <"$out")" "$dir/words" || { fail 'the words on the screen are others' && cat "$screen"; }
claim='a conversation: answers, and every command'
fresh
line /help
shows '/regen '
line /nope
shows "unknown command '/nope'"
fresh
line /regen
shows 'tokens/s;'
line '/system Be kind.'
shows 'system prompt is set'
line "/save talk.json"
shows 'saved '
says talk.json '"role": "system"'
says talk.json '"content": "Once upon a time"'
[ "$(grep -c '"role": "assistant"' talk.json)" -eq 1 ] || fail 'the answer is not there once'
printf 'precious' >mine
line "/save mine"
shows 'is not a conversation'
says mine '^precious$'
fresh
line /clear
shows 'a new conversation'
line /regen
shows 'no message to answer'
line "/load mine"
shows 'line 1: '
line "/load none"
shows 'no such file'
line "/load talk.json"
shows '3 messages'
line "/save again.json"
shows 'saved again.json'
same talk.json again.json
line /quit
ends 0

claim='a message that begins in the first row is not kept by tmux as cleared from the screen'
chat -m slow.gguf -n 3 --temp 0
shows '^>'
key C-l
hides 'slow.gguf'
t clear-history
type 'a word'
shows '^> a word$'
type ' more'
shows '^> a word more$'
[ "$(t capture-pane -p -S - | grep -c 'a word')" -eq 1 ] || fail 'it is in the history'
key C-u
line /quit
ends 0

claim='UTF-8, wide and combining characters, editing, and a terminal that is resized'
chat -m slow.gguf -n 3 --temp 0
shows '^>'
type "ab 世界🙂 e$(printf '\314\201')x"
key Left BSpace BSpace BSpace BSpace # deletes é as one character, then 🙂, then 界
type 'é'
shows '^> ab 世éx$'
key Home
type '['
key End
type ']'
key C-Left
type '|'
shows '^> \[ab |世éx\]$'
key C-e C-u
type "a word $(printf '%080d' 7) end"
shows '^000.*7 end$'
resize 40 20
shows '^> a word 0*$'
type ' more'
shows '7 end more$'
resize 100 30
shows '^> a word 0*7 end more$'
[ "$(grep -c 'a word' "$screen")" -eq 1 ] || { fail 'the message is there twice' && cat "$screen"; }
key Enter
shows 'reached its token'
type 'next'
key Up Up Up
shows '^> a word 0*7 end more$'
key Down
shows '^> next$'

claim='a key behind half a character is a key'
key C-c
shows 'again, Ctrl-D or type /quit'
fresh
type 'half'
key -H c3 0d
shows 'reached its token'

claim='a message of several lines: with a backslash, between marks, pasted'
key C-c
shows 'again, Ctrl-D or type /quit'
fresh
# shellcheck disable=SC1003 # it ends with a backslash
line 'first\'
shows '^> first$'
line 'second'
shows 'reached its token'
fresh
line '"""one'
line 'two"""'
shows 'reached its token'
fresh
printf 'p1\\\n/quit\n\033[31mp3' | t load-buffer -
t paste-buffer -p
shows '^  .31mp3$\|^  \[31mp3$'
key Enter
shows 'reached its token'
line "/save lines.json"
shows 'saved '
says lines.json '"first.nsecond"'
says lines.json '"one.ntwo"'
says lines.json '"p1.*.n/quit.n.31mp3"'

claim='Ctrl-C drops what is typed, a second one ends the chat, as Ctrl-D does'
type 'something'
key C-c
shows 'again, Ctrl-D or type /quit'
key C-c
ends 0
chat -n 3
shows '^>'
key C-d
ends 0
t send-keys 'x' 2>/dev/null

claim='Ctrl-C while it waits for devices ends the program'
chat --cluster --devices 1 --listen 127.0.0.1 --port 0 --key-file "$dir/key" --hidden
shows 'kin: '
key C-c
ends 130

claim='Ctrl-C stops an answer, and a prompt that is being computed; what was written is kept'
chat -m slow.gguf -c 30000 --temp 0
shows 'no chat template'
shows '^>'
line 'a story'
wait_for long_now || fail 'nothing is written'
key C-c
shows '^kin: stopped$'
type '/save part.json'
key Enter C-c # a file is written completely or not at all
shows 'saved .*, 2 messages'
line /clear
yes 'The dragon went up the hill and saw.' | head -n 600 | t load-buffer -
t paste-buffer -p
shows 'dragon'
key Enter C-c
shows 'stopped; press Up'
key C-d
ends 0

claim='a model whose file changes is named while it is awaited, and the chat goes on when it is whole'
cp "$assets/demo.gguf" changing.gguf
chat -m changing.gguf -n 8 --temp 0
shows '^kin: changing.gguf'
line 'Once upon a time'
wait_for prompts_now 2 || fail 'no answer'
: >changing.gguf
line 'and then'
shows 'changing.gguf: was overwritten or truncated'
cp "$assets/demo.gguf" changing.gguf
wait_for prompts_now 3 || fail 'the question is not answered, and not given back'
fresh
line 'Once upon a time'
shows 'reached its token limit'
line '/save changed.json'
shows 'saved '
[ "$(grep -c '"role": "assistant"' changed.json)" -ge 2 ] || fail 'there is no answer of the model that was loaded anew'
key C-d
ends 0

claim='a terminal without escape sequences edits its lines itself'
TERM_OF_CHAT=dumb chat --temp 0 -n 8
shows '^kin: .*/help'
line 'tell me\'
shows '^\. $\|^\.$'
line 'a story'
wait_for prompts_now 2 || fail 'no answer'
key C-c
wait_for prompts_now 3 || fail 'Ctrl-C at the prompt'
line '/save dumb.json'
shows 'saved .*, 2 messages'
grep -q 'me\\na story' dumb.json || fail 'two lines are not one message'
key C-d
ends 0

# ---- a server

claim='a client of kin serve: the key, a server that hangs, one that is lost, and one that is back'
serve --ctx 30000 -m "$dir/slow.gguf" --api-key secret
status 1 "$kin" chat --server "$base"
says "$err" '--api-key'
printf 'hi' | "$kin" chat --server "$base/v1" --api-key secret -n 4 >"$out" 2>"$err" || fail "status $?"
lines "$out" 1
(umask 077 && printf 'secret\nanother\n' >"$dir/key-of-server")
printf 'hi' | "$kin" chat --server "$base/v1" --api-key-file "$dir/key-of-server" -n 4 >"$out" 2>"$err" || fail "status $?"
status 1 "$kin" chat --server "$base/v1" --api-key-file "$dir/none" </dev/null
says "$err" 'none: no such API key file'
chat --server "$base" --api-key secret --temp 0
shows '^kin: slow, 30000 tokens\|^kin: slow, '
kill -STOP "$server"
line 'hello'
key C-c
shows 'stopped; press Up'
kill -CONT "$server"
fresh
line 'tell me'
wait_for long_now || fail 'nothing is written'
kill -9 "$server"
wait "$server" 2>/dev/null
shows 'The conversation is'
fresh
line 'and now'
shows 'Connection refused. The$'
shows '^conversation is unchanged; press Up to edit the message$'
serve_again "${base##*:}"
fresh
key Up Enter
wait_for long_now || fail 'the server that is back does not answer'
key C-c
shows '^kin: stopped$'
line "/save lost.json"
shows 'saved .*, 4 messages'
key C-d
ends 0
stop

tally
