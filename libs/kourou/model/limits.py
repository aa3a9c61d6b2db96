"""Every limit of Kourou, with its reason. A limit that is used in two places is defined here once.

Units are in the names. `[RMQ]` marks a value that RocketMQ 4.9's formats or clients require:
changing it breaks the guarantee that its broker opens Kourou's store and its clients connect.
"""

from __future__ import annotations

# -- names ----------------------------------------------------------------------------------------
TOPIC_LENGTH_MAX = 127  # [RMQ] the record stores the length in one signed byte
GROUP_LENGTH_MAX = 120  # [RMQ] leaves room for the %RETRY% and %DLQ% prefixes within a topic
CLIENT_ID_LENGTH_MAX = 255
BROKER_NAME_LENGTH_MAX = 255  # and cluster names

# -- messages -------------------------------------------------------------------------------------
BODY_SIZE_BYTES_MAX = 4 * 1024 * 1024  # [RMQ] 4.9 maxMessageSize; 128 KiB would be too small
PROPERTIES_SIZE_BYTES_MAX = 32_767  # [RMQ] signed 16-bit length in the record
RECORD_OVERHEAD_BYTES_MAX = 65_536  # [RMQ] a record is at most maxMessageSize + this
RECORD_FIXED_BYTES = 91  # [RMQ] the fields of a record with IPv4 hosts and nothing variable
CRC_PROPERTY_BYTES = 20  # "__CRC32#" 0x01 ten digits 0x02, as RocketMQ 5 appends it
COMPRESS_OVER_BYTES = 4096  # [RMQ] producers compress bodies of this size and more
DECOMPRESS_RATIO_MAX = 100  # a larger ratio is treated as a decompression bomb
DECOMPRESS_FACTOR_MAX = 8  # the result may be at most maxMessageSize times this
BATCH_MESSAGES_MAX = 65_536  # queue numbers in a coalesced send have 16 bits
BATCH_RECORD_BYTES_MAX = 64 * 1024 * 1024  # one batch of RocketMQ, with its shared fields

# -- files ----------------------------------------------------------------------------------------
SEGMENT_SIZE_BYTES = 1 << 30  # [RMQ] mappedFileSizeCommitLog
SEGMENT_TAIL_BYTES = 8  # [RMQ] always left at a segment's end for the BLANK filler
QUEUE_UNIT_BYTES = 20  # [RMQ]
INT_MAX = 2**31 - 1  # [RMQ] sizes and counts of settings are Java's int
OFFSET_MAX = 2**63 - 1  # [RMQ] an offset is a signed 64-bit number
QUEUE_FILE_UNITS = 300_000  # [RMQ] 6,000,000 bytes a file
INDEX_HEADER_BYTES = 40  # [RMQ]
INDEX_SLOTS = 5_000_000  # [RMQ]
INDEX_ENTRIES = 20_000_000  # [RMQ]
INDEX_SLOT_BYTES = 4  # [RMQ] a slot; an entry has 20 bytes
INDEX_ENTRY_BYTES = 20  # [RMQ]
INDEX_CHAIN_STEPS_MAX = 100_000  # entries read by one query: 0.5 s; a usual chain has four
CHECKPOINT_BYTES = 4096  # [RMQ]
DISK_RESERVE_BYTES = 16 * 1024 * 1024  # keeps offsets and the checkpoint writable on a full disk
DISK_SIZE_WARN_BYTES = 4 << 30  # a warning below: a broker's disk should be larger
CONFIG_FILE_BYTES_MAX = 256 * 1024 * 1024  # a million topics; a larger file is not a valid table
KEY_VALUE_FILE_BYTES_MAX = 16 * 1024 * 1024  # a name server's kvConfig.json
OWN_FILE_BYTES_MAX = 64 * 1024 * 1024  # one of Kourou's files in kourou/; a larger one is damaged

# -- delays ---------------------------------------------------------------------------------------
DELAY_LEVELS_MAX = 1_000  # each is a queue that is checked ten times a second
DELIVERIES_MAX = 512  # delayed messages in one batch: 10 ms during which other requests wait
DELIVERY_BYTES_MAX = 4 * 1024 * 1024  # their bytes; a single larger message is delivered alone
CLOCK_STEPS_MAX = 64  # recorded clock changes while messages wait; beyond, two are merged
FAILURE_REASON_LENGTH_MAX = 500  # characters of the reason of a dead letter

