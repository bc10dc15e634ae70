export ANTHROPIC_BASE_URL="$GATEWAY" ANTHROPIC_AUTH_TOKEN=none ANTHROPIC_MODEL="$MODEL"
export CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1
if told=$("$NPM/.bin/claude" -p "Say hello" < /dev/null 2>&1) && [ -n "$told" ]; then echo text ok; else echo "text $told"; fi
