cat > config.yaml <<CONFIG
name: Enginehouse
version: 1.0.0
schema: v1
models:
  - name: here
    provider: openai
    model: $MODEL
    apiBase: $GATEWAY/v1
    apiKey: none
    roles: [chat]
CONFIG
if told=$("$NPM/.bin/cn" -p --config config.yaml "Say hello" < /dev/null 2>&1) && [ -n "$told" ]; then echo text ok; else echo "text $told"; fi
