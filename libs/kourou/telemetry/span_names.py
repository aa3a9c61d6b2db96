"""The names that spans and their attributes have: OpenTelemetry's conventions for messaging.

Lives here: every such name, once. May not live here: making spans (kourou.telemetry.tracing).

The conventions (semantic-conventions 1.44) are still in development and have been renamed before,
so the strings stand here instead of being taken from a package that is itself a beta. What they
have no name for begins with `kourou.`.

State: none.
"""

from __future__ import annotations

SCOPE = "kourou"
"""The instrumentation scope of all our spans."""

# -- operations: a span is named `{operation} {destination}` ---------------------------------------
SEND = "send"  # producer: from the call to the broker's promise
RECEIVE = "receive"  # consumer: one pull
PROCESS = "process"  # consumer: one call of a handler
STORE = "store"  # broker: a send, from its arrival to its answer
PULL = "pull"  # broker: a pull, from its arrival to its answer
# Parts of the broker's work; they have no destination.
APPEND = "append"
FLUSH = "flush"
DISPATCH = "dispatch"
WAIT = "wait"
HOLD = "hold"

# -- attributes -----------------------------------------------------------------------------------
SYSTEM = "messaging.system"
OPERATION_NAME = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
DESTINATION = "messaging.destination.name"
PARTITION = "messaging.destination.partition.id"
GROUP = "messaging.consumer.group.name"
CLIENT_ID = "messaging.client.id"
MESSAGE_ID = "messaging.message.id"
BODY_SIZE = "messaging.message.body.size"
BATCH_COUNT = "messaging.batch.message_count"
NAMESPACE = "messaging.rocketmq.namespace"
MESSAGE_TYPE = "messaging.rocketmq.message.type"
MESSAGE_TAG = "messaging.rocketmq.message.tag"
MESSAGE_KEYS = "messaging.rocketmq.message.keys"
CONSUMPTION_MODEL = "messaging.rocketmq.consumption_model"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
ERROR_TYPE = "error.type"
RESPONSE_CODE = "kourou.response.code"
OFFSET = "kourou.queue.offset"
POSITION = "kourou.log.position"
SIZE_BYTES = "kourou.size_bytes"
ATTEMPT = "kourou.delivery.attempt"

SYSTEM_VALUE = "rocketmq"
"""The conventions know RocketMQ; what we are on the wire and on disk."""

# -- what a process says of itself ----------------------------------------------------------------
SERVICE_NAME = "service.name"
SERVICE_VERSION = "service.version"
SERVICE_INSTANCE = "service.instance.id"


def span_name(operation: str, destination: str) -> str:
    """`send orders`."""
    return f"{operation} {destination}"