# -- frames ---------------------------------------------------------------------------------------
FRAME_SIZE_BYTES_MAX = 16 * 1024 * 1024  # [RMQ] com.rocketmq.remoting.frameMaxLength
HEADER_SIZE_BYTES_MAX = 64 * 1024
ROOTS_PER_S_MAX = 10  # new traces: with their export they take a percent of a core
COPIED_SPANS_MAX = 256  # traced sends that not all replicas have: each acknowledgement checks all
REPLICATED_SPANS_MAX = 16  # of one chunk: thousands of messages, all written at once
RECEIVED_SPANS_MAX = 200_000  # kept by the collector of the demo and the tests: some hundred MB
SEND_CONTEXTS_MAX = 127  # additional traces of one frame; a span has at most 128 links
SEND_HEADER_SIZE_BYTES_MAX = HEADER_SIZE_BYTES_MAX + 6 * BATCH_MESSAGES_MAX  # queue and size each
REPLY_HEADER_SIZE_BYTES_MAX = HEADER_SIZE_BYTES_MAX + 32 * BATCH_MESSAGES_MAX  # duplicates
REMOTING_HEADER_SIZE_BYTES_MAX = 256 * 1024  # full properties, each byte written as \u00XX
FRAME_PARTS_MAX = 8
JSON_DEPTH_MAX = 8
JSON_FIELDS_MAX = 256
LENIENT_REQUEST_BYTES_MAX = 256 * 1024  # the lenient parser reads 2 MB/s; the broker waits for it
LENIENT_REPLY_BYTES_MAX = 8 * 1024 * 1024  # offsets of all queues of a topic, several times
JSON_NUMBER_LENGTH_MAX = 64  # no longer numbers are used, and parsing takes quadratic time
FRAME_RECORDS_MAX = 4_096  # records that Kourou's client puts into one frame
FRAME_RECORD_BYTES_MAX = 4 * 1024 * 1024  # bytes of these records; a larger record is sent alone

# -- requests -------------------------------------------------------------------------------------
PULL_MESSAGES_MAX = 16_384  # one bulk pull of Kourou's client
PULL_SIZE_BYTES_MAX = 4 * 1024 * 1024
QUERY_MESSAGES_MAX = 64  # [RMQ] maxMsgsNumBatch
QUEUE_LOOK_UNITS_MAX = 1_000  # units of a queue in one reply to an operator
HOLDS_MAX = 100_000  # long polls; beyond: POLLING_FULL
REPAIR_MS = 10_000  # how long a pull waits at a damaged record that another replica may repair
REPAIRS_MAX = 10_000  # of these remembered at once; more mean that the disk is lost
DEADLINE_MS_MAX = 120_000
TRACE_RECORDS_MAX = 2_048  # [RMQ] message traces that wait at a client; more are dropped
TRACE_MESSAGE_BYTES_MAX = 118_000  # [RMQ] one message of trace records: maxMessageSize - 10,000
TRACE_KEYS_BYTES_MAX = 16_384  # its keys; all properties together have 32,767
REQUESTS_WAITING_MAX = 65_536  # pending requests of a client; beyond: Throttled
CLIENT_QUESTIONS_MAX = 10_000  # pending requests of a broker to its clients; beyond: FLOW_CONTROL
OFFSET_MOVED_QUEUES_MAX = 16_384  # offset corrections recorded in a second; more are not
QUEUE_LOCK_MS = 60_000  # [RMQ] rocketmq.broker.rebalance.lockMaxLiveTime, without renewal
QUEUE_LOCKS_MAX = 262_144  # 16 groups consume the 10,000 queues of a machine in order, and more
QUEUE_LOCK_WAITERS_MAX = 64  # clients notified when a lock is free; others retry later
QUEUE_LOCKS_EVENT_ENTRIES_MAX = 8_192  # an event with more queue locks is split
RETRIED_KEYS_MAX = 1_000_000  # unique keys of retried sends that a broker remembers
CHECK_IMMUNITY_S_MAX = 7 * 24 * 3_600  # a half message that lasts longer outlives its log
UNCONFIRMED_ENDS_MAX = 1_000  # ends of transactions not waited for; beyond: the client waits
HALF_DRAFTS_BYTES_MAX = 16 * 1024 * 1024  # newest half messages in memory; older are read again
RESOLVED_REMEMBERED_MAX = 65_536  # resolved transactions known without reading the log
INBOX_INPUTS_MAX = 10_000  # [RMQ] sendThreadPoolQueueCapacity; beyond: SYSTEM_BUSY
UNPROJECTED_BYTES_MAX = 64 * 1024 * 1024  # appended, not yet projected; beyond: oldest dropped
UNPROJECTED_KEYS_MAX = 500_000  # decoded keys of these, to find duplicates; beyond: decoded again
FILTER_UNITS_MAX = 4_096  # units that one pull checks for its tags before it replies
FILTER_RECORDS_MAX = 1_024  # records that one pull checks for its SQL92 filter before it replies
FILTER_BYTES_MAX = 4 * 1024 * 1024  # bytes of these records: both limits are milliseconds of work
FILTER_CONDITIONS_MAX = 256  # of one SQL92 filter: all may be evaluated for every message
FILTER_TYPE_LENGTH_MAX = 32  # an unknown expression type is stored until it is needed
FILTER_DEPTH_MAX = 64  # its nesting, far below what Python's stack allows
FILTERS_REMEMBERED_MAX = 1_024  # cached SQL92 filters, compiled or refused
POLL_MESSAGES_MAX = 500  # messages of one poll
SKIP_BACKLOG_MAX = 1 << 40  # messages; no queue has more

