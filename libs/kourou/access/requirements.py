"""What each request needs: one row for each request of kourou.protocol.table, by its name.

A request without a row must not be handled. Where the needs depend on more than the request's
fields, such as the topic of a half message, the process that decides supplies it as Facts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Protocol

from kourou.access.model import ALL, Action, AnyOf, Need, ResourceType
from kourou.model.names import (
    AUTO_CREATE_TOPIC,
    CONTROL_TOPIC,
    DLQ_PREFIX,
    NOT_FOR_CLIENTS,
    ORDER_NAMESPACE,
    RETRY_PREFIX,
    TRACE_TOPIC,
)

PUB, SUB = Action.PUB, Action.SUB
CREATE, UPDATE, DELETE = Action.CREATE, Action.UPDATE, Action.DELETE
GET, LIST = Action.GET, Action.LIST

INTERNAL_NAMESPACE = "KOUROU_"
"""Namespaces of the name servers' values that belong to Kourou itself."""


Needs = list[Need | AnyOf]


class CallerKind(StrEnum):
    """Who may send a request at all."""

    USER = "user"
    """A user who meets its needs; without needs every user with credentials."""
    NODE = "node"
    """Only the process that the request names, with its own credential."""
    CONSOLE = "console"
    """Only a console of the user whom the request names."""
    REPORTER = "reporter"
    """Only a console, or a node of this cluster: what it refused itself is for the audit."""
    SELF = "self"
    """A user about itself, without any right; the process that decides has identified it, so
    neither a console on its behalf nor a token sends it."""
    SERVER = "server"
    """Only a server, over a connection that the client opened: servers refuse it."""


class Facts(Protocol):
    """What a process knows about a request besides its fields."""

    def has_credentials(self) -> bool:
        """True unless the sender is anonymous."""

    def exists(self, kind: ResourceType, name: str) -> bool:
        """True if the topic, group or filter exists here. A filter's name is GROUP/NAME."""

    def reply_topic(self) -> str:
        """The topic for replies of this cluster."""

    def began(self, query: str) -> bool | None:
        """Whether the sender prepared the first batch of a query; None if that is not known."""

    def record_topic(self) -> str:
        """The topic of the message that the request names by position or id; "" if unknown."""

    def groups(self) -> Iterable[str]:
        """The consumer groups in the body."""

    def topics(self) -> Iterable[str]:
        """The topics in the body, and those of records in it."""

    def has_body(self) -> bool:
        """True if the body is not empty."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """The needs of a request.

    `text` describes them for people. Needs on users are enforced even if other decisions are off or
    observed, as long as there are users: in the meantime no user becomes an administrator, and
    no client copies credentials.
    `anonymous`: without needs it is also for clients without credentials, if a policy is about
    them. Such a request must neither change nor tell anything that they have no right to.
    `by_consoles`: consoles may send it on behalf of users although it is about users; it must not
    change them.
    A request of a user about itself has needs on User "", its sender: no right, but what it does.
    """

    text: str
    needs: Callable[[Any, Facts], Needs]
    caller: CallerKind = CallerKind.USER
    anonymous: bool = False
    by_consoles: bool = False


def need_of_topic(name: str, *actions: Action) -> Need | AnyOf:
    """The need for a topic by its name. A group's retry topic belongs to the group.

    A dead-letter topic may be used by whom the group belongs to, or who has the right to that topic
    by name, unless one of the two is denied. A topic of the broker itself has messages of all
    topics, so it needs the right to all; the one with its decisions has users, too.
    """
    if name == CONTROL_TOPIC:
        return Need(ResourceType.USER, ALL, (GET,))
    if name in NOT_FOR_CLIENTS:
        return Need(ResourceType.TOPIC, ALL, actions)
    if name.startswith(RETRY_PREFIX):
        needed = tuple(dict.fromkeys(_of_group(actions)))
        return Need(ResourceType.GROUP, name.removeprefix(RETRY_PREFIX), needed)
    topic = Need(ResourceType.TOPIC, name, actions)
    if name.startswith(DLQ_PREFIX):
        group = Need(ResourceType.GROUP, name.removeprefix(DLQ_PREFIX), _of_group(actions))
        return AnyOf((group, topic))
    return topic


def _of_group(actions: tuple[Action, ...]) -> tuple[Action, ...]:
    """One by one: a group has no Pub, and its members, who have Sub, write to its retry topic."""
    return tuple(SUB if action is PUB else action for action in actions)


# -- the parts that rows are made of --------------------------------------------------------------


def topic(*actions: Action, field: str = "topic") -> Requirement:
    """Rights on the topic that a field names."""

    def needs(request: Any, _: Facts) -> Needs:
        name = getattr(request, field)
        return [need_of_topic(name, *actions)] if name else []

    return Requirement(f"{_either(actions)} on Topic `{field}`", needs)


def group(*actions: Action, field: str = "consumer_group") -> Requirement:
    """Rights on the group that a field names."""

    def needs(request: Any, _: Facts) -> Needs:
        return [Need(ResourceType.GROUP, getattr(request, field), actions)]

    return Requirement(f"{_either(actions)} on Group `{field}`", needs)


def cluster(*actions: Action) -> Requirement:
    """Rights on the cluster."""
    return Requirement(
        f"{_either(actions)} on the cluster", lambda *_: [Need(ResourceType.CLUSTER, "", actions)]
    )


def users(*actions: Action, field: str = "username") -> Requirement:
    """Rights on users; only administrators and those with policies about users have them."""

    def needs(request: Any, _: Facts) -> Needs:
        name = (getattr(request, field, "") or "").removeprefix("User:")
        return [Need(ResourceType.USER, name, actions)]

    return Requirement(f"{_either(actions)} on User", needs)


def oneself(*actions: Action) -> Requirement:
    """Actions of a user on itself, for which no right is needed."""
    return Requirement(
        "the user itself, but not through a console",
        lambda *_: [Need(ResourceType.USER, "", actions)],
        CallerKind.SELF,
    )


def filter_of(*actions: Action) -> Requirement:
    """Rights on a group's filter."""

    def needs(request: Any, _: Facts) -> Needs:
        return [Need(ResourceType.FILTER, f"{request.consumer_group}/{request.name}", actions)]

    return Requirement(f"{_either(actions)} on Filter `consumer_group/name`", needs)


