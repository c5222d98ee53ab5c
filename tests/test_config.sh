#!/bin/sh
# The file of settings, and kin config.
#
#   test_config.sh PATH_TO_KIN
set -u
# shellcheck source=tests/checks.sh
. "$(dirname "$0")/checks.sh"
export HOME="$dir"
file=$XDG_CONFIG_HOME/kin/kin.conf
mkdir -p "$XDG_CONFIG_HOME/kin"
settings() { printf '%b' "$1" >"$file"; }
text() { "$kin" run -p One --seed 1 "$@" 2>"$err" </dev/null | wc -w; } # prints the number of words

claim='without a file there are no settings, and kin config says where they would be'
status 0 "$kin" config
silent "$out"
says "$err" "there are no settings; they would be lines NAME = VALUE in $file"
status 0 "$kin" config --path
says "$out" "^$file\$"

claim='a setting is the value of an option, those of the command win, and the command line over all'
settings 'n = 2\nthreads = 1\n'
few=$(text)
settings 'n = 2\n[run]\nn = 30\n[chat]\nn = 1\n'
many=$(text)
n_checks=$((n_checks + 3))
[ "$few" -lt "$many" ] || fail "$few words without, $many with [run]"
[ "$(text -n 2)" = "$few" ] || fail 'the command line does not win over the file'
[ "$(KIN_N=2 text)" = "$few" ] || fail 'the environment does not win over the file'

claim='kin config shows file and environment, and what concerns a command'
settings '# mine\nthreads = 1\n\n[serve]\nhost = ::1\nno-gpu\napi-key = secret\n'
status 2 "$kin" config
says "$err" "$file:6: kin serve has no option 'no-gpu'"
settings '# mine\nthreads = 1\n\n[serve]\nhost = ::1\nmetrics\napi-key = secret\n'
status 0 env KIN_MEMORY=4G "$kin" config
says "$out" '^threads  *1  *all  *line 2'
says "$out" '^host  *::1  *serve  *line 5'
says "$out" '^metrics  *yes  *serve  *line 6'
says "$out" '^memory  *4G  *all  *KIN_MEMORY'
says "$out" '^api-key  *(not shown) '
says "$err" "the file is $file"
status 0 "$kin" config list
silent "$out"
status 0 "$kin" config serve
says "$out" '^threads '
status 0 "$kin" config chat
says_not "$out" '^host '
status 2 "$kin" config nonsense
says "$err" "there is no command 'nonsense'"

claim='a line that means nothing stops every command, with its place'
wrong() { # LINES LINE PATTERN
    settings "$1"
    status 2 "$kin" run -p One -n 1
    says "$err" "$file:$2: $3"
    status 2 "$kin" config
    says "$err" "$file:$2: $3"
}
wrong 'thread = 4\n' 1 "unknown option 'thread'; did you mean 'threads'?"
wrong '\n[sevre]\n\nhost = ::1\n' 4 "there is no command 'sevre'"
wrong '[run]\nhost = ::1\n' 2 "kin run has no option 'host'"
wrong 'threads 4\n' 1 "'=' is missing"
wrong '--threads = 4\n' 1 "names are written without '--'"
wrong 'threads = four\n' 1 '--threads four: must be a whole number'
wrong '\n[serve]\napi-key\n' 3 '--api-key needs a value (KEY,KEY)'
wrong 'threads\n' 1 '--threads needs a value (N)'
wrong 'system\n' 1 '--system needs a value (TEXT)' # a flag of kin service, a text of kin chat
settings '[serve]\nport = x\n'
status 0 "$kin" run -p One -n 1
status 2 "$kin" config
says "$err" "$file:2: --port x: must be"
status 0 "$kin" help run
status 0 "$kin" --version

claim='a value for all commands counts where it fits, and an option of the command line drops a setting that excludes it'
settings 'system = Be brief\n'
status 0 "$kin" config
status 1 "$kin" service status --manager systemd
says "$err" 'no service of kin is installed'
settings '[service]\nsystem = Be brief\n'
status 2 "$kin" service status
says "$err" "$file:2: --system: 'Be brief': must be 1 or 0"
settings "[join]\\ncode-file = $dir/absent\\n"
status 1 "$kin" join --ask-code
says "$err" 'no code was entered'
status 2 "$kin" join --ask-code --code-file "$dir/absent"
says "$err" 'exclude each other'
settings '[join]\nask-code\n'
status 1 "$kin" join --code-file "$dir/absent"
says "$err" '--code-file: '
settings "[run]\\nfile = $dir/absent\\n"
status 0 "$kin" run -p One -n 1
settings '[launch]\nmodel = mine\n'
status 0 "$kin" launch claude --print
says "$out" "^export ANTHROPIC_MODEL='mine'"
settings 'model = mine\n'
status 1 "$kin" launch claude --print --server http://127.0.0.1:1
says "$err" 'no server is ready'

claim='~/ is the home directory, KIN_CONFIG another file'
cp "$(dirname "$0")/../assets/demo-draft.gguf" "$dir/small.gguf"
settings '[info]\nmodel = ~/small.gguf\n'
status 0 "$kin" info
says "$out" '^model  *.*small'
status 0 "$kin" info "$(dirname "$0")/../assets/demo.gguf"
says "$out" '^model  *.*demo'
echo '[info]' >"$dir/other"
status 0 env KIN_CONFIG="$dir/other" "$kin" info
says_not "$out" 'small'
status 2 env KIN_CONFIG="$dir/absent" "$kin" info
says "$err" 'KIN_CONFIG: there is no file'

tally