# -- the control plane ----------------------------------------------------------------------------
TOPICS_MAX = 100_000  # of one broker; groups may create their retry topics beyond it
GROUPS_MAX = 50_000  # consumer groups of one broker: one reply of 16 MiB lists all
TOPIC_QUEUES_MAX = 16_384  # one topic may have all the 10,000 queues that a machine supports
SUBSCRIPTION_TAGS_MAX = 1_024
SUBSCRIPTION_EXPRESSION_LENGTH_MAX = 16_384
CLIENTS_MAX = 100_000  # registered clients of one broker; sockets run out before
CLIENT_GROUPS_MAX = 1_024  # groups in one heartbeat
CONNECTION_GROUPS_MAX = 4_096  # of all clients of one connection, which chooses their ids
MEMBERSHIPS_MAX = 1_000_000  # clients of one broker, each counted in each of its groups: 600 MB
HEARTBEAT_BYTES_MAX = 1 << 20  # its subscriptions are kept; 5,000 of usual length
LOCK_BYTES_MAX = 4 << 20  # of the queues that a client locks at a time
GROUP_SUBSCRIPTIONS_MAX = 1_024  # topics that one consumer subscribes to
ACTOR_LENGTH_MAX = 256  # the actor of a control event
REASON_LENGTH_MAX = 1_024  # the reason of a control event
TRACE_ID_LENGTH_MAX = 64  # 32 hexadecimal digits today
AGGREGATE_LENGTH_MAX = 256  # kind/name
HISTORY_EVENTS_MAX = 1_000  # events of one page of history
HISTORY_BYTES_MAX = 4 * 1024 * 1024  # of such a page; a single larger event is a page by itself
HISTORY_TYPES_MAX = 64  # types of events in one query
HISTORY_QUESTIONS_MAX = 64  # queries that wait for the event database; beyond: SYSTEM_BUSY
HISTORY_WAIT_MS_MAX = 5_000  # then METADATA_UNAVAILABLE; Kourou's tools wait 10 s
STATE_BYTES_MAX = 12 * 1024 * 1024  # one reply; a larger state is requested in parts
SETTING_LENGTH_MAX = 1_024
PROPERTIES_TEXT_BYTES_MAX = 256 * 1024  # settings in one request
UNREAD_SPANS_MAX = 1_000  # a deletion that affects more queues is recorded in several events
PROGRESS_EVENT_ENTRIES_MAX = 10_000  # a progress event with more is split
KEY_VALUE_LENGTH_MAX = 65_536  # one value of the name server's key/value settings
SETTING_NAME_LENGTH_MAX = 128
SETTINGS_FILE_BYTES_MAX = 1 << 20  # a properties file
PASSWORD_FILE_BYTES_MAX = 1_024  # a password on a line of its own
HEALTH_ANSWER_BYTES_MAX = 64 * 1024  # bytes of a page that `kourou health` reads
KEY_VALUE_WRITES_WAITING_MAX = 1_000  # writes that wait for a name server's disk
BROKERS_MAX = 4_096  # brokers one name server registers

# -- batch transactions -------------------------------------------------------------------------
BATCH_QUERY_LENGTH_MAX = 120  # a query's id; with the prefix batches/ it is an aggregate's name
BATCH_ATTEMPT_LENGTH_MAX = 64  # of a task at one partition
BATCH_PARTITIONS_MAX = 32_768  # of one batch: its winners are one event, below 4 MiB
BATCH_QUERIES_MAX = 10_000  # that a broker remembers; beyond, the least recently used are removed
BATCH_QUERIES_USER_MAX = 1_000  # of one user; beyond, its least recently used are removed
BATCH_NUMBER_MAX = 2**63 - 1  # of a batch within its query: a Java long
BATCH_PARTITION_MAX = 2**31 - 1  # of a partition within its batch: a Java int
BATCH_STEP_MESSAGES_MAX = 2_048  # half messages that one request resolves; others wait some 20 ms

