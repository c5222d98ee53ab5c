#!/bin/sh
# kin service: units of systemd, and what kin tells the service manager. No service of this machine is touched: systemctl is a script here.
#
#   test_service.sh PATH_TO_KIN
set -u
# shellcheck source=tests/checks.sh
. "$(dirname "$0")/checks.sh"
[ -e /proc/self/exe ] || { echo 'skipped: no /proc' && exit 77; }
mkdir -p "$dir/bin" "$dir/work"
cat >"$dir/bin/systemctl" <<END
#!/bin/sh
echo "\$@" >>"$dir/calls"
[ ! -e "$dir/broken" ] || exit 5
END
chmod +x "$dir/bin/systemctl"
PATH=$dir/bin:$PATH
kin=$(realpath "$kin")
cd "$dir/work" || exit 1
echo x >model.gguf

claim='a unit has the command with absolute paths, quoted, is restarted, and may do little'
status 0 "$kin" service install --dry-run serve model.gguf --alias 'a $b %c "d"'
{
    printf 'ExecStart="%s" "serve" "%s/work/model.gguf" ' "$kin" "$dir"
    echo '"--alias" "a $$b %%c \"d\""'
} >"$dir/want"
grep '^ExecStart' "$out" >"$dir/exec"
same "$dir/exec" "$dir/want"
says "$out" '^Type=notify$'
says "$out" '^Restart=always$'
says "$out" '^NoNewPrivileges=yes$'
says "$out" '^WantedBy=default.target$'
says_not "$out" 'DynamicUser'
[ ! -e "$dir/calls" ] || fail 'systemctl was called'
status 0 "$kin" service install --system --dry-run join
says "$out" '^DynamicUser=yes$'
says "$out" '^ProtectSystem=strict$'
says "$out" '^WantedBy=multi-user.target$'

claim='words that the command would refuse are refused before anything is installed'
refused() { # PATTERN WORDS...
    pattern=$1
    shift
    status 1 "$kin" service install "$@"
    says "$err" "$pattern"
}
refused "kin serve: --port 99999: must be" serve --port 99999
refused "kin serve: unexpected argument 'nonsense'" serve nonsense
refused "kin serve: unknown option '--prot'" serve --prot 1
refused "kin serve: --host 0.0.0.0 accepts requests from other machines" serve --host 0.0.0.0
refused "kin join: '9:x': the port must be" join 9:x
refused "--dry-run is an option of kin service: write it before 'serve'" serve --dry-run
refused "--system is an option of kin service: write it before 'join'" join --system
[ ! -e "$dir/calls" ] || fail 'systemctl was called'
[ ! -e "$XDG_CONFIG_HOME/systemd" ] || fail 'a unit was written'

claim='systemd finds no mistake in the units'
if command -v systemd-analyze >/dev/null; then
    for kind in '' --system; do
        # shellcheck disable=SC2086 # a word or none
        "$kin" service install $kind --dry-run serve "$dir/work/model.gguf" --alias 'a $b %c' >"$dir/kin-serve.service"
        status 0 systemd-analyze verify --man=no "$dir/kin-serve.service"
        says_not "$err" 'kin-serve.service:'
    done
fi

claim='install writes, enables and starts; remove stops and removes'
status 0 "$kin" service install join --name desk
unit=$XDG_CONFIG_HOME/systemd/user/kin-join.service
says "$unit" '"join" "--name" "desk"'
printf -- '--user daemon-reload\n--user enable --now kin-join.service\n' >"$dir/want"
same "$dir/calls" "$dir/want"
status 0 "$kin" service status
says "$dir/calls" '^--user status --no-pager kin-join.service'
status 1 "$kin" service remove serve
says "$err" 'is not installed'
status 0 "$kin" service remove join
says "$dir/calls" '^--user disable --now kin-join.service'
[ ! -e "$unit" ] || fail 'the unit is still there'
status 1 "$kin" service status
says "$err" 'no service of kin is installed'

claim='mistakes are named'
touch "$dir/broken"
status 1 "$kin" service install join
says "$err" 'systemctl daemon-reload failed with status 5'
status 2 "$kin" service
status 2 "$kin" service remove
status 1 "$kin" service install
says "$err" 'which command'

claim='kin serve tells the service manager when it is ready, and when it ends'
if command -v python3 >/dev/null; then
    python3 -c '
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
s.settimeout(240)
open(sys.argv[2], "w").close()
while True:
    text = s.recv(4096).decode()
    print(text, flush=True)
    if "STOPPING" in text: break
' "$dir/notify" "$dir/listens" >"$dir/told" &
    listener=$!
    while [ ! -e "$dir/listens" ]; do sleep 0.05; done
    NOTIFY_SOCKET=$dir/notify "$kin" serve --port 0 -t 1 >"$out" 2>"$err" </dev/null &
    server=$!
    n=0
    while ! grep -q READY=1 "$dir/told" && [ $n -lt 2400 ]; do
        sleep 0.05
        n=$((n + 1))
    done
    says "$dir/told" '^READY=1$'
    kill $server
    wait $server || fail "the server ended with $?"
    wait $listener
    says "$dir/told" '^STOPPING=1$'
    n_checks=$((n_checks + 2))
fi

tally