def create_or_update(kind: ResourceType, name: Callable[[Any, Facts], str]) -> Requirement:
    """Create if it does not exist here, else Update."""

    def needs(request: Any, facts: Facts) -> Needs:
        which = name(request, facts)
        action = UPDATE if facts.exists(kind, which) else CREATE
        of_topic = kind is ResourceType.TOPIC
        return [need_of_topic(which, action) if of_topic else Need(kind, which, (action,))]

    return Requirement(f"Create or, if it exists, Update on {kind}", needs)


def record(*actions: Action) -> Requirement:
    """Rights on the topic of the message that the request names; on all topics if it is unknown."""

    def needs(_: Any, facts: Facts) -> Needs:
        name = facts.record_topic()
        return [need_of_topic(name, *actions) if name else Need(ResourceType.TOPIC, ALL, actions)]

    return Requirement(f"{_either(actions)} on the message's topic", needs)


def body_groups(*actions: Action) -> Requirement:
    """Rights on every group in the body."""
    return Requirement(
        f"{_either(actions)} on every group in the body",
        lambda _, facts: [
            Need(ResourceType.GROUP, one, actions) for one in dict.fromkeys(facts.groups())
        ],
    )


def body_topics(*actions: Action) -> Requirement:
    """Rights on every topic in the body."""
    return Requirement(
        f"{_either(actions)} on every topic in the body",
        lambda _, facts: [need_of_topic(one, *actions) for one in dict.fromkeys(facts.topics())],
    )


def own_query(action: Action, *, known: bool = False) -> Requirement:
    """Nothing for a query whose first batch the sender prepared; else a right on the cluster.

    Where none is known to be prepared, it is needed only with `known`. To change such a query needs
    more, which the handler decides: an earlier request of the same batch may prepare it.
    """

    def needs(request: Any, facts: Facts) -> Needs:
        began = facts.began(request.query)
        own = not known if began is None else began
        return [] if own else [Need(ResourceType.CLUSTER, "", (action,))]

    whose = "of its own query" if known else "of a query that no other user began"
    if action is UPDATE and not known:
        whose += " (without a user, with Pub on its first message's topic)"
    return Requirement(f"any user, {whose}; else {action} on the cluster", needs, anonymous=True)


def all_of(*parts: Requirement) -> Requirement:
    """Everything that the parts need."""
    return Requirement(
        "; ".join(one.text for one in parts),
        lambda request, facts: [need for one in parts for need in one.needs(request, facts)],
        anonymous=any(one.anonymous for one in parts),
    )