# -- filters in Python ----------------------------------------------------------------------------
FILTER_SOURCE_BYTES_MAX = 65_536  # UTF-8 of one version
FILTER_BRACKET_DEPTH_MAX = 64  # parsing time may double with each level of brackets
FILTER_CHECKED_BYTES_MAX = 262_144  # sources checked at once: 64 KiB are up to 0.45 s of CPU
FILTER_CHECKED_BYTES_S = 16_384  # and so many of them a second, in the long run
FILTER_TREE_DEPTH_MAX = 200  # levels of its syntax tree, below what Python's stack allows
FILTER_NAME_LENGTH_MAX = 127  # long enough for full names of Java classes and filter/group/name
FILTERS_MAX = 256  # of a broker; one reply lists all
FILTERS_GROUP_MAX = 32  # of one consumer group, so that no group uses all
FILTER_VERSIONS_MAX = 16  # kept with their source; the oldest inactive ones are removed first
FILTER_SOURCES_BYTES_MAX = 16 * 1024 * 1024  # all sources of a broker: they stay in its memory
FILTER_AUTHOR_LENGTH_MAX = 128
FILTER_NOTE_LENGTH_MAX = 256
FILTER_REASON_LENGTH_MAX = 256  # why a version is in quarantine, or why a message is skipped
FILTER_NAMES_REMEMBERED_MAX = 4_096  # of deleted filters, whose version numbers are not reused
FILTER_SKIP_OFFSETS_MAX = 1_024  # messages that one request skips
FILTER_SKIPS_REMEMBERED_MAX = 1_024  # recent such requests: a repeated one is recorded once
FILTER_TRIED_MESSAGES_MAX = 1_024  # messages of one dry run
FILTER_TRIED_BYTES_MAX = 32 * 1024 * 1024  # their bytes, which wait in memory
FILTER_SERVERS_MAX = 64  # filter servers of one broker; two use two cores
FILTER_SERVER_LISTENERS_MAX = 16  # addresses of one of them, by protocol and listener
FILTER_SERVER_ADDRESS_LENGTH_MAX = 263  # a host name, a colon, a port

# -- peers ----------------------------------------------------------------------------------------
SOCKET_HWM_MESSAGES = 1_000  # never 0: an unlimited queue to a stuck peer exhausts the memory
PEER_QUEUE_BYTES_MAX = 64 * 1024 * 1024
PEER_SILENT_PROBES_MAX = 6  # one a second; a peer that answers none of them is gone
PEER_STUCK_MS_MAX = 5_000
PEERS_MAX = 16_384  # of one listener, out of 20,000 file descriptors; then silent ones make room
UNFINISHED_BYTES_MAX = 512 * 1024 * 1024  # of all incomplete TCP frames of a listener
PEER_FAULTS_MAX = 16  # undecodable frames from one peer, then it is disconnected
FRAMES_PER_TURN_MAX = 1_024  # a busy socket yields to the event loop after so many frames ...
FRAME_BYTES_PER_TURN_MAX = 16 * 1024 * 1024  # ... or so many bytes
LOG_VALUE_LENGTH_MAX = 4_096  # longer values are truncated: clients must not fill the disk
NAME_SERVERS_MAX = 64  # addresses that a client or broker uses
PORT_MAX = 65_535
NAME_SERVER_LIST_BYTES_MAX = 16_384  # the body of an address server's reply
HANDSHAKE_MS_MAX = 3_000  # a connection without a greeting is closed
TLS_HANDSHAKE_MS_MAX = 10_000  # a JVM that has just started takes some of them
HTTPS_HANDSHAKES_MAX = 256  # of an HTTP port, 0.2 s of work; beyond, the oldest one is ended
CURVE_KEYS_MAX = 10_000  # public keys in a folder: all are read when it has changed
CURVE_PAIRS_MAX = 1_000  # of a listener until a restart: each one keeps a listening socket
CURVE_FILE_BYTES_MAX = 1 << 20  # a file of keys; one key has 400 bytes
TLS_FILE_BYTES_MAX = 1 << 20  # a PEM file; all authorities of an operating system have 220 KiB

