export N8N_USER_FOLDER=$HOME N8N_DIAGNOSTICS_ENABLED=false N8N_VERSION_NOTIFICATIONS_ENABLED=false N8N_RUNNERS_ENABLED=false
PATH=$FOLDER/n8n/node_modules/.bin:$PATH
cat > credentials.json <<CREDENTIALS
[{"id": "here", "name": "Enginehouse", "type": "openAiApi", "data": {"apiKey": "none", "url": "$GATEWAY/v1"}}]
CREDENTIALS
cat > workflow.json <<WORKFLOW
{
  "id": "tried", "name": "tried", "active": false, "settings": {},
  "nodes": [
    {"id": "1", "name": "Start", "type": "n8n-nodes-base.manualTrigger", "typeVersion": 1, "position": [0, 0], "parameters": {}},
    {"id": "2", "name": "Chain", "type": "@n8n/n8n-nodes-langchain.chainLlm", "typeVersion": 1.5, "position": [200, 0],
     "parameters": {"promptType": "define", "text": "Say hello"}},
    {"id": "3", "name": "Model", "type": "@n8n/n8n-nodes-langchain.lmChatOpenAi", "typeVersion": 1.2, "position": [200, 200],
     "parameters": {"model": {"__rl": true, "mode": "id", "value": "$MODEL"}, "options": {}},
     "credentials": {"openAiApi": {"id": "here", "name": "Enginehouse"}}}
  ],
  "connections": {
    "Start": {"main": [[{"node": "Chain", "type": "main", "index": 0}]]},
    "Model": {"ai_languageModel": [[{"node": "Chain", "type": "ai_languageModel", "index": 0}]]}
  }
}
WORKFLOW
n8n import:credentials --input=credentials.json > import.txt 2>&1 || cat import.txt
n8n import:workflow --input=workflow.json > import.txt 2>&1 || cat import.txt
told=$(n8n execute --id=tried --rawOutput 2>&1)
if [[ $told == *'"text":'* && $told != *'"error":'* ]]; then echo text ok; else echo "text ${told: -300}"; fi