def _nothing(*_: Any) -> Needs:
    return []


def _either(actions: tuple[Action, ...]) -> str:
    return " or ".join(actions)


ANY = Requirement("any user", _nothing)
FILTERED = Requirement("lists what the user has a right to", _nothing, anonymous=True)
LISTED = all_of(ANY, FILTERED)
NODE = Requirement("the node that it names", _nothing, CallerKind.NODE)
SERVER = Requirement("a server, to its client", _nothing, CallerKind.SERVER)
CONSOLE = Requirement("a console", _nothing, CallerKind.CONSOLE)
REPORTER = Requirement("a console or a node, about itself", _nothing, CallerKind.REPORTER)


# -- rows that need a function of their own -------------------------------------------------------


def _send_needs(request: Any, facts: Facts) -> Needs:
    """Pub on the topic and on those in the records; Create if the send creates the topic."""
    return _pub_needs((request.topic, *facts.topics()), (request.topic,), facts)


def _send_records_needs(request: Any, facts: Facts) -> Needs:
    names = dict.fromkeys(one.topic for one in request.targets)
    return _pub_needs((*names, *facts.topics()), names, facts)


def _pub_needs(names: Iterable[str], targets: Iterable[str], facts: Facts) -> Needs:
    """Pub on all names, and Create on the targets that do not exist.

    Every user with credentials may write traces, as in RocketMQ: its clients do, next to their
    messages. A retry topic comes into being with its group.
    """
    needs: Needs = [
        need_of_topic(one, PUB)
        for one in dict.fromkeys(names)
        if one != TRACE_TOPIC or not facts.has_credentials()
    ]
    return needs + [
        need_of_topic(one, CREATE)
        for one in targets
        if not one.startswith(RETRY_PREFIX) and not facts.exists(ResourceType.TOPIC, one)
    ]


def _reply_needs(request: Any, facts: Facts) -> Needs:
    """As for a send; a reply goes to another client, so also Pub on the cluster's reply topic."""
    return _pub_needs((request.topic, facts.reply_topic()), (request.topic,), facts)


def _value_needs(action: Action) -> Callable[[Any, Facts], Needs]:
    """Values of name servers: an order setting belongs to its topic, Kourou's own to users."""

    def needs(request: Any, _: Facts) -> Needs:
        if request.namespace == ORDER_NAMESPACE and action is GET:
            return [need_of_topic(request.key, PUB, SUB, GET)]
        return _namespace_needs(request, action)

    return needs


def _namespace_needs(request: Any, action: Action) -> Needs:
    """All values of a namespace of name servers: Kourou's own belong to users."""
    if request.namespace.startswith(INTERNAL_NAMESPACE):
        return [Need(ResourceType.USER, "", (UPDATE,))]
    return [Need(ResourceType.CLUSTER, "", (action,))]


def _route_needs(request: Any, _: Facts) -> Needs:
    """Every user may find where traces go, and where a topic may be created."""
    if request.topic in (AUTO_CREATE_TOPIC, TRACE_TOPIC):
        return []
    return [need_of_topic(request.topic, PUB, SUB, GET)]


def _history_needs(request: Any, _: Facts) -> Needs:
    """Get on the aggregate's subject: topic/NAME, group/NAME, filter/GROUP/NAME, or the cluster."""
    kind, _, name = request.aggregate.partition("/")
    subject = {
        "topic": ResourceType.TOPIC,
        "group": ResourceType.GROUP,
        "filter": ResourceType.FILTER,
        "user": ResourceType.USER,
    }.get(kind, ResourceType.CLUSTER)
    return [Need(subject, name if subject is not ResourceType.CLUSTER else "", (GET,))]


def _running_info_needs(request: Any, _: Facts) -> Needs:
    """Stack traces show code and data of the process, so they need Update."""
    action = UPDATE if request.jstack_enable else GET
    return [Need(ResourceType.GROUP, request.consumer_group, (action,))]


def _filters_needs(request: Any, _: Facts) -> Needs:
    if not request.consumer_group:
        return [Need(ResourceType.CLUSTER, "", (GET,))]
    return [Need(ResourceType.FILTER, f"{request.consumer_group}/{request.name}", (GET,))]


def _change_filter_needs(request: Any, _: Facts) -> Needs:
    action = DELETE if request.action == "delete" else UPDATE
    return [Need(ResourceType.FILTER, f"{request.consumer_group}/{request.name}", (action,))]