# -- the admin page ------------------------------------------------------------------------------
ADMIN_HEADER_S_MAX = 3.0  # seconds for a request's header; slower connections are closed
ADMIN_ANSWER_S_MAX = 10.0  # seconds for the reply
ADMIN_CONNECTIONS_MAX = 64  # more are closed at once
ADMIN_HEAD_BYTES_MAX = 16_384  # of a request: its first line and its headers, cookies among them
EXPORTER_MEMBERS_MAX = 256  # consumers queried for their rates by a scrape of the exporter's page
EXPORTER_MEMBERS_MS_MAX = 2_000  # consumers that do not reply in this time are left out

# -- the HTTP gateway ------------------------------------------------------------------------------
GATEWAY_CONNECTIONS_MAX = 1_024  # beyond, connections without a request are closed
GATEWAY_HEADER_S_MAX = 5.0  # seconds for a request's header; slower connections are closed
GATEWAY_BODY_S_MAX = 30.0  # seconds for a body of 4 MiB: a line of 1.2 Mbit/s
GATEWAY_STALL_S_MAX = 10.0  # seconds in which a client reads nothing of its reply
GATEWAY_ANSWER_S_MAX = 60.0  # seconds for a reply that is not a stream
GATEWAY_IDLE_S_MAX = 75.0  # seconds between two requests of a connection, as in nginx
GATEWAY_HEADERS_MAX = 100  # of one request, including a message's properties
GATEWAY_LINE_BYTES_MAX = 32_768  # a header line; a message's properties have 32 KiB in all
GATEWAY_JSON_BYTES_MAX = 1 << 20  # a JSON body of administration; a filter of 64 KiB, escaped
GATEWAY_BODIES_BYTES_MAX = 64 << 20  # bodies of all pending requests
GATEWAY_REQUESTS_MAX = 512  # pending requests, except those that wait by design
GATEWAY_QUERY_FIELDS_MAX = 100  # parameters of one request
GATEWAY_STREAMS_MAX = 256  # clients that wait or follow a stream; each has a connection and a file
GATEWAY_USER_STREAMS_MAX = 192  # of them of one user who signed in, with its API tokens
GATEWAY_TOKENS_MAX = 1_000  # of one file; each request is compared with all of them
GATEWAY_SIGN_IN_BYTES_MAX = 4_096  # of a sign-in's body: a user and a secret
GATEWAY_USERS_MAX = 64  # who use it within 15 minutes; each has connections and components
GATEWAY_USER_SENDERS_MAX = 32  # of them of one user: itself and its API tokens
GATEWAY_RIGHTS_MAX = 1_000  # of a user, remembered for 1 s
GATEWAY_SIGN_INS_MAX = 10_000  # remembered; beyond, the one that was not used for longest ends
GATEWAY_HASHES_AT_ONCE_MAX = 2  # of passwords, each with 19 MiB
GATEWAY_SIGN_INS_AT_ONCE_MAX = 32  # secrets that brokers are checking
GATEWAY_ATTEMPTS_MAX = 10_000  # wrong secrets, by user and by network
GATEWAY_REPEAT_KEYS_MAX = 20_000  # remembered Idempotency-Keys, of some 500 bytes each
GATEWAY_TRANSACTION_ID_LENGTH_MAX = 1_024  # a topic, a broker and two ids, in base64
GATEWAY_DECISIONS_MAX = 10_000  # transaction results that no broker has received yet
GATEWAY_PAGES_MAX = 500  # files of the web pages, kept in memory
GATEWAY_PAGE_BYTES_MAX = 4 << 20  # of one of them; the largest has some 100 KiB

# -- administration by the gateway -----------------------------------------------------------------
CONSOLE_LIST_ITEMS_MAX = 10_000  # rows of one reply; a browser draws no more
CONSOLE_SETTINGS_MAX = 64  # settings of one change
CONSOLE_DISCARDS_MAX = 1_000  # dead letters discarded at once; each is read before
CONSOLE_HISTORY_PAGES_MAX = 10  # pages of a broker that are read to find one kind of event
CONSOLE_PROBES_MAX = 1_000  # messages of one probe, one after the other
CONSOLE_PROBE_SIZE_BYTES_MAX = 1 << 20  # of one of them
CONSOLE_PROBE_BYTES_MAX = 64 << 20  # of all of them
CONSOLE_SHARE_MEMBERS_MAX = 1_000  # members in a preview of queue allocation
CONSOLE_COUNTED_TOPICS_MAX = 200  # topics whose counters are shown at once; each needs requests
CONSOLE_SERIES_MAX = 64  # lines of one chart
CONSOLE_SAMPLES_MAX = 1_500_000  # numbers of the last hour that are kept: 12 MB
CONSOLE_ROUNDS_MAX = 3_600  # rounds of samples that are kept: an hour of seconds
CONSOLE_SPARK_BYTES_MAX = 8 << 20  # a reply of spark-etl

