#!/bin/sh
# The manual page and the completions: generated from the commands' tables, so that they are complete; and their installation.
#
#   test_manual.sh PATH_TO_KIN
set -u
# shellcheck source=tests/checks.sh
. "$(dirname "$0")/checks.sh"
"$kin" help >"$dir/overview"
commands=$(sed -n 's/^  kin \([a-z]*\) .*/\1/p' "$dir/overview")
for form in man bash zsh; do "$kin" help --$form >"$dir/$form" || fail "no $form"; done

claim='the manual page has every command and every option, and nothing that roff warns about'
status 0 "$kin" help --man
if command -v groff >/dev/null; then
    groff -man -Tutf8 -ww "$out" >"$dir/page" 2>"$err" || fail 'groff fails'
    silent "$err"
fi
sed 's/\\f.//g; s/\\-/-/g' "$dir/man" >"$dir/plain"
for command in $commands; do
    n_checks=$((n_checks + 1))
    says "$dir/plain" "^.SS kin $command "
    "$kin" help "$command" >"$out"
    sed -n 's/^ *\(-., \)\{0,1\}\(--[a-z-]*\).*/\2/p' "$out" >"$dir/options"
    sed -n "/^.SS kin $command /,/^.S[SH] [^k]\|^.SS kin [^${command%"${command#?}"}]/p" "$dir/plain" >"$dir/section"
    while read -r option; do says "$dir/section" "^\(-., \)\{0,1\}$option\( \|\$\)"; done <"$dir/options"
done

claim='bash completes commands, options and values'
if command -v bash >/dev/null; then
    cat >"$dir/ask" <<'END'
. "$1/bash" || exit 1
shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_kin
echo "${COMPREPLY[*]}"
END
    complete() { # EXPECTED WORD...
        expected=$1
        shift
        status 0 bash "$dir/ask" "$dir" kin "$@"
        [ "$(cat "$out")" = "$expected" ] || fail "$* is completed to '$(cat "$out")', not '$expected'"
        silent "$err"
    }
    complete 'join' jo
    complete 'status' help st
    complete '--prompt --presence-penalty --profile' run --pr
    complete 'f16 q8_0' run -p x --kv-type ''
    complete 'q8_0' eval --kv-type q
    complete 'all auto' run --gpu-layers a
    complete '' run -m mod
    complete 'ls rm all' cache ''
    complete '--all' info --a
    complete '' info --pr
    for command in $commands; do
        status 0 bash "$dir/ask" "$dir" kin "$command" --
        "$kin" help "$command" | sed -n 's/^ *\(-., \)\{0,1\}\(--[a-z-]*\).*/\2/p' >"$dir/options"
        while read -r option; do says "$out" " $option\( \|\$\)"; done <"$dir/options"
    done
fi

claim='zsh reads its completion, which has every command and option'
if command -v zsh >/dev/null; then
    status 0 zsh -n "$dir/zsh"
    silent "$err"
    # The specifications are arguments of zsh's functions: with _arguments and the like replaced, the function runs.
    for command in $commands; do
        printf '%s\n' 'compdef() { : }' '_describe() { : }' '_files() { : }' '_arguments() { print -rl -- "$@" }' \
            "words=(kin $command '') CURRENT=3" "source $dir/zsh" >"$dir/run.zsh"
        status 0 zsh -f "$dir/run.zsh"
        silent "$err"
        "$kin" help "$command" | sed -n 's/^ *\(-., \)\{0,1\}\(--[a-z-]*\).*/\2/p' >"$dir/options"
        while read -r option; do says "$out" "$option\["; done <"$dir/options"
    done
fi
for command in $commands; do says "$dir/zsh" "'$command:"; done

claim='cmake --install puts them where they are looked for'
build=$(dirname "$kin")
if [ -d "$build/manual" ] && command -v cmake >/dev/null; then
    status 0 cmake --install "$build" --prefix "$dir/installed"
    for file in bin/kin share/man/man1/kin.1 share/bash-completion/completions/kin share/zsh/site-functions/_kin; do
        [ -s "$dir/installed/$file" ] || fail "no $file"
    done
    same "$dir/installed/share/man/man1/kin.1" "$dir/man"
fi

tally
