#!/bin/sh
# Memory that request bodies with millions of JSON values cost a real server, while they are processed and afterwards.
#
#   test_body_memory.sh PATH_TO_KIN
set -u
# shellcheck source=tests/checks.sh
. "$(dirname "$0")/checks.sh"
# shellcheck source=tests/serving.sh
. "$(dirname "$0")/serving.sh"
# Make the sanitizer return freed memory to the OS.
ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}quarantine_size_mb=0:thread_local_quarantine_size_kb=0:allocator_release_to_os_interval_ms=0
export ASAN_OPTIONS
[ -r /proc/self/status ] || { echo 'skipped: no /proc' && exit 77; }

memory() { # VmRSS or VmHWM of the server in MiB
    echo $(($(sed -n "s/^$1:[^0-9]*\([0-9]*\) kB/\1/p" "/proc/$server/status") / 1024))
}
at_most() { # GOT MOST WHAT
    n_checks=$((n_checks + 1))
    [ "$1" -le "$2" ] || fail "$3: $1 MiB, not $2"
}
numbers() { # N: a prompt of N numbers
    printf '{"max_tokens": 1, "prompt": [1'
    yes ,1 | head -n $(($1 - 1)) | tr -d '\n'
    printf ']}'
}
thrice() { # FILE: sends it three times at once; the statuses are in $dir/status
    : >"$dir/status"
    clients=
    for i in 1 2 3; do
        curl -s -m 240 -o "$dir/answer$i" -w '%{http_code}\n' --data-binary "@$1" "$base/v1/completions" >>"$dir/status" &
        clients="$clients $!"
    done
    # shellcheck disable=SC2086
    wait $clients
}
is_well() {
    answers 200 /health
    answers 200 /v1/completions -d '{"prompt": "One", "max_tokens": 2}'
}

numbers 30000000 >"$dir/60MB"
numbers 3000000 >"$dir/6MB"
yes '{},' | head -n 15000000 | tr -d '\n' | sed 's/^/{"prompt": [/; s/,$/]}/' >"$dir/objects"

serve
is_well
begun=$(memory VmRSS)

claim='a body whose JSON needs more than the server has for requests is refused while it arrives'
for body in 60MB objects; do
    thrice "$dir/$body"
    says "$dir/status" '^413$'
    lines "$dir/status" 3
    says_not "$dir/status" '^2' # 503: refused because the others hold the memory
    says_not "$dir/status" '^50[^3]'
done
at_most $(($(memory VmHWM) - begun)) 300 'at most, beside what it had'

claim='what is parsed has room for one such body at a time, and is given back'
thrice "$dir/6MB"
says_not "$dir/status" '^50[^3]'
says "$dir/status" '^400$' # the prompt is longer than the context
at_most $(($(memory VmHWM) - begun)) 450 'at most, beside what it had'
is_well
n=0 # a body may be freed on another thread shortly after its answer
while [ $(($(memory VmRSS) - begun)) -gt 60 ] && [ $n -lt 100 ]; do
    sleep 0.1
    n=$((n + 1))
done
at_most $(($(memory VmRSS) - begun)) 60 'afterwards, beside what it had'

claim='a text that is longer than the context, whatever its tokens are, is not tokenized; ids of a large one are asked for in pieces'
{
    printf '{"max_tokens": 1, "prompt": "'
    yes 'the dragon lived in a cave ' | head -n 700000 | tr -d '\n'
    printf '"}'
} >"$dir/text"
thrice "$dir/text"
says "$dir/status" '^400$'
cat "$dir"/answer? >"$out"
says "$out" 'the prompt has at least [0-9]* tokens, but the context is'
sed 's/"prompt"/"content"/' "$dir/text" >"$dir/content"
answers 413 /tokenize --data-binary "@$dir/content"
is_well
stop

claim='a server in 220 MB outlives such bodies'
limit() { # makes a control group of 220 MB, of cgroup v1 or v2; its folder is in $group
    for group in /sys/fs/cgroup/memory/kin-bodies-$$ /sys/fs/cgroup/kin-bodies-$$; do
        mkdir "$group" 2>/dev/null || continue
        for file in "$group/memory.limit_in_bytes" "$group/memory.max"; do
            [ -e "$file" ] && echo 220M >"$file" && return
        done
        rmdir "$group"
    done
    return 1
}
if limit; then
    # shellcheck disable=SC2016 # the shell inside
    printf '#!/bin/sh\necho $$ >%s/cgroup.procs\nexec %s "$@"\n' "$group" "$(realpath "$kin")" >"$dir/kin"
    chmod +x "$dir/kin"
    free_kin=$kin kin=$dir/kin
    serve
    for body in 60MB objects 6MB; do
        thrice "$dir/$body"
        says_not "$dir/status" '^000'
    done
    is_well
    stop
    kin=$free_kin
    rmdir "$group"
else
    echo 'no control group can be made here: that part is left out'
fi
tally
