#!/bin/sh
# One broker of deploy/compose.cluster.yaml or deploy/kubernetes.yaml, which is a controller too: makes
# its folder if it is new, and starts it. By its environment:
#   NODE         1, 2 or 3
#   DATA         its folder
#   CLIENTS      HOST:PORT that it tells clients of this machine
#   BROKERS      HOST:PORT that it tells the other brokers
#   CONTROLLERS  of the three controllers: HOST:PORT,HOST:PORT,HOST:PORT
#   BIND         the address it listens on
#   METRICS      HOST:PORT for Prometheus, if any
set -eu

# Whose folder it is. The same three for ever; a cluster of your own gets its own.
cluster=KwGVMyygQWWZMw2RdTp0AA
one=9ahTeQiyR3aCh9NznooLfA two=aeH1PDyYRQGs6h8F_295xg three=eTRqKwmLRAKhE7JKp19nYA

controller() { echo "$CONTROLLERS" | cut -d, -f"$1"; }
port() { echo "${1##*:}"; }

set -- --data "$DATA" \
  --set "process.roles=broker,controller" \
  --set "node.id=$NODE" \
  --set "listeners=CLIENTS://$BIND:$(port "$CLIENTS"),BROKERS://$BIND:$(port "$BROKERS"),CONTROLLER://$BIND:$(port "$(controller "$NODE")")" \
  --set "advertised.listeners=CLIENTS://$CLIENTS,BROKERS://$BROKERS,CONTROLLER://$(controller "$NODE")" \
  --set "listener.security.protocol.map=CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT,CONTROLLER:PLAINTEXT" \
  --set "controller.listener.names=CONTROLLER" \
  --set "inter.broker.listener.name=BROKERS" \
  --set "controller.quorum.bootstrap.servers=$CONTROLLERS" \
  --set "default.replication.factor=3" \
  --set "min.insync.replicas=2"

headrace format --ignore-formatted --cluster-id "$cluster" --initial-controllers \
  "1@$(controller 1):$one,2@$(controller 2):$two,3@$(controller 3):$three" "$@"
exec headrace start --insecure --no-console ${METRICS:+--metrics "$METRICS"} "$@"