# -- leases of the gateway ------------------------------------------------------------------------
LEASES_PER_RECEIVE_MAX = 256  # messages of one reply
RECEIVE_BYTES_MAX = 4 * 1024 * 1024  # of bodies, as stored and as shown; a larger one is alone
RECEIVE_WAIT_MS_MAX = 30_000  # half of the time limit of a reply
RECEIVES_WAITING_MAX = 256  # of one group; each is a connection
LEASE_MS_MIN = 1_000  # shorter leases expire before the reply arrives
LEASE_MS_MAX = 12 * 3_600_000  # 12 hours; a client that is silent for longer is gone
LEASE_EXPIRIES_MAX = 16  # then the message becomes a dead letter, as after 16 retries
LEASE_SETTLE_MAX = 1_024  # leases acknowledged in one request
LEASE_GROUPS_MAX = 64  # groups of which one gateway is a member
LEASE_TOPICS_MAX = 64  # topics of all of them: each may keep 8 MiB of messages
LEASES_ENDED_REMEMBERED_MAX = 16_384  # so that a repeated ack gets the same reply
LEASE_REASON_LENGTH_MAX = FAILURE_REASON_LENGTH_MAX  # why a message is returned
REDRIVE_DEAD_LETTERS_MAX = 10_000  # of one job: each has an outcome that is stored
REDRIVE_BYTES_MAX = 64 << 20  # dead letters of one job, which wait in memory to be sent
REDRIVES_KEPT_MAX = 32  # jobs whose outcomes are stored
REDRIVES_AT_ONCE_MAX = 4  # jobs that run
REDRIVE_RATE_MAX = 1_000  # dead letters a second: consumers get them all at once
DEAD_LETTERS_READ_MAX = 2_000  # for the causes in one reply
WAITING_READ_MAX = 2_000  # delayed or half messages of one queue that are read for one reply
LEASE_TOPIC_MESSAGES_MAX = 4_096  # of a topic, pulled and not acknowledged; then its pulls pause
LEASE_TOPIC_MIB_MAX = 8  # the same in MiB; at least one for each queue
LEASE_SPAN_MAX = 8_192  # offsets between the oldest unacknowledged one and the newest
MESSAGES_PER_PAGE_MAX = 200  # of one HTTP reply, to limit its size
MESSAGES_PAGE_BYTES_MAX = 8 << 20  # of them, as stored and as shown; a single larger one is alone
OUTCOMES_PER_PAGE_MAX = 1_000  # of dead letters of a redelivery
TOPICS_SEARCHED_MAX = 64  # for an id without a topic
PLACES_LENGTH_MAX = 16_384  # of a cursor; that of a thousand queues has a fifth of it
TAIL_QUEUES_MAX = 512  # of a topic that is followed
TAILS_MAX = 64  # clients that follow topics: each has a pull at every queue

# -- the Spark service ---------------------------------------------------------------------------
JOB_FILE_BYTES_MAX = 1 << 20  # a job file is written by hand
JOB_QUERIES_MAX = 64  # each is a thread and a stream of one driver
READ_MODEL_ROWS_MAX = 1_000_000  # written by one batch: they pass through the driver
READ_MODEL_PAGE_ROWS_MAX = 1_000  # of a table in one HTTP answer
READ_MODEL_TEXT_LENGTH_MAX = 512  # of a text in a table's key; the rest is truncated