def _trial_needs(request: Any, facts: Facts) -> Needs:
    action = CREATE if facts.has_body() else GET
    return [Need(ResourceType.FILTER, f"{request.consumer_group}/{request.name}", (action,))]


def _explain_needs(request: Any, _: Facts) -> Needs:
    return [Need(ResourceType.USER, request.username, (GET,))] if request.username else []


def _upload_name(request: Any, _: Facts) -> str:
    name = request.name if hasattr(request, "name") else request.class_name
    return f"{request.consumer_group}/{name}"


SEND = Requirement("Pub on every topic; Create for a new one", _send_needs)
REPLY = Requirement(
    "Pub on the topic and on the cluster's reply topic; Create for a new one", _reply_needs
)
PULL = all_of(group(SUB), topic(SUB))
OWN_CLIENT = Requirement(
    "a client ID with which no other user is connected", _nothing, anonymous=True
)
LOCK = all_of(body_groups(SUB), body_topics(SUB))
LOCK_OF_CLIENT = all_of(LOCK, OWN_CLIENT)
OFFSETS = topic(GET, SUB)
VALUES = Requirement("Get on the cluster, or any right on the topic", _value_needs(GET))
CHANGE_VALUE = Requirement("Update on the cluster", _value_needs(UPDATE))
ROUTE = Requirement("Pub or Sub or Get on Topic `topic`", _route_needs)
HISTORY = Requirement("Get on the subject", _history_needs)
FILTERS = Requirement("Get on the filter, or on the cluster for all", _filters_needs)
READ_CLUSTER, CHANGE_CLUSTER = cluster(GET), cluster(UPDATE)
UPLOAD = create_or_update(ResourceType.FILTER, _upload_name)
COPY_LOG = all_of(
    cluster(GET),
    Requirement(
        "Sub on all topics; Get on all groups and users",
        lambda *_: [
            Need(ResourceType.TOPIC, ALL, (SUB,)),
            Need(ResourceType.GROUP, ALL, (GET,)),
            Need(ResourceType.USER, ALL, (GET,)),
        ],
    ),
)

