#!/bin/sh
# Installs kin from the folder of a release: the program for this system, its manual page and its shell completions.
#
#   ./install.sh [--prefix FOLDER]      default: /usr/local as root, Termux's own folder there, otherwise ~/.local
#   ./install.sh --remove [--prefix FOLDER]
set -eu
here=$(CDPATH='' cd "$(dirname "$0")" && pwd)
remove='' prefix=''
die() { echo "install.sh: $*" >&2 && exit 1; }

while [ $# -gt 0 ]; do
    case $1 in
    --prefix) [ $# -gt 1 ] || die '--prefix needs a FOLDER' && prefix=$2 && shift ;;
    --remove) remove=1 ;;
    -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" && exit 0 ;;
    *) die "unknown option '$1'; ./install.sh --help" ;;
    esac
    shift
done
if [ -z "$prefix" ]; then
    if [ -n "${TERMUX_VERSION:-}" ] && [ -n "${PREFIX:-}" ]; then
        prefix=$PREFIX
    elif [ "$(id -u)" = 0 ]; then
        prefix=/usr/local
    else
        prefix=${HOME:?there is no home directory; give --prefix FOLDER}/.local
    fi
fi

program=$prefix/bin/kin man=$prefix/share/man/man1/kin.1
bash=$prefix/share/bash-completion/completions/kin zsh=$prefix/share/zsh/site-functions/_kin
if [ -n "$remove" ]; then
    [ -e "$program" ] || die "there is no $program"
    rm -f "$program" "$man" "$bash" "$zsh"
    echo "removed $program; models, keys and settings stay in ~/.cache/kin and ~/.config/kin"
    exit 0
fi

case $(uname -s)-$(uname -m) in
Linux-x86_64 | Linux-amd64) system=linux-x86_64 ;;
Linux-aarch64 | Linux-arm64) system=linux-aarch64 ;;
Darwin-arm64) system=macos-aarch64 ;;
*) system='' ;;
esac
if [ -z "$system" ] || [ ! -f "$here/kin-$system" ]; then
    die "this folder has no kin for $(uname -s) on $(uname -m); it can be built from its source"
fi

# Checks the program against SHA256SUMS, with whichever tool is here.
line=$(grep " kin-$system\$" "$here/SHA256SUMS") || die "SHA256SUMS does not name kin-$system"
if command -v sha256sum >/dev/null; then
    sum=$(sha256sum "$here/kin-$system")
elif command -v shasum >/dev/null; then
    sum=$(shasum -a 256 "$here/kin-$system")
else
    sum=$line
    echo 'neither sha256sum nor shasum is here: the program is not checked'
fi
[ "${sum%% *}" = "${line%% *}" ] || die "kin-$system is damaged: its SHA-256 is not that of SHA256SUMS"

cannot_write() { die "cannot write $1; another place: ./install.sh --prefix FOLDER"; }
copy() { # FILE PLACE MODE: to PLACE.new
    if ! { mkdir -p "$(dirname "$2")" && cp "$here/$1" "$2.new" && chmod "$3" "$2.new"; }; then cannot_write "$2"; fi
}
put() { # FILE PLACE MODE
    [ -f "$here/$1" ] || return 0
    copy "$@"
    mv -f "$2.new" "$2" || cannot_write "$2"
}
# An older program stays until the new one is known to run here.
copy "kin-$system" "$program" 755
version=$("$program.new" --version) || {
    rm -f "$program.new"
    die "kin-$system does not run here; nothing was installed"
}
version=$(printf '%s\n' "$version" | sed 1q)
mv -f "$program.new" "$program" || cannot_write "$program"
put share/kin.1 "$man" 644
put share/kin "$bash" 644
put share/_kin "$zsh" 644
case :${PATH:-}: in
*:"$prefix/bin":*) echo "installed $program ($version). Try: kin chat qwen3-4b" ;;
*)
    echo "installed $program ($version). Try: $program chat qwen3-4b"
    echo "$prefix/bin is not in PATH. For example: echo 'export PATH=\"$prefix/bin:\$PATH\"' >>~/.profile, and log in again"
    ;;
esac