# -- replication ---------------------------------------------------------------------------------
EPOCHS_SENT_MAX = 64  # pairs in one message; two histories are compared from their newest ends back
MEMBER_NAME_LENGTH_MAX = 64  # every chunk has a replica's name
MEMBERS_MAX = 7  # of a Raft group: more replicas make a majority slower
CHUNK_BYTES_MAX = 1024 * 1024  # log bytes in one message
CHUNK_WINDOW_BYTES_MAX = 8 * 1024 * 1024  # sent to one follower and not yet written there
CATCH_UP_BYTES_MIN = 64 * 1024 * 1024  # a replica with a larger lag fetches from any other replica
FETCH_BYTES_MAX = 8 * 1024 * 1024  # one reply to a fetch; half a frame
LOG_BEGINNING_BYTES_MAX = OWN_FILE_BYTES_MAX - 4_096  # kept in one of Kourou's files until used
FOLLOWERS_MAX = 16  # static followers of one leader, which sends all its writes to each
DAMAGE_LENGTH_MAX = 256  # why a region of a log cannot be read
DIVERGED_FILES_MAX = 16  # truncated tails of the log, kept for the operator
DIVERGED_BYTES_MAX = 256 * 1024 * 1024  # all of them together: a quarter of a segment
MEMBER_PIPE_MESSAGES_MAX = 32  # that wait for the socket of one replica; it does not limit bytes
MEMBER_QUEUE_BYTES_MAX = CHUNK_WINDOW_BYTES_MAX  # to one replica, behind those; more is dropped
FORWARDED_BYTES_MAX = 64 * 1024 * 1024  # of clients' requests that wait for the leader's reply
HELD_MESSAGES_MAX = 1_024  # of one replica, while its vote is written: later ones are dropped

# Relations between the limits above, which must always hold.
assert TOPIC_LENGTH_MAX <= 127
assert len("%RETRY%") + GROUP_LENGTH_MAX <= TOPIC_LENGTH_MAX
assert PROPERTIES_SIZE_BYTES_MAX <= 2**15 - 1
assert BODY_SIZE_BYTES_MAX + RECORD_OVERHEAD_BYTES_MAX < FRAME_SIZE_BYTES_MAX
assert BODY_SIZE_BYTES_MAX + RECORD_OVERHEAD_BYTES_MAX < SEGMENT_SIZE_BYTES
assert FETCH_BYTES_MAX + HEADER_SIZE_BYTES_MAX < FRAME_SIZE_BYTES_MAX
assert BODY_SIZE_BYTES_MAX + RECORD_OVERHEAD_BYTES_MAX <= FETCH_BYTES_MAX
assert PULL_SIZE_BYTES_MAX < FRAME_SIZE_BYTES_MAX
assert HISTORY_BYTES_MAX < FRAME_SIZE_BYTES_MAX
assert STATE_BYTES_MAX + HEADER_SIZE_BYTES_MAX < FRAME_SIZE_BYTES_MAX
assert RECORD_OVERHEAD_BYTES_MAX >= (
    RECORD_FIXED_BYTES + 24 + TOPIC_LENGTH_MAX + PROPERTIES_SIZE_BYTES_MAX
)
assert PROGRESS_EVENT_ENTRIES_MAX * (TOPIC_LENGTH_MAX + 64) < BODY_SIZE_BYTES_MAX
assert QUEUE_LOCKS_EVENT_ENTRIES_MAX * (TOPIC_LENGTH_MAX + 320) < BODY_SIZE_BYTES_MAX
assert TOPIC_QUEUES_MAX * 256 <= LOCK_BYTES_MAX  # a consumer locks all queues of a topic at once
assert TOPIC_QUEUES_MAX * 2 * 64 < BODY_SIZE_BYTES_MAX  # a reset names each queue twice
assert len("quota/topic/") + TOPIC_LENGTH_MAX <= AGGREGATE_LENGTH_MAX
assert len("filter//") + GROUP_LENGTH_MAX + FILTER_NAME_LENGTH_MAX <= AGGREGATE_LENGTH_MAX
# A deleted filter is stored whole in its event; JSON may double its sources.
assert 2 * FILTER_VERSIONS_MAX * FILTER_SOURCE_BYTES_MAX + 131_072 < BODY_SIZE_BYTES_MAX
assert 2 * FILTER_SOURCES_BYTES_MAX + STATE_BYTES_MAX < OWN_FILE_BYTES_MAX
assert (  # every filter with its versions, in one reply
    FILTERS_MAX * 500
    + FILTERS_MAX
    * FILTER_VERSIONS_MAX
    * (4 * (FILTER_AUTHOR_LENGTH_MAX + FILTER_NOTE_LENGTH_MAX + FILTER_REASON_LENGTH_MAX) + 250)
) < STATE_BYTES_MAX

# -- explaining a message -------------------------------------------------------------------------
EXPLAIN_TOPICS_MAX = 256  # topics searched for an id without a topic; beyond: name the topic
EXPLAIN_GROUPS_MAX = 32  # groups that are explained; each needs a dozen requests
EXPLAIN_MEMBERS_MAX = 16  # consumers of a group that are queried for their status
EXPLAIN_QUESTIONS_MAX = 16  # concurrent requests for one explanation
EXPLAIN_OP_RECORDS_MAX = 4_096  # op records that are read to find one
EXPLAIN_ASKED_LENGTH_MAX = 1_024  # an id, a queue and offset, a key

