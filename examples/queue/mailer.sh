#!/bin/sh
# The same queue over HTTP: one mail, from acquiring it to its end.
set -eu
queue="${HTTP:-http://localhost:8082}/queues/mailers"

mail=$(curl -sf "$queue/acquire" -d '{"topics": ["mails"], "timeout_ms": 10000}')
id=$(printf '%s' "$mail" | sed -n 's/.*"id":"\([^"]*\)".*/\1/p')
if [ -z "$id" ]; then
    echo "no mail"
    exit 0
fi
case "$mail" in
*@*) curl -sf "$queue/accept" -d "{\"ids\": [\"$id\"]}" > /dev/null && echo "sent $mail" ;;
*) curl -sf "$queue/release" -d "{\"ids\": [\"$id\"]}" > /dev/null && echo "again $mail" ;;
esac
