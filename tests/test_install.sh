#!/bin/sh
# The installer of a release (tools/install.sh), with a script in place of the program.
#
#   test_install.sh PATH_TO_KIN
set -u
# shellcheck source=tests/checks.sh
. "$(dirname "$0")/checks.sh"
command -v sha256sum >/dev/null || { echo 'skipped: no sha256sum' && exit 77; }
release=$dir/release prefix=$dir/prefix installer=$(dirname "$0")/../tools/install.sh
case $(uname -s)-$(uname -m) in
Linux-x86_64) system=linux-x86_64 ;;
Linux-aarch64) system=linux-aarch64 ;;
*) echo "skipped: there is no release for $(uname -sm)" && exit 77 ;;
esac
mkdir -p "$release/share"
cp "$installer" "$release/install.sh"
printf '#!/bin/sh\necho kin 9.9\n' >"$release/kin-$system"
echo manual >"$release/share/kin.1"
sums() { (cd "$release" && sha256sum "kin-$system" share/kin.1 >SHA256SUMS); }
sums

claim='the program of this system is installed, and removed'
status 0 sh "$release/install.sh" --prefix "$prefix"
says "$out" "^installed $prefix/bin/kin (kin 9.9). Try: $prefix/bin/kin chat"
says "$out" "$prefix/bin is not in PATH"
same "$release/kin-$system" "$prefix/bin/kin"
same "$release/share/kin.1" "$prefix/share/man/man1/kin.1"
[ -x "$prefix/bin/kin" ] || fail 'it cannot be run'
[ ! -e "$prefix/share/zsh" ] || fail 'something that is not in the folder was installed'
status 0 env PATH="$prefix/bin:$PATH" sh "$release/install.sh" --prefix "$prefix"
says "$out" '. Try: kin chat'
says_not "$out" 'not in PATH'
status 0 sh "$release/install.sh" --prefix "$prefix" --remove
[ ! -e "$prefix/bin/kin" ] && [ ! -e "$prefix/share/man/man1/kin.1" ] || fail 'something is left'
status 1 sh "$release/install.sh" --prefix "$prefix" --remove
says "$err" "there is no $prefix/bin/kin"

claim='without a prefix it goes below the home directory, or into the folder of Termux'
if [ "$(id -u)" != 0 ]; then
    status 0 env HOME="$dir/home" sh "$release/install.sh"
    [ -x "$dir/home/.local/bin/kin" ] || fail 'it is not there'
fi
status 0 env TERMUX_VERSION=1 PREFIX="$dir/termux" sh "$release/install.sh"
[ -x "$dir/termux/bin/kin" ] || fail 'it is not there'

claim='a damaged program is not installed, nor one that does not run'
echo '# more' >>"$release/kin-$system"
status 1 sh "$release/install.sh" --prefix "$dir/other"
says "$err" "kin-$system is damaged"
[ ! -e "$dir/other" ] || fail 'something was installed'
printf '#!/bin/sh\nexit 1\n' >"$release/kin-$system"
sums
status 1 sh "$release/install.sh" --prefix "$dir/other"
says "$err" 'does not run here; nothing was installed'
[ ! -e "$dir/other/bin/kin" ] && [ ! -e "$dir/other/share" ] || fail 'something was installed'
mkdir -p "$dir/older/bin"
printf '#!/bin/sh\necho kin 9.8\n' >"$dir/older/bin/kin"
cp "$dir/older/bin/kin" "$dir/older-kin"
status 1 sh "$release/install.sh" --prefix "$dir/older"
same "$dir/older-kin" "$dir/older/bin/kin"
[ ! -e "$dir/older/bin/kin.new" ] || fail 'the new program is left'

claim='mistakes are named'
status 1 sh "$release/install.sh" --prefx "$prefix"
says "$err" "unknown option '--prefx'"
status 1 sh "$release/install.sh" --prefix
says "$err" 'needs a FOLDER'
rm "$release/kin-$system"
status 1 sh "$release/install.sh" --prefix "$prefix"
says "$err" 'this folder has no kin for'
status 0 sh "$release/install.sh" --help
says "$out" 'install.sh \[--prefix FOLDER\]'

tally
