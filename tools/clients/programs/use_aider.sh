cd "$(mktemp -d)" || exit
git init --quiet .
told=$("$FOLDER/aider/bin/aider" --openai-api-base "$GATEWAY/v1" --openai-api-key none --model "openai/$MODEL" \
  --message "Say hello" --yes-always --no-auto-commits --analytics-disable --no-check-update --no-show-model-warnings \
  < /dev/null 2>&1)
if [[ $told =~ Tokens:.*sent.*received ]]; then echo text ok; else echo "text $told"; fi
