#!/bin/sh
# Output to stdout and to a terminal: it is complete or an error, and no untrusted byte has an effect on the terminal.
#
#   test_terminal.sh PATH_TO_KIN      (mkmodel is in the same folder)
set -u
# shellcheck source=tests/checks.sh
. "$(dirname "$0")/checks.sh"
esc=$(printf '\033')
prompt='Once upon a time'
printf 'once\n' >"$dir/text"
yes 'Once upon a time there was a little dog.' | head -n 8 >"$dir/long"
KIN_PROFILE=$(dirname "$0")/machine.json
export KIN_PROFILE

# ---- a stdout that takes nothing

commands="--version
help
help run
run -p x -n 3
eval --tokens 1 --greedy 2
eval --tokenize $dir/text
eval --ppl $dir/long
bench --prompt 4 --gen 2 --reps 1
bench --prompt 4 --gen 2 --reps 1 --json
info
info --all
plan
plan --json
plan --scheduler help
plan --all"

claim='what cannot be written to stdout is an error of every command'
"$kin" run -p x -n 3 >"$out" 2>"$err" </dev/null # the messages about filling the cache come here
if [ -w /dev/full ]; then
    echo "$commands" | while read -r words; do
        # shellcheck disable=SC2086 # words
        "$kin" $words >/dev/full 2>"$err" </dev/null
        got=$?
        : >"$out"
        [ $got -eq 1 ] || fail "status $got: kin $words"
        says "$err" '^kin: stdout: No space left on device$'
        lines "$err" 1
        [ "$n_failed" -eq 0 ] || exit 1
    done || n_failed=$((n_failed + 1))
    n_checks=$((n_checks + 1))
fi

claim='a closed stdout is an error, and no file is taken for it'
"$mkmodel" --preset tiny --layers 2 --vocab 300 -o "$dir/m.gguf" >"$out" 2>&1
cp "$dir/m.gguf" "$dir/kept.gguf"
"$kin" run -m "$dir/m.gguf" -p x -n 8 --ignore-eos --trace "$dir/trace" >&- 2>"$err" </dev/null
got=$?
n_checks=$((n_checks + 1))
[ $got -eq 1 ] || fail "status $got"
says "$err" '^kin: stdout: '
lines "$err" 1
same "$dir/m.gguf" "$dir/kept.gguf"
"$kin" run -p "$prompt" -n 3 --temp 0 >"$out" 2>&- <&-
got=$?
[ $got -eq 0 ] || fail "status $got with stdin and stderr closed"
says "$out" "^$prompt"
lines "$out" 1

claim='a trace that cannot be written is an error'
if [ -w /dev/full ]; then
    status 1 "$kin" run -p x -n 3 --trace /dev/full
    says "$err" '^kin: /dev/full: '
fi

# ---- bytes of a model file

# after TEXT N BYTES: puts BYTES at N bytes after the first TEXT of kept.gguf, into m.gguf.
after() {
    cp "$dir/kept.gguf" "$dir/m.gguf"
    at=$(LC_ALL=C grep -abo -- "$1" "$dir/kept.gguf" | head -n 1 | cut -d : -f 1)
    [ -n "$at" ] || fail "there is no $1 in the file"
    # shellcheck disable=SC2059 # escapes
    printf "$3" | dd of="$dir/m.gguf" bs=1 seek=$((at + ${#1} + $2)) conv=notrunc 2>/dev/null
}
no_escapes() { LC_ALL=C tr -d '\n' <"$1" | LC_ALL=C grep -q '[[:cntrl:]]' && fail "control characters in $(basename "$1")"; }

claim='what a model file says is shown escaped, on one line'
after general.architecture 12 '\033[2J\n'
for words in "info $dir/m.gguf" "run -m $dir/m.gguf -p x" "plan -m $dir/m.gguf"; do
    # shellcheck disable=SC2086
    status 1 "$kin" $words
    lines "$err" 1
    says "$err" "architecture '.x1b\[2J.n'"
    no_escapes "$err"
done
after tokenizer.ggml.model 12 '\033]'
status 0 "$kin" info "$dir/m.gguf" --all
no_escapes "$out"
says "$out" "^vocabulary .*'.x1b\]"
says "$out" '^tokenizer.ggml.model = [.]]'
status 1 "$kin" run -m "$dir/m.gguf" -p x
no_escapes "$err"

claim='names of files are shown escaped'
odd="$dir/a${esc}[31m
kin: all is well.gguf"
status 1 "$kin" run -m "$odd" -p x
lines "$err" 1
no_escapes "$err"
cp "$dir/kept.gguf" "$odd"
status 0 "$kin" info "$odd"
says_not "$out" "$esc"
says_not "$out" '^kin: all'
status 2 "$kin" "no${esc}such"
says_not "$err" "$esc"

# ---- a terminal

claim='text goes to a file as it is, to a terminal without control characters'
odd_prompt="a${esc}[31mb	c
d"
status 0 "$kin" run -p "$odd_prompt" -n 2 --temp 0
says "$out" "^a${esc}\[31mb	c\$"
if script --version 2>/dev/null | grep -q util-linux; then # only util-linux's script has -c
    claim='a terminal'
    export odd_prompt kin
    # shellcheck disable=SC2016 # the inner shell's
    status 0 script -qec '"$kin" run -p "$odd_prompt" -n 2 --temp 0' /dev/null
    says "$out" '^a.x1b\[31mb	c'
    says "$out" '^d'
    says_not "$out" "$esc\[31m"
fi

tally
