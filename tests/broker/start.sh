#!/usr/bin/env bash
# start.sh JARS DIR PORT [property=value ...]
#
# Becomes a single-node broker (KRaft, plaintext) on 127.0.0.1:PORT, its controller on PORT+1, its logs in DIR/data.
# The first start formats DIR/data. The broker replaces this shell, so whoever started the script has the broker as
# its child: SIGTERM stops it cleanly, SIGKILL crashes it. It serves once DIR/broker.log has "Kafka Server started".
#
# PORT and PORT+1 should lie below the ephemeral range (32768): a client that polls for a broker on an ephemeral
# port can be given that very port for its own end and then talk to itself.
# FORMAT_FLAGS is handed to the storage tool, e.g. "--feature transaction.version=0" for values of version 0.
set -euo pipefail
jars=$1 dir=$2 port=$3
shift 3

mkdir -p "$dir"
{
  cat <<PROPERTIES
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$((port + 1))
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1))
advertised.listeners=PLAINTEXT://127.0.0.1:$port
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=$dir/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=2
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
PROPERTIES
  printf '%s\n' "$@"
} > "$dir/server.properties"

cat > "$dir/log4j2.properties" <<LOGGING
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %m (%c)%n
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
LOGGING

# Short lives: the first compiler and the smallest collector start fastest.
java=(java "-Xmx${BROKER_HEAP:-512m}" -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
  -cp "$jars/*" "-Dlog4j2.configurationFile=$dir/log4j2.properties")
if [ ! -e "$dir/data/meta.properties" ]; then
  # shellcheck disable=SC2086 -- FORMAT_FLAGS is a list of words
  "${java[@]}" kafka.tools.StorageTool format --cluster-id AAAAAAAAAAAAAAAAAAAAAQ \
    --config "$dir/server.properties" ${FORMAT_FLAGS:-} > "$dir/format.log" 2>&1
fi
exec "${java[@]}" kafka.Kafka "$dir/server.properties" > "$dir/broker.log" 2>&1
