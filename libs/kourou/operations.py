"""The catalogue of operator verbs: name, subject, required right, and the commands that perform it.

A verb is one thing that an operator, or a program on an operator's behalf, can do to a cluster. Its
name is also the name of its HTTP operation (`operationId`), if it has one. A command performs
one or more verbs, for example `updateOrderConf` with `-m get`, `put` or `delete`; most commands
have the names of RocketMQ's mqadmin. Other commands have a word and, if several belong together, a
group before it, which `kourou.cli.admin.command` has to know: `filter list`.

Others derive from the catalogue, or are checked against it:

- `kourou.cli.admin.command` accepts only commands that are listed here.
- `kourou_console` derives from it the right that each HTTP operation requires.
- Tests compare it with all commands, all HTTP operations, and the page docs/http-admin.md.

A broker decides requests, not verbs, and by finer rights: `kourou.access.requirements`. The rights
here are those of the HTTP API's tokens. A caller that has a right has those below it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum


class Right(IntEnum):
    """What a caller may do; each right includes those before it."""

    READ = 1  # read everything, including bodies
    WRITE = 2  # produce and consume
    ADMIN = 3  # change topics, groups, offsets, settings, filters


class Subject(Enum):
    """What a verb is about."""

    GATEWAY = "gateway"
    MESSAGES = "messages"
    LEASES = "leases"
    DEAD_LETTERS = "dead letters"
    CLUSTER = "cluster"
    BROKERS = "brokers"
    TOPICS = "topics"
    GROUPS = "groups"
    OFFSETS = "offsets"
    FILTERS = "filters"
    HISTORY = "history"
    NAME_SERVERS = "name servers"
    SPARK = "spark"
    QUOTAS = "quotas"
    USERS = "users"


@dataclass(frozen=True, slots=True)
class OperatorVerb:
    """One verb. `commands`: the commands of `kourou admin`, `user` or `quota` that perform it.

    A verb without `over_http` is not an operation of the HTTP API.
    """

    name: str
    subject: Subject
    right: Right
    commands: tuple[str, ...] = ()
    over_http: bool = True


def _read(subject: Subject, name: str, *commands: str) -> OperatorVerb:
    return OperatorVerb(name, subject, Right.READ, commands)


def _write(subject: Subject, name: str, *commands: str) -> OperatorVerb:
    return OperatorVerb(name, subject, Right.WRITE, commands)


def _admin(subject: Subject, name: str, *commands: str) -> OperatorVerb:
    return OperatorVerb(name, subject, Right.ADMIN, commands)


def _user(name: str, command: str) -> OperatorVerb:
    """A verb about users that only the command line has; reads need ADMIN as well."""
    return OperatorVerb(name, Subject.USERS, Right.ADMIN, (f"user {command}",), over_http=False)


def _own(name: str, command: str) -> OperatorVerb:
    """A verb of a user about itself, which needs no right; only the command line has it."""
    return OperatorVerb(name, Subject.USERS, Right.READ, (f"user {command}",), over_http=False)


CATALOGUE: tuple[OperatorVerb, ...] = (
    _read(Subject.GATEWAY, "who_am_i"),
    # -- messages ---------------------------------------------------------------------------------
    _write(Subject.MESSAGES, "send_message", "sendMessage"),
    _write(Subject.MESSAGES, "send_batch"),
    _write(Subject.MESSAGES, "begin_transaction"),
    _write(Subject.MESSAGES, "commit_transaction"),
    _write(Subject.MESSAGES, "roll_back_transaction"),
    _read(Subject.MESSAGES, "find_messages", "queryMsgByKey", "printMsg"),
    _read(Subject.MESSAGES, "get_message", "queryMsgById", "queryMsgByUniqueKey"),
    _admin(Subject.MESSAGES, "consume_directly", "queryMsgById", "queryMsgByUniqueKey"),
    _read(Subject.MESSAGES, "get_message_body"),
    _read(Subject.MESSAGES, "get_message_trace", "queryMsgTraceById"),
    _read(Subject.MESSAGES, "explain_message", "messageTrack", "why"),
    _read(Subject.MESSAGES, "tail_topic", "consumeMessage"),
    _read(
        Subject.MESSAGES,
        "browse_queue",
        *("queryMsgByOffset", "printMsg", "printMsgByQueue", "consumeMessage"),
    ),
    _read(Subject.MESSAGES, "queue_units", "queryCq"),
    _read(Subject.MESSAGES, "list_delayed"),
    _read(Subject.MESSAGES, "list_transactions"),
    # -- consuming by leases ----------------------------------------------------------------------
    _write(Subject.LEASES, "receive_messages"),
    _write(Subject.LEASES, "ack_lease"),
    _write(Subject.LEASES, "ack_leases"),
    _write(Subject.LEASES, "extend_lease"),
    _write(Subject.LEASES, "retry_lease"),
    _write(Subject.LEASES, "dead_letter_lease"),
    _write(Subject.LEASES, "leave_group"),
    _read(Subject.LEASES, "list_lease_groups"),
    # -- dead letters -----------------------------------------------------------------------------
    _read(Subject.DEAD_LETTERS, "list_dead_letters", "deadLetters"),
    _read(Subject.DEAD_LETTERS, "list_dead_letter_groups", "deadLetters"),
    _read(Subject.DEAD_LETTERS, "export_dead_letters"),
    _admin(Subject.DEAD_LETTERS, "begin_redrive", "resendDeadLetters"),
    _admin(Subject.DEAD_LETTERS, "stop_redrive"),
    _read(Subject.DEAD_LETTERS, "list_redrives"),
    _read(Subject.DEAD_LETTERS, "get_redrive"),
    _admin(Subject.DEAD_LETTERS, "discard_dead_letters", "discardDeadLetters"),
    # -- topics -----------------------------------------------------------------------------------
    _read(Subject.TOPICS, "topics", "topicList"),
    _read(Subject.TOPICS, "topic", "topicClusterList"),
    _read(Subject.TOPICS, "topic_config"),
    _read(Subject.TOPICS, "topic_route", "topicRoute"),
    _read(Subject.TOPICS, "topic_status", "topicStatus"),
    _read(Subject.TOPICS, "topic_groups"),
    _read(Subject.TOPICS, "topic_allocation", "allocateMQ"),
    _read(Subject.TOPICS, "topic_counters", "statsAll"),
    _admin(Subject.TOPICS, "put_topic", "updateTopic"),
    _admin(Subject.TOPICS, "put_topic_permission", "updateTopicPerm"),
    _admin(Subject.TOPICS, "delete_topic", "deleteTopic"),
    _read(Subject.TOPICS, "topic_order", "updateOrderConf"),
    _admin(Subject.TOPICS, "put_topic_order", "updateOrderConf"),
    _admin(Subject.TOPICS, "delete_topic_order", "updateOrderConf"),
    # -- groups, their consumers and offsets ------------------------------------------------------
    _read(Subject.OFFSETS, "group_lag", "consumerProgress"),
    _read(Subject.GROUPS, "groups", "subGroupList", "consumerProgress"),
    _read(Subject.GROUPS, "group", "getConsumerConfig"),
    _admin(Subject.GROUPS, "put_group", "updateSubGroup"),
    _admin(Subject.GROUPS, "delete_group", "deleteSubGroup"),
    _read(Subject.GROUPS, "group_members", "consumerConnection"),
    _read(Subject.GROUPS, "member_running", "consumerStatus"),
    _read(Subject.GROUPS, "producers", "producer"),
    _read(Subject.GROUPS, "producers_of_group", "producerConnection"),
    _read(Subject.CLUSTER, "alarms", "startMonitoring"),
    _read(Subject.GROUPS, "group_subscriptions", "consumerStatus", "startMonitoring"),
    _admin(Subject.OFFSETS, "reset_offsets", "resetOffsetByTime"),
    _admin(Subject.OFFSETS, "skip_accumulation", "skipAccumulatedMessage"),
    _admin(Subject.OFFSETS, "clone_offsets", "cloneGroupOffset"),
    # -- cluster and brokers ----------------------------------------------------------------------
    _read(Subject.CLUSTER, "overview"),
    _read(Subject.CLUSTER, "series"),
    _read(Subject.CLUSTER, "cluster", "clusterList"),
    _admin(Subject.CLUSTER, "probe", "sendMsgStatus", "checkMsgSendRT", "clusterRT"),
    _read(Subject.CLUSTER, "export_metadata", "exportMetadata"),
    _read(Subject.CLUSTER, "export_configs", "exportConfigs"),
    _read(Subject.CLUSTER, "export_metrics", "exportMetrics"),
    _read(Subject.BROKERS, "brokers"),
    _read(Subject.BROKERS, "broker"),
    _read(Subject.BROKERS, "broker_runtime", "brokerStatus"),
    _read(Subject.BROKERS, "broker_progress", "brokerConsumeStats"),
    _read(Subject.BROKERS, "broker_counter"),
    _read(Subject.BROKERS, "broker_config", "getBrokerConfig"),
    _admin(Subject.BROKERS, "update_broker_config", "updateBrokerConfig"),
    _admin(Subject.BROKERS, "broker_write_permission", "wipeWritePerm", "addWritePerm"),
    _admin(
        Subject.BROKERS,
        "clean_broker",
        *("deleteExpiredCommitLog", "cleanExpiredCQ", "cleanUnusedTopic"),
    ),
    _read(Subject.BROKERS, "broker_replicas", "replicas"),
    _admin(Subject.BROKERS, "promote", "promote"),
    _admin(Subject.BROKERS, "transfer_leader", "transfer-leader"),
    # -- filters ----------------------------------------------------------------------------------
    _read(Subject.FILTERS, "filters", "filter list"),
    _read(Subject.FILTERS, "filter", "filter show"),
    _read(Subject.FILTERS, "filter_source", "filter show"),
    _read(Subject.FILTERS, "filter_statistics", "filter stats"),
    _admin(Subject.FILTERS, "put_filter", "filter put"),
    _admin(Subject.FILTERS, "enable_filter", "filter enable"),
    _admin(Subject.FILTERS, "disable_filter", "filter disable"),
    _admin(Subject.FILTERS, "roll_back_filter", "filter rollback"),
    _admin(Subject.FILTERS, "set_filter_policy", "filter policy"),
    _admin(Subject.FILTERS, "delete_filter", "filter delete"),
    _admin(Subject.FILTERS, "try_filter", "filter try"),
    # -- history, name servers, Spark -------------------------------------------------------------
    _read(Subject.HISTORY, "history"),
    _read(Subject.HISTORY, "state_at"),
    _read(Subject.HISTORY, "broker_history"),
    _admin(Subject.HISTORY, "undo"),
    _admin(Subject.HISTORY, "broker_undo"),
    _read(Subject.NAME_SERVERS, "name_servers", "getNamesrvConfig"),
    _read(Subject.NAME_SERVERS, "name_server_values", "getKvConfig"),
    _admin(Subject.NAME_SERVERS, "update_name_servers", "updateNamesrvConfig"),
    _admin(Subject.NAME_SERVERS, "put_name_server_value", "updateKvConfig"),
    _admin(Subject.NAME_SERVERS, "delete_name_server_value", "deleteKvConfig"),
    _read(Subject.SPARK, "spark"),
    _read(Subject.SPARK, "spark_tables"),
    _read(Subject.SPARK, "spark_rows"),
    # -- quotas -----------------------------------------------------------------------------------
    _read(Subject.QUOTAS, "quotas", "quota list"),
    _admin(Subject.QUOTAS, "put_quota", "quota set"),
    _admin(Subject.QUOTAS, "delete_quota", "quota remove"),
    # -- users ------------------------------------------------------------------------------------
    _user("create_user", "create"),
    _user("change_user", "set"),
    _user("delete_user", "delete"),
    _user("users", "list"),
    _user("user", "show"),
    _user("allow_user", "allow"),
    _user("deny_user", "deny"),
    _user("revoke_policies", "revoke"),
    _user("create_token", "token create"),
    _user("tokens", "token list"),
    _user("revoke_token", "token revoke"),
    _own("set_own_password", "password"),
    _own("create_own_token", "token create"),
    _own("own_tokens", "token list"),
    _own("revoke_own_token", "token revoke"),
    _user("set_access_mode", "mode"),
    _user("access_status", "status"),
    _admin(Subject.USERS, "audit", "user audit"),
    _admin(Subject.USERS, "export_audit", "user audit"),
    _user("propose_policies", "observe"),
    _admin(Subject.USERS, "try_policies", "user try"),
    _user("explain_access", "why"),
    _user("import_users", "import"),
)
"""All verbs. A command's verbs are in the order in which docs/http-admin.md lists them."""

_BY_NAME: Mapping[str, OperatorVerb] = {one.name: one for one in CATALOGUE}
COMMANDS: frozenset[str] = frozenset(name for one in CATALOGUE for name in one.commands)
"""The names of all commands; `filter list` is `kourou admin filter list`, `user list` is
`kourou user list`, `user token list` `kourou user token list`, `quota list` `kourou quota list`,
all others are of `kourou admin`."""


def right_of(name: str) -> Right:
    """The right that a verb requires; ADMIN if the catalogue has no such verb."""
    verb = _BY_NAME.get(name)
    return Right.ADMIN if verb is None else verb.right


def verbs_of(command: str) -> tuple[OperatorVerb, ...]:
    """The verbs that a command performs; empty for an unknown command."""
    return tuple(one for one in CATALOGUE if command in one.commands)
