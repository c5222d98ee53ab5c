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
for group in $(sed -n 's/^SupplementaryGroups=//p' "$out") video render; do
    grep -q "^$group:" /etc/group && says "$out" "^SupplementaryGroups=$group$" || says_not "$out" "$group"
done

claim='only values that are paths become absolute'
mkdir desk
status 0 "$kin" service install --dry-run join --name desk --name=desk --cache desk --cache=desk
says "$out" "\"join\" \"--name\" \"desk\" \"--name=desk\" \"--cache\" \"$dir/work/desk\" \"--cache=$dir/work/desk\"\$"
status 0 "$kin" service install --dry-run serve -m model.gguf --alias=model.gguf
says "$out" "\"-m\" \"$dir/work/model.gguf\" \"--alias=model.gguf\"\$"

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

claim='a service of the system gets its secrets from systemd, because its user may not read their files'
(umask 077 && echo 7K2M-XQ4T-9B0H-WZ3D >'code 1' && echo sesame >keys)
status 0 "$kin" service install --system --dry-run join --code-file 'code 1'
says "$out" '^ExecStart=.* "join" --code-file=%d/code$'
says "$out" "^LoadCredential=code:$dir/work/code 1\$"
status 0 "$kin" service install --system --dry-run serve --host 0.0.0.0 --api-key-file=keys
says "$out" '^ExecStart=.* --api-key-file=%d/api-keys$'
says "$out" "^LoadCredential=api-keys:$dir/work/keys\$"
if command -v systemd-analyze >/dev/null; then
    cp "$out" "$dir/kin-serve.service"
    status 0 systemd-analyze verify --man=no "$dir/kin-serve.service"
    says_not "$err" 'kin-serve.service:'
fi
status 0 "$kin" service install --dry-run join --code-file='code 1'
says "$out" "\"--code-file=$dir/work/code 1\"\$"
says_not "$out" LoadCredential

claim='a code file that a service could not use is refused'
chmod 644 'code 1'
refused 'kin join: --code-file: code 1: other users can read or change this key; fix it with: chmod 600' join --code-file 'code 1'
refused 'kin join: --code-file: absent: No such file' join --code-file absent
refused 'a service has not: use --code-file' join --ask-code
chmod 600 'code 1'

claim='a device without a code is told what its service lacks'
status 0 "$kin" service install --dry-run join
says "$err" "run 'kin join' once on a terminal, or add --code-file FILE"
status 0 "$kin" service install --dry-run join --code-file 'code 1'
silent "$err"

claim='launchd gets a property list, and launchctl is called'
HOME=$dir
export HOME
status 0 "$kin" service install --manager launchd --dry-run serve model.gguf --alias '<a> & "b" $c %d'
cp "$out" "$dir/plist"
says "$out" "^    <string>$kin</string>\$"
says "$out" "^    <string>$dir/work/model.gguf</string>\$"
says "$out" '^    <string>&lt;a&gt; &amp; "b" $c %d</string>$'
says "$out" "^  <string>$dir/Library/Logs/kin.serve.log</string>\$"
says_not "$out" UserName
if command -v python3 >/dev/null; then
    status 0 python3 -c '
import plistlib, sys
p = plistlib.load(open(sys.argv[1], "rb"))
print(p["Label"], p["ProgramArguments"][1:], p["RunAtLoad"], p["KeepAlive"], p["Umask"])' "$dir/plist"
    echo "kin.serve ['serve', '$dir/work/model.gguf', '--alias', '<a> & \"b\" \$c %d'] True True 63" >"$dir/want"
    same "$out" "$dir/want"
fi
sed "s,/calls,/launched," "$dir/bin/systemctl" >"$dir/bin/launchctl"
chmod +x "$dir/bin/launchctl"
status 0 "$kin" service install --manager launchd join --name desk
plist=$dir/Library/LaunchAgents/kin.join.plist
says "$plist" '<string>desk</string>'
user=$(id -u)
printf 'bootout gui/%s/kin.join\nbootstrap gui/%s %s\n' "$user" "$user" "$plist" >"$dir/want"
same "$dir/launched" "$dir/want"
status 0 "$kin" service status --manager launchd
says "$dir/launched" "^print gui/$user/kin.join\$"
status 0 "$kin" service remove --manager launchd join
[ ! -e "$plist" ] || fail 'the property list is still there'
status 1 env -u SUDO_USER "$kin" service install --system --dry-run --manager launchd join
says "$err" 'run it with sudo from the account'
status 0 env SUDO_USER=me "$kin" service install --system --dry-run --manager launchd join
says "$out" '<string>me</string>'
status 1 "$kin" service install --manager launchd --dry-run serve --alias "$(printf 'a\tb')"
says "$err" 'contains a control character'

claim='the options of a service are checked together with its settings, but for a service of the system'
mkdir -p "$XDG_CONFIG_HOME/kin"
printf '[serve]\nport = 99999\n' >"$XDG_CONFIG_HOME/kin/kin.conf"
status 1 "$kin" service install --dry-run serve
says "$err" "kin serve: $XDG_CONFIG_HOME/kin/kin.conf:2: --port 99999: must be"
status 0 "$kin" service install --dry-run --system serve
rm "$XDG_CONFIG_HOME/kin/kin.conf"

claim='install writes, enables and starts; remove stops and removes'
status 0 "$kin" service install join --name desk
unit=$XDG_CONFIG_HOME/systemd/user/kin-join.service
says "$unit" '"join" "--name" "desk"'
printf -- '--user daemon-reload\n--user enable kin-join.service\n--user restart --no-block kin-join.service\n' >"$dir/want"
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

claim='where another program starts the services, nothing is written'
status 1 env PATH=/nowhere:/neither "$kin" service install join
says "$err" "kin service needs systemd, and there is no systemctl here: let this system's own init"
[ ! -e "$unit" ] || fail 'a unit was written'
status 0 env PATH=/nowhere "$kin" service install --dry-run join
says "$out" '^ExecStart='

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