REQUIREMENTS: Mapping[str, Requirement] = MappingProxyType(
    {
        # sending
        "SEND_MESSAGE": SEND,
        "SEND_MESSAGE_V2": SEND,
        "SEND_BATCH_MESSAGE": SEND,
        "SEND_RECORDS": Requirement(SEND.text, _send_records_needs),
        "SEND_REPLY_MESSAGE": REPLY,
        "SEND_REPLY_MESSAGE_V2": REPLY,
        "PUSH_REPLY_MESSAGE_TO_CLIENT": SERVER,
        "CONSUMER_SEND_MSG_BACK": all_of(group(SUB, field="group"), record(SUB)),
        "END_TRANSACTION": record(PUB),
        "CHECK_TRANSACTION_STATE": SERVER,
        "RESUME_CHECK_HALF_MESSAGE": record(UPDATE),
        # consuming
        "PULL_MESSAGE": PULL,
        "UPDATE_CONSUMER_OFFSET": PULL,
        "QUERY_CONSUMER_OFFSET": all_of(group(SUB, GET), OFFSETS),
        "GET_CONSUMER_LIST_BY_GROUP": group(SUB, GET),
        "LOCK_BATCH_MQ": LOCK_OF_CLIENT,
        "UNLOCK_BATCH_MQ": LOCK_OF_CLIENT,
        "HEART_BEAT": LOCK_OF_CLIENT,
        "CHECK_CLIENT_CONFIG": LOCK,
        "UNREGISTER_CLIENT": all_of(ANY, OWN_CLIENT),
        "NOTIFY_CONSUMER_IDS_CHANGED": SERVER,
        "RESET_CONSUMER_CLIENT_OFFSET": SERVER,
        "GET_CONSUMER_STATUS_FROM_CLIENT": SERVER,
        # queries
        "QUERY_MESSAGE": topic(SUB),
        "VIEW_MESSAGE_BY_ID": record(SUB),
        "QUERY_CONSUME_QUEUE": topic(GET),
        "SEARCH_OFFSET_BY_TIMESTAMP": OFFSETS,
        "GET_MAX_OFFSET": OFFSETS,
        "GET_MIN_OFFSET": OFFSETS,
        "GET_EARLIEST_MSG_STORETIME": OFFSETS,
        "GET_TOPIC_STATS_INFO": topic(GET),
        "QUERY_TOPIC_CONSUME_BY_WHO": all_of(topic(GET), FILTERED),
        "GET_CONSUMER_CONNECTION_LIST": group(GET),
        "GET_CONSUME_STATS": all_of(group(GET), OFFSETS),
        "QUERY_CONSUME_TIME_SPAN": all_of(group(GET, field="group"), OFFSETS),
        "QUERY_CORRECTION_OFFSET": all_of(group(GET, field="compare_group"), OFFSETS, FILTERED),
        "INVOKE_BROKER_TO_GET_CONSUMER_STATUS": group(GET, field="group"),
        "GET_CONSUMER_RUNNING_INFO": Requirement(
            "Get on Group `consumer_group`; Update for stack traces", _running_info_needs
        ),
        "CONSUME_MESSAGE_DIRECTLY": all_of(group(UPDATE), record(SUB)),
        # topics and groups
        "UPDATE_AND_CREATE_TOPIC": create_or_update(
            ResourceType.TOPIC, lambda request, _: str(request.topic)
        ),
        "DELETE_TOPIC_IN_BROKER": topic(DELETE),
        "DELETE_TOPIC_IN_NAMESRV": topic(DELETE),
        "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP": create_or_update(
            ResourceType.GROUP, lambda _, facts: next(iter(facts.groups()), "")
        ),
        "DELETE_SUBSCRIPTIONGROUP": group(DELETE, field="group_name"),
        "INVOKE_BROKER_TO_RESET_OFFSET": all_of(group(UPDATE, field="group"), OFFSETS),
        "CLONE_GROUP_OFFSET": all_of(
            group(UPDATE, field="dest_group"), group(GET, field="src_group")
        ),
        "GET_ALL_TOPIC_CONFIG": LISTED,
        "GET_ALL_SUBSCRIPTIONGROUP_CONFIG": LISTED,
        "GET_ALL_CONSUMER_OFFSET": LISTED,
        "GET_BROKER_CONSUME_STATS": LISTED,
        "GET_ALL_TOPIC_LIST_FROM_NAMESERVER": LISTED,
        "GET_TOPICS_BY_CLUSTER": LISTED,
        "GET_UNIT_TOPIC_LIST": LISTED,
        "GET_HAS_UNIT_SUB_TOPIC_LIST": LISTED,
        "GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST": LISTED,
        "GET_ROUTEINFO_BY_TOPIC": ROUTE,
        "GET_BROKER_CLUSTER_INFO": ANY,
        "GET_SYSTEM_TOPIC_LIST_FROM_NS": ANY,
        # brokers and name servers
        "GET_ALL_DELAY_OFFSET": READ_CLUSTER,
        "GET_BROKER_CONFIG": READ_CLUSTER,
        "GET_BROKER_RUNTIME_INFO": READ_CLUSTER,
        "GET_BROKER_CLUSTER_ACL_INFO": READ_CLUSTER,
        "GET_PRODUCER_CONNECTION_LIST": READ_CLUSTER,
        "GET_ALL_PRODUCER_INFO": READ_CLUSTER,
        "GET_SYSTEM_TOPIC_LIST_FROM_BROKER": READ_CLUSTER,
        "VIEW_BROKER_STATS_DATA": READ_CLUSTER,
        "GET_NAMESRV_CONFIG": READ_CLUSTER,
        "GET_REPLICAS": READ_CLUSTER,
        "GET_KV_CONFIG": VALUES,
        "GET_KVLIST_BY_NAMESPACE": Requirement(
            "Get on the cluster; Update on users for a namespace KOUROU_…",
            lambda request, _: _namespace_needs(request, GET),
        ),
        "PUT_KV_CONFIG": CHANGE_VALUE,
        "DELETE_KV_CONFIG": CHANGE_VALUE,
        "UPDATE_BROKER_CONFIG": CHANGE_CLUSTER,
        "UPDATE_NAMESRV_CONFIG": CHANGE_CLUSTER,
        "WIPE_WRITE_PERM_OF_BROKER": CHANGE_CLUSTER,
        "ADD_WRITE_PERM_OF_BROKER": CHANGE_CLUSTER,
        "CLEAN_EXPIRED_CONSUMEQUEUE": CHANGE_CLUSTER,
        "CLEAN_UNUSED_TOPIC": CHANGE_CLUSTER,
        "DELETE_EXPIRED_COMMITLOG": cluster(DELETE),
        "PROMOTE_REPLICA": CHANGE_CLUSTER,
        "TRANSFER_LEADER": CHANGE_CLUSTER,
        "GET_HISTORY": HISTORY,
        "GET_STATE_AT": HISTORY,
        "UNDO": all_of(
            CHANGE_CLUSTER, Requirement("the right to each change that undoes it", _nothing)
        ),
        "SET_QUOTA": CHANGE_CLUSTER,
        "REMOVE_QUOTA": CHANGE_CLUSTER,
        "LIST_QUOTAS": READ_CLUSTER,
        # users
        "UPDATE_AND_CREATE_ACL_CONFIG": users(CREATE, UPDATE, field="access_key"),
        "DELETE_ACL_CONFIG": users(DELETE, field="access_key"),
        "UPDATE_GLOBAL_WHITE_ADDRS_CONFIG": users(UPDATE),
        "AUTH_CREATE_USER": users(CREATE),
        "AUTH_UPDATE_USER": users(UPDATE),
        "AUTH_DELETE_USER": users(DELETE),
        "AUTH_GET_USER": users(GET),
        "AUTH_LIST_USER": users(LIST),
        "AUTH_CREATE_ACL": users(UPDATE, field="subject"),
        "AUTH_UPDATE_ACL": users(UPDATE, field="subject"),
        "AUTH_DELETE_ACL": users(UPDATE, field="subject"),
        "AUTH_GET_ACL": users(GET, field="subject"),
        "AUTH_LIST_ACL": users(LIST),
        "SET_ACCESS_MODE": users(UPDATE),
        "GET_ACCESS_STATUS": users(LIST),
        "GET_AUDIT": replace(users(LIST), by_consoles=True),
        "TRY_POLICIES": replace(users(LIST), by_consoles=True),
        "EXPLAIN_ACCESS": Requirement("Get on User; any user about itself", _explain_needs),
        "CHECK_CREDENTIAL": CONSOLE,
        "REPORT_REFUSALS": REPORTER,
        "CREATE_API_TOKEN": users(UPDATE),
        "REVOKE_API_TOKEN": users(UPDATE),
        "LIST_API_TOKENS": users(LIST),
        "SET_OWN_PASSWORD": oneself(UPDATE),
        "CREATE_OWN_TOKEN": oneself(UPDATE),
        "REVOKE_OWN_TOKEN": oneself(UPDATE),
        "LIST_OWN_TOKENS": oneself(LIST),
        # filters
        "REGISTER_MESSAGE_FILTER_CLASS": all_of(UPLOAD, PULL),
        "PUT_FILTER": all_of(UPLOAD, group(SUB)),
        "TRY_FILTER": all_of(
            Requirement(
                "Create on Filter `consumer_group/name`; Get for a stored version", _trial_needs
            ),
            topic(SUB),
        ),
        "CHANGE_FILTER": Requirement("Update or Delete on the filter", _change_filter_needs),
        "RECORD_FILTER_SKIP": filter_of(UPDATE),
        "GET_FILTERS": FILTERS,
        "GET_FILTER_STATISTICS": FILTERS,
        # batches of the Spark sink
        "GET_BATCH_STATE": own_query(GET),
        "PREPARE_BATCH": own_query(UPDATE),
        "DECIDE_BATCH": own_query(UPDATE),
        "RESOLVE_BATCH": own_query(UPDATE),
        "ABORT_BATCH": own_query(UPDATE, known=True),
        # between processes
        "GET_CONTROL_EVENTS": READ_CLUSTER,
        "REGISTER_BROKER": NODE,
        "UNREGISTER_BROKER": NODE,
        "QUERY_DATA_VERSION": NODE,
        "PUT_USERS": NODE,
        "REGISTER_FILTER_SERVER": NODE,
        "UNREGISTER_FILTER_SERVER": NODE,
        "NOTIFY_FILTERS_CHANGED": NODE,
        "CHECK_ACCESS": NODE,
        "LOG_CHUNK": NODE,
        "CHUNK_ACK": NODE,
        "ASK_VOTE": NODE,
        "VOTE": NODE,
        "STAND_NOW": NODE,
        "ATTACH": NODE,
        "ATTACHED": NODE,
        "FETCH_LOG": COPY_LOG,
        "GET_LOG_BEGINNING": COPY_LOG,
    }
)
