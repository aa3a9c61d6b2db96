"""Every limit of Kourou, with its reason. A limit used in two places lives here once.

Units stand in the names. `[RMQ]` marks a value that RocketMQ 4.9's formats or clients fix; changing
it breaks the promise that their broker opens our store and their clients connect.
"""

from __future__ import annotations

# -- names ----------------------------------------------------------------------------------------
TOPIC_LENGTH_MAX = 127  # [RMQ] the record stores the length in one signed byte
GROUP_LENGTH_MAX = 120  # [RMQ] leaves room for the %RETRY% and %DLQ% prefixes within a topic
CLIENT_ID_LENGTH_MAX = 255
BROKER_NAME_LENGTH_MAX = 255  # and cluster names

# -- messages -------------------------------------------------------------------------------------
BODY_SIZE_BYTES_MAX = 4 * 1024 * 1024  # [RMQ] 4.9 maxMessageSize; the seed's 128 KiB breaks clients
PROPERTIES_SIZE_BYTES_MAX = 32_767  # [RMQ] signed 16-bit length in the record
RECORD_OVERHEAD_BYTES_MAX = 65_536  # [RMQ] a record is at most maxMessageSize + this
RECORD_FIXED_BYTES = 91  # [RMQ] the fields of a record with IPv4 hosts and nothing variable
CRC_PROPERTY_BYTES = 20  # "__CRC32#" 0x01 ten digits 0x02, as RocketMQ 5 appends it
COMPRESS_OVER_BYTES = 4096  # [RMQ] producers compress bodies of this size and more
DECOMPRESS_RATIO_MAX = 100  # a body that grows more is a bomb, not a message
DECOMPRESS_FACTOR_MAX = 8  # and never above maxMessageSize times this
BATCH_MESSAGES_MAX = 65_536  # lane numbers in a coalesced send are 16 bits wide
BATCH_RECORD_BYTES_MAX = 64 * 1024 * 1024  # RocketMQ's batch, with what its messages share

# -- files ----------------------------------------------------------------------------------------
SEGMENT_SIZE_BYTES = 1 << 30  # [RMQ] mappedFileSizeCommitLog
SEGMENT_TAIL_BYTES = 8  # [RMQ] always left at a segment's end for the BLANK filler
QUEUE_UNIT_BYTES = 20  # [RMQ]
QUEUE_FILE_UNITS = 300_000  # [RMQ] 6,000,000 bytes a file
INDEX_HEADER_BYTES = 40  # [RMQ]
INDEX_SLOTS = 5_000_000  # [RMQ]
INDEX_ENTRIES = 20_000_000  # [RMQ]
INDEX_SLOT_BYTES = 4  # [RMQ] one seed says 20: that is the entry
INDEX_ENTRY_BYTES = 20  # [RMQ]
INDEX_CHAIN_STEPS_MAX = 100_000  # entries one query looks at: 0.5 s; a usual chain has four
CHECKPOINT_BYTES = 4096  # [RMQ]
DISK_RESERVE_BYTES = 16 * 1024 * 1024  # keeps offsets and the checkpoint writable on a full disk
DISK_SIZE_WARN_BYTES = 4 << 30  # the seeds: a broker's disk should not be smaller
CONFIG_FILE_BYTES_MAX = 256 * 1024 * 1024  # a million topics; more is not a table of ours
KEY_VALUE_FILE_BYTES_MAX = 16 * 1024 * 1024  # a name server's kvConfig.json
OWN_FILE_BYTES_MAX = 64 * 1024 * 1024  # one of our own files in kourou/; more is damage

# -- delays ---------------------------------------------------------------------------------------
DELAY_LEVELS_MAX = 1_000  # each is a queue that is looked at ten times a second
DELIVERIES_MAX = 512  # delayed messages delivered in one turn: 10 ms in which nobody else is served
DELIVERY_BYTES_MAX = 4 * 1024 * 1024  # and their bytes, beside a single large one
CLOCK_STEPS_MAX = 64  # how often the clock was set while messages waited; then two become one
FAILURE_REASON_LENGTH_MAX = 500  # characters of why a message became a dead letter

# -- frames ---------------------------------------------------------------------------------------
FRAME_SIZE_BYTES_MAX = 16 * 1024 * 1024  # [RMQ] com.rocketmq.remoting.frameMaxLength
HEADER_SIZE_BYTES_MAX = 64 * 1024
SEND_CONTEXTS_MAX = 127  # traces of one frame beside the first; a span has at most 128 links
SEND_HEADER_SIZE_BYTES_MAX = HEADER_SIZE_BYTES_MAX + 6 * BATCH_MESSAGES_MAX  # lane and size each
REPLY_HEADER_SIZE_BYTES_MAX = HEADER_SIZE_BYTES_MAX + 32 * BATCH_MESSAGES_MAX  # places of repeats
REMOTING_HEADER_SIZE_BYTES_MAX = 256 * 1024  # full properties, each byte written as \u00XX
FRAME_PARTS_MAX = 8
JSON_DEPTH_MAX = 8
JSON_FIELDS_MAX = 256
LENIENT_REQUEST_BYTES_MAX = 256 * 1024  # the tolerant reader does 2 MB/s, and a broker waits for it
LENIENT_REPLY_BYTES_MAX = 8 * 1024 * 1024  # offsets of all queues of a topic, several times over
JSON_NUMBER_LENGTH_MAX = 64  # longer ones are no numbers of ours, and parsing them is quadratic
FRAME_RECORDS_MAX = 4_096  # records our client puts into one frame
FRAME_RECORD_BYTES_MAX = 4 * 1024 * 1024  # bytes of such records, beside a single large one

