#!/bin/sh
# A member that has the key and computes wrongly: it swallows steps, or sends them on with another number, other rows, or no numbers. It is
# named and left out, whether it is the first device or the last one; the device beside it stays, and the text is that of the head alone.
# Real processes on loopback; the wrong one is kin_faulty.
#
#   test_faulty_member.sh PATH_TO_KIN      (mkmodel and kin_faulty lie beside it)
set -u
# shellcheck source=tests/ring.sh
. "$(dirname "$0")/ring.sh"
right=$kin wrong=$(dirname "$kin")/kin_faulty
[ -x "$wrong" ] || { echo 'skipped: no kin_faulty' && exit 77; }
export KIN_DRAFT=off KIN_PLAN="$dir/plan.json"
"$mkmodel" --preset tiny --layers 9 --vocab 300 --type q8_0 --seed 3 -o "$dir/model.gguf" >/dev/null || fail 'no model'
writes() { on_head run --devices 2 -m "$dir/model.gguf" --seed 5 --temp 0 --ignore-eos --no-echo -n 60 -p 'A day at the sea' --no-kv-disk; }
order() { # NAME NAME: of the ring
    echo "{\"devices\": [{\"device\": \"$1\", \"window\": 3}, {\"device\": \"$2\", \"window\": 3}, {\"device\": \"head\", \"window\": 3}]}" \
        >"$KIN_PLAN"
}
leave() { # NAME
    eval "kill -9 \$pid_$1"
    eval "wait \$pid_$1 2>/dev/null"
}

claim='the head alone'
key head
alone run -m "$dir/model.gguf" --seed 5 --temp 0 --ignore-eos --no-echo -n 60 -p 'A day at the sea' >"$dir/alone.text" || fail 'no text'

# The fault comes once: with the plan by hand the ring waits until the one that was left out is back.
goes_wrong() { # FAULT FIRST SECOND PATTERN: bert does
    claim="$1, where the ring is $2, $3"
    order "$2" "$3"
    anew "$dir/head.log"
    join anna
    FAULTY_MEMBER=$1
    export FAULTY_MEMBER
    kin=$wrong
    join bert
    kin=$right
    unset FAULTY_MEMBER
    begun=$(date +%s)
    writes >"$dir/ring.text" || fail 'no text'
    echo "$claim: $(($(date +%s) - begun)) s"
    same "$dir/ring.text" "$dir/alone.text"
    says "$dir/head.log" "$4"
    says "$dir/head.log" "device 'bert' .*\(left out\|failed\)"
    if has_line "$dir/head.log" "^[^']*device 'anna' .*\(left out\|failed\)"; then fail 'anna is left out, too'; fi
    leave anna
    leave bert
}
for fault in swallows:9 number:9 rows:9 nan:9; do
    case $fault in
    swallows:*) words="device 'bert' .* has lost a step" ;;
    *) words="device 'bert' .* sent to .* what cannot be" ;;
    esac
    goes_wrong $fault bert anna "$words"
    goes_wrong $fault anna bert "$words"
done

# Where plans are made anew the text goes on without the one that is wrong, and ends though it is wrong again each time that it is back.
claim='a device that swallows all steps from one on'
KIN_PLAN=even
anew "$dir/head.log"
join anna
FAULTY_MEMBER=swallows:9+
export FAULTY_MEMBER
kin=$wrong
join bert
kin=$right
unset FAULTY_MEMBER
writes >"$dir/ring.text" || fail 'no text'
same "$dir/ring.text" "$dir/alone.text"
says "$dir/head.log" "device 'bert' .* has lost a step"
tally
