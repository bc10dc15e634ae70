ask() { curl -sSf "$GATEWAY/v1/chat/completions" -d "{\"model\": \"$MODEL\", \"max_tokens\": 8, $1 \"messages\": [{\"role\": \"user\", \"content\": \"Say hello\"}]}"; }
ask "" | grep -q '"content"' && echo text ok
ask '"stream": true,' | grep -q DONE && echo stream ok