# -- the Spark source -----------------------------------------------------------------------------
SPARK_PULL_WINDOW_MAX = 16  # concurrent pulls of one task: 64 MiB of replies
SPARK_PARTITIONS_MAX = 100_000  # of one batch; Spark's driver keeps a few KB for each
SPARK_READ_TIMEOUT_MS_MAX = 3_600_000  # a longer wait is useless

# -- access control -------------------------------------------------------------------------------
USER_NAME_LENGTH_MAX = 64
SECRET_LENGTH_MIN = 7  # characters; RocketMQ wants more than 6
SECRET_LENGTH_MAX = 256
PASSWORD_LENGTH_MIN = 12  # characters
PASSWORD_LENGTH_MAX = 256
SUBJECT_LENGTH_MAX = 1_024  # characters of a certificate's subject that belongs to a user
USERS_MAX = 10_000  # of one broker
POLICIES_MAX = 100_000
API_TOKENS_MAX = 10_000  # of all users of one broker
API_TOKENS_USER_MAX = 100  # of one user
API_TOKENS_DROPPED_MAX = 100  # expired ones, each time that another one is created
API_TOKEN_ID_LENGTH = 12  # characters: the beginning of the token's SHA-256
API_TOKEN_DAYS_MAX = 366  # until a token expires
OWN_CHANGES_HOUR_MAX = 20  # passwords and tokens that a user gives itself; each is in the log
USERS_BODY_BYTES_MAX = 64 << 20  # all of them in JSON; compressed they are sent to name servers
ACL_BYTES_MAX = 1 << 20  # of a file with users to import; such files have some kilobytes
ACL_DEPTH_MAX = 8  # the deepest values are the actions of an entry of a policy of an ACL
ACL_FILES_MAX = 1_000  # files and folders in a folder with users to import
ACL_FOLDERS_DEPTH_MAX = 8  # of folders in it; a link to a folder above has no end
POLICY_NETWORKS_MAX = 64  # of one policy; a request is compared with each once
ACCESS_USES_MAX = 10_000  # kinds of decided requests that are counted one by one in a day
ACCESS_USES_USER_MAX = 1_000  # of them of one user, and of all clients without credentials
ACCESS_USES_RIGHTS_MAX = 32  # of one kind; requests that need more are counted by user
ACCESS_USES_DAYS = 8  # of which their counts are kept: today, and seven days before
ACCESS_USES_TRIED_MAX = 1_000  # kinds in one reply, the most frequent first
POLICY_CHANGES_MAX = 1_000  # that are tried together
ACCESS_REFUSALS_MAX = 10_000  # kinds of refusals that are counted one by one; beyond: together
AUDIT_TEXT_LENGTH_MAX = 255  # why a request is refused; some reasons quote the request
AUDIT_FILE_BYTES_MAX = 64 << 20
AUDIT_FILES_MAX = 16  # of allowed changes, and as many of refusals
AUDIT_READ_LINES_MAX = 1_000  # lines of one reply
AUDIT_READ_BYTES_MAX = 8 << 20  # of the files that one request searches; the next goes on there
AUDIT_LINES_MAX = 1_000  # a minute for each decision; beyond, requests are counted by kind
AUDIT_USER_LINES_MAX = 100  # of them for the allowed changes of one user
AUDIT_USER_KINDS_MAX = 200  # of a user's changes a minute; beyond: counted without their names
AUDIT_NAME_BYTES_MAX = 128  # in JSON, of a name in a line that counts requests
REPORTED_REFUSALS_MAX = 1_000  # kinds in one report of a console or a filter server
REPORTED_COUNT_MAX = 10**9  # requests of one kind in it
ACCESS_DECISIONS_MAX = 100_000  # decisions, and sources, that are remembered; beyond: forgotten
QUOTAS_MAX = 10_000  # of one broker
QUOTA_LIMIT_MAX = 10**15  # a larger limit limits nothing
QUOTA_BURST_MS = 1_000  # of its quota, as time, that a key may use at once
QUOTA_DEBT_MS_MAX = 1_000  # that a key may owe beyond: its requests wait, above they are refused
QUOTA_CONNECTION_RETRY_MS = 1_000  # told to who has too many connections
QUOTA_HELD_MAX = 10_000  # requests and replies that wait for a quota; beyond, they do not wait
QUOTA_DEBTS_MIN = 1_024  # debts that are kept before those that are paid are looked for