# -- requests -------------------------------------------------------------------------------------
PULL_MESSAGES_MAX = 16_384  # one bulk pull of our own client
PULL_SIZE_BYTES_MAX = 4 * 1024 * 1024
QUERY_MESSAGES_MAX = 64  # [RMQ] maxMsgsNumBatch
QUEUE_LOOK_UNITS_MAX = 1_000  # units of a queue in one answer to an operator
HOLDS_MAX = 100_000  # pulls kept waiting; beyond: POLLING_FULL
DEADLINE_MS_MAX = 120_000
TRACE_RECORDS_MAX = 2_048  # [RMQ] of message traces that wait at a client; more are dropped
TRACE_MESSAGE_BYTES_MAX = 118_000  # [RMQ] of one message of trace records: maxMessageSize - 10,000
TRACE_KEYS_BYTES_MAX = 16_384  # of its keys; all properties together have 32,767
REQUESTS_WAITING_MAX = 65_536  # of a client, for their replies; beyond: Throttled
CLIENT_QUESTIONS_MAX = 10_000  # of a broker to its clients, open at a time; beyond: FLOW_CONTROL
OFFSET_MOVED_QUEUES_MAX = 16_384  # corrections of offsets noted in a second; more are not
QUEUE_LOCK_MS = 60_000  # [RMQ] rocketmq.broker.rebalance.lockMaxLiveTime, silence of a holder
QUEUE_LOCKS_MAX = 262_144  # 16 groups consume the 10,000 queues of a machine in order, and more
QUEUE_LOCK_WAITERS_MAX = 64  # clients that are told when a lock is free; others find out later
QUEUE_LOCKS_EVENT_ENTRIES_MAX = 8_192  # an event about more queue locks is cut into several
RETRIED_KEYS_MAX = 1_000_000  # unique keys of retried sends that a broker remembers
CHECK_IMMUNITY_S_MAX = 7 * 24 * 3_600  # a half message that lasts longer outlives its log
RESOLVED_REMEMBERED_MAX = 65_536  # transactions whose end is known without reading the log
INBOX_INPUTS_MAX = 10_000  # [RMQ] sendThreadPoolQueueCapacity; who comes later is told it is busy
UNPROJECTED_BYTES_MAX = 64 * 1024 * 1024  # appended, not yet projected; beyond: sends are refused
FILTER_UNITS_MAX = 4_096  # units one pull looks at for its tags, then it answers
FILTER_RECORDS_MAX = 1_024  # records one pull looks at for its SQL92 filter, then it answers
FILTER_BYTES_MAX = 4 * 1024 * 1024  # and so many bytes of records: both are milliseconds of work
FILTER_CONDITIONS_MAX = 256  # conditions of one SQL92 filter: every message may be asked them all
FILTER_TYPE_LENGTH_MAX = 32  # an expression type that is not known is kept until it is needed
FILTER_DEPTH_MAX = 64  # levels of nesting in it, far below what Python's stack allows
FILTERS_REMEMBERED_MAX = 1_024  # compiled SQL92 filters that are kept, and refused ones
POLL_MESSAGES_MAX = 500  # messages one poll hands out
SKIP_BACKLOG_MAX = 1 << 40  # messages; more than a queue will ever hold

