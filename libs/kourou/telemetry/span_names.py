"""Names of spans and attributes, as in OpenTelemetry's semantic conventions for messaging.

The conventions (semantic-conventions 1.44) are still in development and have been renamed before.
Therefore the strings are defined here instead of imported from a package that is itself a beta.
Names that the conventions do not define begin with `kourou.`.
"""

from __future__ import annotations

SCOPE = "kourou"
"""The instrumentation scope of all Kourou spans."""

# -- operations: a span is named `{operation} {destination}` ---------------------------------------
SEND = "send"  # producer: from the call until the broker has acknowledged
RECEIVE = "receive"  # consumer: one pull
PROCESS = "process"  # consumer: one call of a handler
STORE = "store"  # broker: a send, from its arrival to its reply
PULL = "pull"  # broker: a pull, from its arrival to its reply
# Parts of the broker's work; they have no destination.
APPEND = "append"
FLUSH = "flush"
DISPATCH = "dispatch"
WAIT = "wait"
HOLD = "hold"
SHIP = "ship"
COPY = "copy"
CONFIRM = "confirm"
FILTER_PULL = "filter"  # filter server: a pull, from its arrival to its reply
# Work for several messages, below the messages' own spans, which are found by trace context.
REPLICATE = "replicate"  # follower: from the arrival of a chunk until it is in the follower's log
JUDGE = "judge"  # filter server: from passing a batch to a worker to its results

# -- attributes -----------------------------------------------------------------------------------
SYSTEM = "messaging.system"
OPERATION_NAME = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
DESTINATION = "messaging.destination.name"
PARTITION = "messaging.destination.partition.id"
GROUP = "messaging.consumer.group.name"
CLIENT_ID = "messaging.client.id"
MESSAGE_ID = "messaging.message.id"
BATCH_COUNT = "messaging.batch.message_count"
NAMESPACE = "messaging.rocketmq.namespace"
MESSAGE_TYPE = "messaging.rocketmq.message.type"
MESSAGE_TAG = "messaging.rocketmq.message.tag"
MESSAGE_KEYS = "messaging.rocketmq.message.keys"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
ERROR_TYPE = "error.type"
RESPONSE_CODE = "kourou.response.code"
OFFSET = "kourou.queue.offset"
POSITION = "kourou.log.position"
SIZE_BYTES = "kourou.size_bytes"
MEMBER = "kourou.replication.member"
COPIES = "kourou.replication.copies"
ON_DISK = "kourou.replication.on_disk"
ATTEMPT = "kourou.delivery.attempt"
FILTER = "kourou.filter.name"
FILTER_VERSION = "kourou.filter.version"
FILTER_SEEN = "kourou.filter.seen"
FILTER_PASSED = "kourou.filter.passed"
FILTER_MICROS = "kourou.filter.micros"
HTTP_METHOD = "http.request.method"
HTTP_ROUTE = "http.route"
HTTP_STATUS = "http.response.status_code"
QUERY = "kourou.etl.query"
JOB = "kourou.etl.job"
BATCH_ID = "kourou.etl.batch_id"
START_OFFSETS = "kourou.etl.start_offsets"
END_OFFSETS = "kourou.etl.end_offsets"

SYSTEM_VALUE = "rocketmq"
"""The conventions define RocketMQ, which is Kourou's wire protocol and disk format."""

# -- resource attributes of a process -------------------------------------------------------------
SERVICE_NAME = "service.name"
SERVICE_VERSION = "service.version"
SERVICE_INSTANCE = "service.instance.id"


def span_name(operation: str, destination: str) -> str:
    """Return the name of a span, such as `send orders`."""
    return f"{operation} {destination}"
