mkdir -p "$HOME/.codex"
cat > "$HOME/.codex/config.toml" <<CONFIG
model = "$MODEL"
model_provider = "enginehouse"
web_search = "disabled"
[model_providers.enginehouse]
name = "Enginehouse"
base_url = "$GATEWAY/v1"
wire_api = "responses"
CONFIG
if told=$("$NPM/.bin/codex" exec --skip-git-repo-check "Say hello" < /dev/null 2> /dev/null) && [ -n "$told" ]; then echo text ok; else echo "text $told"; fi
