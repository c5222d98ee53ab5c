#!/bin/sh
# Chat templates render byte for byte as in Jinja with the settings of the transformers library: snippets of the language, random templates,
# and the real ones of ../shared/templates, if present. Skipped without python3 and jinja2.
#
#   test_jinja_oracle.sh PATH_TO_KIN
set -eu
tests=$(dirname "$0")
templates=$tests/../../shared/templates
if ! python3 -c 'import jinja2' 2>/dev/null; then
    echo 'no python3 with jinja2 here (tools/setup --dev installs it)'
    exit 77
fi
set -- "$(dirname "$1")/test_jinja" "$tests/jinja_snippets.json"
[ ! -d "$templates" ] || set -- "$@" "$templates"
exec python3 "$tests/jinja_oracle.py" "$@"