# -- the control plane ----------------------------------------------------------------------------
TOPIC_QUEUES_MAX = 16_384  # one topic may take all the 10,000 queues a machine is built for (F055)
SUBSCRIPTION_TAGS_MAX = 1_024
SUBSCRIPTION_EXPRESSION_LENGTH_MAX = 16_384
CLIENTS_MAX = 100_000  # registered clients of one broker; sockets run out before
CLIENT_GROUPS_MAX = 1_024  # groups that one heartbeat may name
GROUP_SUBSCRIPTIONS_MAX = 1_024  # topics that one member may subscribe
ACTOR_LENGTH_MAX = 256  # who did it, in a control event
REASON_LENGTH_MAX = 1_024  # why, in a control event
TRACE_ID_LENGTH_MAX = 64  # 32 hexadecimal digits today
AGGREGATE_LENGTH_MAX = 256  # kind/name of what has a history
HISTORY_EVENTS_MAX = 1_000  # events of one page of history
HISTORY_BYTES_MAX = 4 * 1024 * 1024  # of such a page; a single larger event is a page of its own
HISTORY_TYPES_MAX = 64  # types of events that one question may name
HISTORY_QUESTIONS_MAX = 64  # questions that wait for the event database; beyond: SYSTEM_BUSY
HISTORY_WAIT_MS_MAX = 5_000  # then METADATA_UNAVAILABLE; our own tools ask for 10 s
STATE_BYTES_MAX = 12 * 1024 * 1024  # one answer; a larger state is asked for part by part
SETTING_LENGTH_MAX = 1_024
PROPERTIES_TEXT_BYTES_MAX = 256 * 1024  # settings in one request
UNREAD_SPANS_MAX = 1_000  # a deletion that costs more queues is told in several events
PROGRESS_EVENT_ENTRIES_MAX = 10_000  # a progress event with more is cut into several
KEY_VALUE_LENGTH_MAX = 65_536  # one value of the name server's key/value settings
SETTING_NAME_LENGTH_MAX = 128
SETTINGS_FILE_BYTES_MAX = 1 << 20  # a properties file
PASSWORD_FILE_BYTES_MAX = 1_024  # a password on a line of its own
HEALTH_ANSWER_BYTES_MAX = 64 * 1024  # what `kourou health` reads of a page
KEY_VALUE_WRITES_WAITING_MAX = 1_000  # writes a name server keeps waiting for its disk
BROKERS_MAX = 4_096  # brokers one name server registers

# -- peers ----------------------------------------------------------------------------------------
SOCKET_HWM_MESSAGES = 1_000  # never 0: an unlimited queue to a stuck peer eats the memory
PEER_QUEUE_BYTES_MAX = 64 * 1024 * 1024
PEER_STUCK_MS_MAX = 5_000
PEERS_MAX = 16_384  # identities one socket knows; the machine's 20,000 file descriptors end first
UNFINISHED_BYTES_MAX = 512 * 1024 * 1024  # of all TCP frames of a listener that are not whole yet
PEER_FAULTS_MAX = 16  # undecodable frames from one peer, then it is cut off
FRAMES_PER_TURN_MAX = 1_024  # a busy socket yields the loop after so many frames ...
FRAME_BYTES_PER_TURN_MAX = 16 * 1024 * 1024  # ... or so many bytes
LOG_VALUE_LENGTH_MAX = 4_096  # longer values are cut in the log: clients must not fill the disk
NAME_SERVERS_MAX = 64  # addresses a client or broker takes
PORT_MAX = 65_535
NAME_SERVER_LIST_BYTES_MAX = 16_384  # the body an address server may answer
HANDSHAKE_MS_MAX = 3_000  # a connection that does not greet is dropped

# -- the admin page ------------------------------------------------------------------------------
ADMIN_HEADER_S_MAX = 3.0  # seconds for a request's header; slow ones are cut off
ADMIN_ANSWER_S_MAX = 10.0  # seconds to take an answer
ADMIN_CONNECTIONS_MAX = 64  # more are closed at once
ADMIN_BODY_BYTES_MAX = 1 << 16  # nothing that is asked for here needs a body
ADMIN_LINE_BYTES_MAX = 8_190  # aiohttp's default for one header line

# Relations that must hold, whoever edits a number above.
assert TOPIC_LENGTH_MAX <= 127
assert len("%RETRY%") + GROUP_LENGTH_MAX <= TOPIC_LENGTH_MAX
assert PROPERTIES_SIZE_BYTES_MAX <= 2**15 - 1
assert BODY_SIZE_BYTES_MAX + RECORD_OVERHEAD_BYTES_MAX < FRAME_SIZE_BYTES_MAX
assert BODY_SIZE_BYTES_MAX + RECORD_OVERHEAD_BYTES_MAX < SEGMENT_SIZE_BYTES
assert PULL_SIZE_BYTES_MAX < FRAME_SIZE_BYTES_MAX
assert HISTORY_BYTES_MAX < FRAME_SIZE_BYTES_MAX
assert STATE_BYTES_MAX + HEADER_SIZE_BYTES_MAX < FRAME_SIZE_BYTES_MAX
assert RECORD_OVERHEAD_BYTES_MAX >= (
    RECORD_FIXED_BYTES + 24 + TOPIC_LENGTH_MAX + PROPERTIES_SIZE_BYTES_MAX
)
assert PROGRESS_EVENT_ENTRIES_MAX * (TOPIC_LENGTH_MAX + 64) < BODY_SIZE_BYTES_MAX
assert QUEUE_LOCKS_EVENT_ENTRIES_MAX * (TOPIC_LENGTH_MAX + 320) < BODY_SIZE_BYTES_MAX
assert TOPIC_QUEUES_MAX * 2 * 64 < BODY_SIZE_BYTES_MAX  # a reset names each queue twice
