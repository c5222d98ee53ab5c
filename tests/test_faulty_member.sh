#!/bin/sh
# A member that has the key but computes wrongly: it swallows steps, or forwards them with another number, other rows, or NaN. It is named
# and excluded, whether it is the first or the last device; the other device stays, and the text equals that of the head alone. Real
# processes on loopback; the faulty one is kin_faulty.
#
#   test_faulty_member.sh PATH_TO_KIN      (mkmodel and kin_faulty are in the same folder)
set -u
# shellcheck source=tests/ring.sh
. "$(dirname "$0")/ring.sh"
right=$kin wrong=$(dirname "$kin")/kin_faulty
[ -x "$wrong" ] || { echo 'skipped: no kin_faulty' && exit 77; }
export KIN_DRAFT=off KIN_PLAN="$dir/plan.json"
"$mkmodel" --preset tiny --layers 9 --vocab 300 --type q8_0 --seed 3 -o "$dir/model.gguf" >/dev/null || fail 'no model'
writes() { on_head run --devices 2 -m "$dir/model.gguf" --seed 5 --temp 0 --ignore-eos --no-echo -n 60 -p 'A day at the sea' --no-kv-disk; }
order() { # NAME NAME: sets the order of the ring
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

# The fault occurs once. With a manual plan the ring waits until the excluded device is back.
goes_wrong() { # FAULT FIRST SECOND PATTERN: runs with bert as the faulty device
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
    *) words="device 'bert' .* sent an invalid message to .*" ;;
    esac
    goes_wrong $fault bert anna "$words"
    goes_wrong $fault anna bert "$words"
done

# With automatic plans the text continues without the faulty device, and it ends although the device fails again each time it is back.
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
