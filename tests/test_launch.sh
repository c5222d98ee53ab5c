#!/bin/sh
# kin launch: coding agents with the settings of a running server. The agents are scripts that print what they got.
#
#   test_launch.sh PATH_TO_KIN
set -u
# shellcheck source=tests/checks.sh
. "$(dirname "$0")/checks.sh"
# shellcheck source=tests/serving.sh
. "$(dirname "$0")/serving.sh"
mkdir "$dir/bin"
for name in claude codex opencode; do
    cat >"$dir/bin/$name" <<'END'
#!/bin/sh
env
for word; do echo "word: $word"; done
exit 7
END
    chmod +x "$dir/bin/$name"
done
PATH=$dir/bin:$PATH
demo=$(dirname "$0")/../assets/demo.gguf

claim='without a server nothing is started, and the sentence says how to start one'
status 1 "$kin" launch claude --server http://127.0.0.1:1
says "$err" 'no server is ready at http://127.0.0.1:1 (.*); start one with .kin serve MODEL., or name it with --server URL'
silent "$out"

claim='Claude Code gets its variables and its words, and its status is that of the command'
serve "$demo" --alias 'my model'
status 7 env ANTHROPIC_API_KEY=sk-of-another CLAUDE_CODE_USE_BEDROCK=1 CLAUDE_CODE_USE_VERTEX=1 "$kin" launch claude --server "$base/v1" -- --continue 'two words'
says "$out" "^ANTHROPIC_BASE_URL=$base\$"
says "$out" '^ANTHROPIC_MODEL=my model$'
for size in OPUS SONNET HAIKU; do says "$out" "^ANTHROPIC_DEFAULT_${size}_MODEL=my model\$"; done
says_not "$out" '^CLAUDE_CODE_USE'
says "$out" '^ANTHROPIC_AUTH_TOKEN=none$'
says_not "$out" 'sk-of-another'
says "$out" '^word: --continue$'
says "$out" '^word: two words$'
says "$err" 'context is [0-9]* tokens; claude alone sends about 20000'

claim='Codex gets options, opencode a configuration in JSON'
status 7 "$kin" launch codex --server "$base" -- exec task
says "$out" '^word: model_provider="kin"$'
says "$out" "^word: model_providers.kin={name=\"kin\", base_url=\"$base/v1\", wire_api=\"responses\", env_key=\"KIN_SERVER_KEY\"}\$"
says "$out" '^KIN_SERVER_KEY=none$'
says "$out" '^word: my model$'
says "$out" '^word: task$'
status 7 "$kin" launch opencode --server "$base"
sed -n 's/^OPENCODE_CONFIG_CONTENT=//p' "$out" >"$dir/config.json"
says "$dir/config.json" '"model": *"kin/my model"'
says "$dir/config.json" "\"baseURL\": *\"$base/v1\""
if command -v python3 >/dev/null; then status 0 python3 -m json.tool "$dir/config.json"; fi

claim='--print shows the variables for a shell, and starts nothing'
status 0 "$kin" launch claude --server "$base" --print -- --continue
says "$out" "^export ANTHROPIC_BASE_URL='$base'\$"
says "$out" '^unset ANTHROPIC_API_KEY$'
says "$out" '^unset CLAUDE_CODE_USE_BEDROCK$'
says "$out" '^unset CLAUDE_CODE_USE_VERTEX$'
says "$out" "^# claude '--continue'\$"
says_not "$out" '^word:'
mv "$out" "$dir/printed"
# shellcheck disable=SC2016 # the inner shell expands it
status 0 sh -c '. "$1" && echo "$ANTHROPIC_MODEL"' sh "$dir/printed"
says "$out" '^my model$'
stop
status 0 "$kin" launch claude --server http://127.0.0.1:1 --model "it's" --print
says "$out" "^export ANTHROPIC_MODEL='it'\\\\''s'\$"

claim='a key is passed on from its file, and a wrong one is refused'
(umask 077 && echo sesame >"$dir/key")
serve "$demo" --api-key-file "$dir/key"
status 7 "$kin" launch claude --server "$base" --api-key-file "$dir/key"
says "$out" '^ANTHROPIC_AUTH_TOKEN=sesame$'
status 1 "$kin" launch claude --server "$base"
says "$err" 'refused the API key; give --api-key-file FILE'

claim='a program that is not installed is named, with how to get it'
rm "$dir/bin/codex"
status 1 env PATH=/nonexistent "$kin" launch codex --server "$base" --api-key sesame
says "$err" 'codex is not installed, or not in PATH; it comes with: npm install -g @openai/codex'
stop

claim='wrong words are refused'
status 2 "$kin" launch
says "$err" 'which program? For example: kin launch claude'
status 2 "$kin" launch vim
says "$err" "does not know 'vim'; it knows claude, codex and opencode"
status 2 "$kin" launch claude --continue
says "$err" "unknown option '--continue'"
status 1 "$kin" launch claude --server http://
says "$err" '^kin: --server: '
status 1 "$kin" launch claude --api-key-file "$dir/absent"
says "$err" '^kin: --api-key-file: .*no such API key file'

tally
