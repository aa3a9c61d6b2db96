"""The request table: all requests in one module.

One row per code: which process handles it, its response codes in addition to success and
SYSTEM_ERROR, and its bodies. Codes from 30000 are Kourou's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from kourou.access.requirements import REQUIREMENTS
from kourou.errors import Code
from kourou.protocol.messages import (
    access,
    broker_admin,
    filter_server,
    groups,
    namesrv,
    pulls,
    quotas,
    replication,
    sends,
)
from kourou.protocol.request import Answerer, Body, Request, RequestSpec, Response

NAMESRV = frozenset({Answerer.NAMESRV})
BROKER = frozenset({Answerer.BROKER})
CLIENT = frozenset({Answerer.CLIENT})
BROKER_OR_CLIENT = BROKER | CLIENT
BROKER_OR_FILTER = BROKER | {Answerer.FILTER_SERVER}
FILTER = frozenset({Answerer.FILTER_SERVER})
MEMBER = frozenset({Answerer.MEMBER})

ACCOUNTS_AT_BROKERS = range(50, 54)
"""RocketMQ's requests about the accounts of its access control lists, which only brokers have."""

GET_BROKER_CLUSTER_ACL_CONFIG = 54
"""RocketMQ 4.9.7's request for all accounts with their secrets; it exists in no later version."""

ANSWERS_OF_ALL = frozenset(
    {
        Code.SUCCESS,
        Code.SYSTEM_ERROR,
        Code.REQUEST_CODE_NOT_SUPPORTED,
        Code.DEADLINE_PASSED,
        Code.SERVICE_NOT_AVAILABLE,
        Code.NO_PERMISSION,
        Code.FLOW_CONTROL,
    }
)
"""What any request may get; the rows do not repeat it.

SERVICE_NOT_AVAILABLE is for a starting broker or a follower, NO_PERMISSION for a user without the
right to it, FLOW_CONTROL for one that is over a quota.
"""

UNKNOWN = (Code.OUTCOME_UNKNOWN,)
"""The store failed while the reply waited for the disk."""

STORED_BUT = (Code.FLUSH_DISK_TIMEOUT, Code.SLAVE_NOT_AVAILABLE, Code.FLUSH_SLAVE_TIMEOUT)
"""The message is stored, but a guarantee about it could not be met in time."""

REFUSED = (Code.SYSTEM_BUSY, Code.DISK_FULL, Code.STORE_FAULTED)
"""The request is valid; the broker cannot accept it now."""

SEND_ANSWERS = (
    *STORED_BUT,
    *REFUSED,
    *UNKNOWN,
    Code.MESSAGE_ILLEGAL,
    Code.SERVICE_NOT_AVAILABLE,
    Code.NO_PERMISSION,
    Code.TOPIC_NOT_EXIST,
    Code.SUBSCRIPTION_GROUP_NOT_EXIST,
)
HISTORY_ANSWERS = (
    Code.METADATA_UNAVAILABLE,
    Code.SYSTEM_BUSY,
    Code.QUERY_NOT_FOUND,
    Code.MESSAGE_CORRUPT,
)
"""History requires the event database."""

RECORDED = (
    Code.SYSTEM_BUSY,
    Code.DISK_FULL,
    Code.STORE_FAULTED,
    Code.OUTCOME_UNKNOWN,
    Code.FLUSH_DISK_TIMEOUT,
)
"""A decision is recorded in the log before the reply."""

DECISION_ANSWERS = (Code.NO_PERMISSION, Code.TOPIC_NOT_EXIST, Code.SUBSCRIPTION_GROUP_NOT_EXIST)
"""The errors of the decision that an undo amounts to."""

KEY_VALUE_ANSWERS = (Code.SYSTEM_BUSY, Code.METADATA_UNAVAILABLE, Code.MESSAGE_CORRUPT)
"""A name server records a change in its own event store before it replies."""

PULL_ANSWERS = (
    Code.SYSTEM_BUSY,
    Code.NO_PERMISSION,
    Code.TOPIC_NOT_EXIST,
    Code.PULL_NOT_FOUND,
    Code.PULL_RETRY_IMMEDIATELY,
    Code.PULL_OFFSET_MOVED,
    Code.SUBSCRIPTION_PARSE_FAILED,
    Code.SUBSCRIPTION_NOT_EXIST,
    Code.SUBSCRIPTION_NOT_LATEST,
    Code.SUBSCRIPTION_GROUP_NOT_EXIST,
    Code.FILTER_DATA_NOT_EXIST,
    Code.FILTER_DATA_NOT_LATEST,
    Code.MESSAGE_CORRUPT,
    Code.POLLING_FULL,
    Code.FILTER_FAILED,
)


def _row(
    name: str,
    header: type[Request],
    answered_by: frozenset[Answerer],
    answers: Iterable[int] = (),
    *,
    code: int | None = None,
    response: type[Response] | None = None,
    body: Body = Body.NONE,
    reply_body: Body = Body.NONE,
    oneway: bool = False,
    short_names: bool = False,
    remoting: bool = True,
) -> RequestSpec:
    return RequestSpec(
        code=header.code if code is None else code,
        name=name,
        header=header,
        response=response,
        body=body,
        reply_body=reply_body,
        answered_by=answered_by,
        answers=frozenset(int(answer) for answer in answers),
        oneway=oneway,
        short_names=short_names,
        remoting=remoting,
    )


_SENDING = (
    _row("SEND_MESSAGE", sends.SendMessage, BROKER, SEND_ANSWERS, response=sends.SendResponse,
         body=Body.MESSAGE),
    _row("SEND_MESSAGE_V2", sends.SendMessage, BROKER, SEND_ANSWERS, code=310,
         response=sends.SendResponse, body=Body.MESSAGE, short_names=True),
    _row("SEND_BATCH_MESSAGE", sends.SendMessage, BROKER, SEND_ANSWERS, code=320,
         response=sends.SendResponse, body=Body.MESSAGE, short_names=True),
    _row("CONSUMER_SEND_MSG_BACK", sends.ConsumerSendMsgBack, BROKER, SEND_ANSWERS),
    _row("SEND_RECORDS", sends.SendRecords, BROKER, SEND_ANSWERS,
         response=sends.SendRecordsResponse, body=Body.DRAFTS, remoting=False),
    _row("END_TRANSACTION", sends.EndTransaction, BROKER,
         (*STORED_BUT, *REFUSED, *UNKNOWN, Code.SERVICE_NOT_AVAILABLE, Code.TOPIC_NOT_EXIST)),
    _row("CHECK_TRANSACTION_STATE", sends.CheckTransactionState, CLIENT, body=Body.RECORDS,
         oneway=True),
    _row("RESUME_CHECK_HALF_MESSAGE", sends.ResumeCheckHalfMessage, BROKER,
         (*STORED_BUT, *REFUSED, *UNKNOWN)),
    _row("SEND_REPLY_MESSAGE", sends.SendReplyMessage, BROKER, SEND_ANSWERS,
         response=sends.SendResponse, body=Body.MESSAGE),
    _row("SEND_REPLY_MESSAGE_V2", sends.SendReplyMessage, BROKER, SEND_ANSWERS, code=325,
         response=sends.SendResponse, body=Body.MESSAGE, short_names=True),
    _row("PUSH_REPLY_MESSAGE_TO_CLIENT", sends.PushReplyMessageToClient, CLIENT, body=Body.MESSAGE),
)  # fmt: skip

_READING = (
    _row("PULL_MESSAGE", pulls.PullMessage, BROKER_OR_FILTER, PULL_ANSWERS,
         response=pulls.PullResponse, reply_body=Body.RECORDS),
    _row("QUERY_MESSAGE", pulls.QueryMessage, BROKER, (Code.QUERY_NOT_FOUND, Code.MESSAGE_CORRUPT),
         response=pulls.QueryMessageResponse, reply_body=Body.RECORDS),
    _row("VIEW_MESSAGE_BY_ID", pulls.ViewMessageById, BROKER, (Code.MESSAGE_CORRUPT,),
         reply_body=Body.RECORDS),
    _row("QUERY_CONSUME_QUEUE", pulls.QueryConsumeQueue, BROKER, reply_body=Body.JSON),
    _row("QUERY_CONSUMER_OFFSET", pulls.QueryConsumerOffset, BROKER, (Code.QUERY_NOT_FOUND,),
         response=pulls.QueryConsumerOffsetResponse),
    _row("UPDATE_CONSUMER_OFFSET", pulls.UpdateConsumerOffset, BROKER,
         (Code.TOPIC_NOT_EXIST, Code.SUBSCRIPTION_GROUP_NOT_EXIST)),
    _row("SEARCH_OFFSET_BY_TIMESTAMP", pulls.SearchOffsetByTimestamp, BROKER,
         response=pulls.SearchOffsetByTimestampResponse),
    _row("GET_MAX_OFFSET", pulls.GetMaxOffset, BROKER, response=pulls.GetMaxOffsetResponse),
    _row("GET_MIN_OFFSET", pulls.GetMinOffset, BROKER, response=pulls.GetMinOffsetResponse),
    _row("GET_EARLIEST_MSG_STORETIME", pulls.GetEarliestMsgStoreTime, BROKER,
         response=pulls.GetEarliestMsgStoreTimeResponse),
    _row("GET_ALL_CONSUMER_OFFSET", pulls.GetAllConsumerOffset, BROKER, reply_body=Body.JSON),
    _row("GET_ALL_DELAY_OFFSET", pulls.GetAllDelayOffset, BROKER, reply_body=Body.JSON),
    _row("CLONE_GROUP_OFFSET", pulls.CloneGroupOffset, BROKER,
         (Code.SUBSCRIPTION_GROUP_NOT_EXIST, *RECORDED)),
    _row("INVOKE_BROKER_TO_RESET_OFFSET", pulls.InvokeBrokerToResetOffset, BROKER,
         (Code.CONSUMER_NOT_ONLINE, Code.TOPIC_NOT_EXIST, Code.SUBSCRIPTION_GROUP_NOT_EXIST,
          *RECORDED),
         reply_body=Body.JSON),
    _row("RESET_CONSUMER_CLIENT_OFFSET", pulls.ResetConsumerClientOffset, CLIENT, body=Body.JSON,
         oneway=True),
    _row("QUERY_CORRECTION_OFFSET", pulls.QueryCorrectionOffset, BROKER, reply_body=Body.JSON),
)  # fmt: skip

_CLIENTS = (
    _row("HEART_BEAT", groups.HeartBeat, BROKER,
         (Code.SUBSCRIPTION_PARSE_FAILED, Code.SUBSCRIPTION_GROUP_NOT_EXIST, *RECORDED),
         body=Body.JSON),
    _row("UNREGISTER_CLIENT", groups.UnregisterClient, BROKER),
    _row("GET_CONSUMER_LIST_BY_GROUP", groups.GetConsumerListByGroup, BROKER, reply_body=Body.JSON),
    _row("NOTIFY_CONSUMER_IDS_CHANGED", groups.NotifyConsumerIdsChanged, CLIENT, oneway=True),
    _row("LOCK_BATCH_MQ", groups.LockBatchMq, BROKER, RECORDED, body=Body.JSON,
         reply_body=Body.JSON),
    _row("UNLOCK_BATCH_MQ", groups.UnlockBatchMq, BROKER, body=Body.JSON),
    _row("CHECK_CLIENT_CONFIG", groups.CheckClientConfig, BROKER, (Code.SUBSCRIPTION_PARSE_FAILED,),
         body=Body.JSON),
    _row("GET_CONSUMER_CONNECTION_LIST", groups.GetConsumerConnectionList, BROKER,
         (Code.CONSUMER_NOT_ONLINE,), reply_body=Body.JSON),
    _row("GET_PRODUCER_CONNECTION_LIST", groups.GetProducerConnectionList, BROKER,
         reply_body=Body.JSON),
    _row("GET_ALL_PRODUCER_INFO", groups.GetAllProducerInfo, BROKER, reply_body=Body.JSON),
    _row("GET_CONSUMER_STATUS_FROM_CLIENT", groups.GetConsumerStatusFromClient, CLIENT,
         reply_body=Body.JSON),
    _row("INVOKE_BROKER_TO_GET_CONSUMER_STATUS", groups.InvokeBrokerToGetConsumerStatus, BROKER,
         (Code.CONSUMER_NOT_ONLINE, Code.CONSUME_MSG_TIMEOUT), reply_body=Body.JSON),
    _row("GET_CONSUMER_RUNNING_INFO", groups.GetConsumerRunningInfo, BROKER_OR_CLIENT,
         (Code.CONSUMER_NOT_ONLINE, Code.CONSUME_MSG_TIMEOUT, Code.SYSTEM_BUSY),
         reply_body=Body.JSON),
    _row("CONSUME_MESSAGE_DIRECTLY", groups.ConsumeMessageDirectly, BROKER_OR_CLIENT,
         (Code.CONSUMER_NOT_ONLINE, Code.CONSUME_MSG_TIMEOUT, Code.SYSTEM_BUSY,
          Code.MESSAGE_CORRUPT),
         body=Body.RECORDS, reply_body=Body.JSON),
)  # fmt: skip

_BROKER_ADMIN = (
    _row("UPDATE_AND_CREATE_TOPIC", broker_admin.UpdateAndCreateTopic, BROKER, RECORDED),
    _row("DELETE_TOPIC_IN_BROKER", broker_admin.DeleteTopicInBroker, BROKER, RECORDED),
    _row("GET_ALL_TOPIC_CONFIG", broker_admin.GetAllTopicConfig, BROKER, reply_body=Body.JSON),
    _row("GET_TOPIC_STATS_INFO", broker_admin.GetTopicStatsInfo, BROKER, (Code.TOPIC_NOT_EXIST,),
         reply_body=Body.JSON),
    _row("QUERY_TOPIC_CONSUME_BY_WHO", broker_admin.QueryTopicConsumeByWho, BROKER,
         (Code.TOPIC_NOT_EXIST,), reply_body=Body.JSON),
    _row("GET_SYSTEM_TOPIC_LIST_FROM_BROKER", broker_admin.GetSystemTopicListFromBroker, BROKER,
         reply_body=Body.JSON),
    _row("UPDATE_AND_CREATE_SUBSCRIPTIONGROUP", groups.UpdateAndCreateSubscriptionGroup, BROKER,
         RECORDED, body=Body.JSON),
    _row("GET_ALL_SUBSCRIPTIONGROUP_CONFIG", groups.GetAllSubscriptionGroupConfig, BROKER,
         reply_body=Body.JSON),
    _row("DELETE_SUBSCRIPTIONGROUP", groups.DeleteSubscriptionGroup, BROKER, RECORDED),
    _row("GET_CONSUME_STATS", groups.GetConsumeStats, BROKER,
         (Code.TOPIC_NOT_EXIST, Code.SUBSCRIPTION_GROUP_NOT_EXIST), reply_body=Body.JSON),
    _row("QUERY_CONSUME_TIME_SPAN", groups.QueryConsumeTimeSpan, BROKER, (Code.TOPIC_NOT_EXIST,),
         reply_body=Body.JSON),
    _row("GET_BROKER_CONSUME_STATS", groups.GetBrokerConsumeStats, BROKER, reply_body=Body.JSON),
    _row("UPDATE_BROKER_CONFIG", broker_admin.UpdateBrokerConfig, BROKER,
         (Code.NO_PERMISSION, *RECORDED), body=Body.PROPERTIES),
    _row("GET_BROKER_CONFIG", broker_admin.GetBrokerConfig, BROKER,
         response=broker_admin.GetBrokerConfigResponse, reply_body=Body.PROPERTIES),
    _row("GET_BROKER_RUNTIME_INFO", broker_admin.GetBrokerRuntimeInfo, BROKER,
         reply_body=Body.JSON),
    _row("CLEAN_EXPIRED_CONSUMEQUEUE", broker_admin.CleanExpiredConsumeQueue, BROKER),
    _row("CLEAN_UNUSED_TOPIC", broker_admin.CleanUnusedTopic, BROKER),
    _row("DELETE_EXPIRED_COMMITLOG", broker_admin.DeleteExpiredCommitLog, BROKER),
    _row("VIEW_BROKER_STATS_DATA", broker_admin.ViewBrokerStatsData, BROKER, reply_body=Body.JSON),
    _row("UPDATE_AND_CREATE_ACL_CONFIG", broker_admin.UpdateAndCreateAclConfig, BROKER,
         (Code.ACL_UPDATE_FAILED, *RECORDED)),
    _row("DELETE_ACL_CONFIG", broker_admin.DeleteAclConfig, BROKER,
         (Code.ACL_DELETE_FAILED, *RECORDED)),
    _row("GET_BROKER_CLUSTER_ACL_INFO", broker_admin.GetBrokerClusterAclInfo, BROKER,
         response=broker_admin.GetBrokerClusterAclInfoResponse),
    _row("UPDATE_GLOBAL_WHITE_ADDRS_CONFIG", broker_admin.UpdateGlobalWhiteAddrsConfig, BROKER,
         (Code.WHITE_ADDRS_UPDATE_FAILED,)),
    _row("AUTH_CREATE_USER", access.AuthCreateUser, BROKER, RECORDED, body=Body.JSON),
    _row("AUTH_UPDATE_USER", access.AuthUpdateUser, BROKER, RECORDED, body=Body.JSON),
    _row("AUTH_DELETE_USER", access.AuthDeleteUser, BROKER, RECORDED),
    _row("AUTH_GET_USER", access.AuthGetUser, BROKER, reply_body=Body.JSON),
    _row("AUTH_LIST_USER", access.AuthListUser, BROKER, reply_body=Body.JSON),
    _row("AUTH_CREATE_ACL", access.AuthCreateAcl, BROKER, RECORDED, body=Body.JSON),
    _row("AUTH_UPDATE_ACL", access.AuthUpdateAcl, BROKER, RECORDED, body=Body.JSON),
    _row("AUTH_DELETE_ACL", access.AuthDeleteAcl, BROKER, RECORDED),
    _row("AUTH_GET_ACL", access.AuthGetAcl, BROKER, reply_body=Body.JSON),
    _row("AUTH_LIST_ACL", access.AuthListAcl, BROKER, reply_body=Body.JSON),
    _row("SET_ACCESS_MODE", access.SetAccessMode, BROKER, RECORDED, remoting=False),
    _row("GET_ACCESS_STATUS", access.GetAccessStatus, BROKER,
         response=access.GetAccessStatusResponse, reply_body=Body.JSON, remoting=False),
    _row("GET_AUDIT", access.GetAudit, BROKER, HISTORY_ANSWERS,
         response=access.GetAuditResponse, reply_body=Body.JSON, remoting=False),
    _row("TRY_POLICIES", access.TryPolicies, BROKER, HISTORY_ANSWERS,
         response=access.TryPoliciesResponse, body=Body.JSON, reply_body=Body.JSON,
         remoting=False),
    _row("EXPLAIN_ACCESS", access.ExplainAccess, BROKER,
         response=access.ExplainAccessResponse, remoting=False),
    _row("CHECK_CREDENTIAL", access.CheckCredential, BROKER,
         response=access.CheckCredentialResponse, body=Body.JSON, remoting=False),
    _row("CREATE_API_TOKEN", access.CreateApiToken, BROKER, RECORDED, remoting=False),
    _row("REVOKE_API_TOKEN", access.RevokeApiToken, BROKER, RECORDED, remoting=False),
    _row("LIST_API_TOKENS", access.ListApiTokens, BROKER, reply_body=Body.JSON, remoting=False),
    _row("SET_OWN_PASSWORD", access.SetOwnPassword, BROKER, RECORDED, body=Body.JSON,
         remoting=False),
    _row("CREATE_OWN_TOKEN", access.CreateOwnToken, BROKER, RECORDED, remoting=False),
    _row("REVOKE_OWN_TOKEN", access.RevokeOwnToken, BROKER, RECORDED, remoting=False),
    _row("LIST_OWN_TOKENS", access.ListOwnTokens, BROKER, reply_body=Body.JSON, remoting=False),
    _row("REPORT_REFUSALS", access.ReportRefusals, BROKER, body=Body.JSON, remoting=False),
    _row("SET_QUOTA", quotas.SetQuota, BROKER, RECORDED, remoting=False),
    _row("REMOVE_QUOTA", quotas.RemoveQuota, BROKER, RECORDED, remoting=False),
    _row("LIST_QUOTAS", quotas.ListQuotas, BROKER, reply_body=Body.JSON, remoting=False),
    _row("GET_CONTROL_EVENTS", broker_admin.GetControlEvents, BROKER, (Code.MESSAGE_CORRUPT,),
         response=broker_admin.GetControlEventsResponse, reply_body=Body.JSON, remoting=False),
    _row("GET_HISTORY", broker_admin.GetHistory, BROKER, HISTORY_ANSWERS,
         response=broker_admin.GetHistoryResponse, reply_body=Body.JSON, remoting=False),
    _row("GET_STATE_AT", broker_admin.GetStateAt, BROKER, HISTORY_ANSWERS,
         response=broker_admin.GetStateAtResponse, reply_body=Body.JSON, remoting=False),
    _row("UNDO", broker_admin.Undo, BROKER, (*HISTORY_ANSWERS, *RECORDED, *DECISION_ANSWERS),
         response=broker_admin.UndoResponse, reply_body=Body.JSON, remoting=False),
)  # fmt: skip

_FILTERS = (
    _row("REGISTER_FILTER_SERVER", filter_server.RegisterFilterServer, BROKER, (Code.SYSTEM_BUSY,),
         response=filter_server.RegisterFilterServerResponse),
    _row("REGISTER_MESSAGE_FILTER_CLASS", filter_server.RegisterMessageFilterClass, FILTER,
         RECORDED, body=Body.SOURCE),
    _row("UNREGISTER_FILTER_SERVER", filter_server.UnregisterFilterServer, BROKER, remoting=False),
    _row("PUT_FILTER", filter_server.PutFilter, BROKER,
         (Code.NO_PERMISSION, Code.SUBSCRIPTION_GROUP_NOT_EXIST, *RECORDED),
         response=filter_server.FilterResponse, body=Body.SOURCE, remoting=False),
    _row("CHANGE_FILTER", filter_server.ChangeFilter, BROKER, (Code.QUERY_NOT_FOUND, *RECORDED),
         response=filter_server.FilterResponse, remoting=False),
    _row("GET_FILTERS", filter_server.GetFilters, BROKER, (Code.QUERY_NOT_FOUND,),
         response=filter_server.GetFiltersResponse, reply_body=Body.JSON, remoting=False),
    _row("NOTIFY_FILTERS_CHANGED", filter_server.NotifyFiltersChanged, FILTER, oneway=True,
         remoting=False),
    _row("RECORD_FILTER_SKIP", filter_server.RecordFilterSkip, BROKER,
         (Code.QUERY_NOT_FOUND, Code.TOPIC_NOT_EXIST, *RECORDED), remoting=False),
    _row("TRY_FILTER", filter_server.TryFilter, FILTER,
         (Code.QUERY_NOT_FOUND, Code.TOPIC_NOT_EXIST, Code.FILTER_FAILED, Code.SYSTEM_BUSY),
         body=Body.SOURCE, reply_body=Body.JSON, remoting=False),
    _row("GET_FILTER_STATISTICS", filter_server.GetFilterStatistics, FILTER, reply_body=Body.JSON,
         remoting=False),
    _row("CHECK_ACCESS", filter_server.CheckAccess, BROKER,
         response=filter_server.CheckAccessResponse, body=Body.SOURCE, remoting=False),
)  # fmt: skip

_BATCHES = (
    _row("GET_BATCH_STATE", sends.GetBatchState, BROKER, response=sends.BatchStateResponse,
         reply_body=Body.JSON, remoting=False),
    _row("PREPARE_BATCH", sends.PrepareBatch, BROKER, RECORDED, response=sends.BatchStateResponse,
         body=Body.JSON, remoting=False),
    _row("DECIDE_BATCH", sends.DecideBatch, BROKER, RECORDED, response=sends.BatchStateResponse,
         body=Body.JSON, reply_body=Body.JSON, remoting=False),
    _row("RESOLVE_BATCH", sends.ResolveBatch, BROKER,
         (Code.TOPIC_NOT_EXIST, Code.MESSAGE_CORRUPT, *RECORDED), response=sends.BatchStepResponse,
         body=Body.JSON, remoting=False),
    _row("ABORT_BATCH", sends.AbortBatch, BROKER, RECORDED, response=sends.BatchStepResponse,
         remoting=False),
)  # fmt: skip

_REPLICATION = (
    _row("LOG_CHUNK", replication.LogChunk, MEMBER, body=Body.LOG, oneway=True, remoting=False),
    _row("CHUNK_ACK", replication.ChunkAck, MEMBER, oneway=True, remoting=False),
    _row("ASK_VOTE", replication.AskVote, MEMBER, oneway=True, remoting=False),
    _row("VOTE", replication.Vote, MEMBER, oneway=True, remoting=False),
    _row("STAND_NOW", replication.StandNow, MEMBER, oneway=True, remoting=False),
    _row("ATTACH", replication.Attach, MEMBER, oneway=True, remoting=False),
    _row("ATTACHED", replication.Attached, MEMBER, oneway=True, remoting=False),
    _row("FETCH_LOG", replication.FetchLog, BROKER | MEMBER,
         (Code.SYSTEM_BUSY, Code.MESSAGE_CORRUPT, Code.NO_PERMISSION),
         response=replication.FetchLogResponse, reply_body=Body.LOG, remoting=False),
    _row("GET_LOG_BEGINNING", replication.GetLogBeginning, BROKER | MEMBER,
         (Code.SYSTEM_BUSY, Code.METADATA_UNAVAILABLE, Code.NO_PERMISSION, Code.QUERY_NOT_FOUND),
         response=replication.GetLogBeginningResponse, reply_body=Body.JSON, remoting=False),
    _row("GET_REPLICAS", replication.GetReplicas, BROKER, reply_body=Body.JSON, remoting=False),
    _row("PROMOTE_REPLICA", replication.PromoteReplica, BROKER,
         response=replication.PromoteReplicaResponse, remoting=False),
    _row("TRANSFER_LEADER", replication.TransferLeader, BROKER,
         response=replication.TransferLeaderResponse, remoting=False),
)  # fmt: skip

_NAMESRV = (
    _row("PUT_KV_CONFIG", namesrv.PutKvConfig, NAMESRV, KEY_VALUE_ANSWERS),
    _row("GET_KV_CONFIG", namesrv.GetKvConfig, NAMESRV, (Code.QUERY_NOT_FOUND,),
         response=namesrv.GetKvConfigResponse),
    _row("DELETE_KV_CONFIG", namesrv.DeleteKvConfig, NAMESRV, KEY_VALUE_ANSWERS),
    _row("REGISTER_BROKER", namesrv.RegisterBroker, NAMESRV, (Code.SYSTEM_BUSY,),
         response=namesrv.RegisterBrokerResponse, body=Body.JSON, reply_body=Body.JSON),
    _row("UNREGISTER_BROKER", namesrv.UnregisterBroker, NAMESRV),
    _row("GET_ROUTEINFO_BY_TOPIC", namesrv.GetRouteInfoByTopic, NAMESRV, (Code.TOPIC_NOT_EXIST,),
         reply_body=Body.JSON),
    _row("GET_BROKER_CLUSTER_INFO", namesrv.GetBrokerClusterInfo, NAMESRV, reply_body=Body.JSON),
    _row("WIPE_WRITE_PERM_OF_BROKER", namesrv.WipeWritePermOfBroker, NAMESRV,
         response=namesrv.WipeWritePermOfBrokerResponse),
    _row("ADD_WRITE_PERM_OF_BROKER", namesrv.AddWritePermOfBroker, NAMESRV,
         response=namesrv.AddWritePermOfBrokerResponse),
    _row("GET_ALL_TOPIC_LIST_FROM_NAMESERVER", namesrv.GetAllTopicListFromNamesrv, NAMESRV,
         reply_body=Body.JSON),
    _row("DELETE_TOPIC_IN_NAMESRV", namesrv.DeleteTopicInNamesrv, NAMESRV),
    _row("GET_KVLIST_BY_NAMESPACE", namesrv.GetKvListByNamespace, NAMESRV, (Code.QUERY_NOT_FOUND,),
         reply_body=Body.JSON),
    _row("GET_TOPICS_BY_CLUSTER", namesrv.GetTopicsByCluster, NAMESRV, reply_body=Body.JSON),
    _row("GET_SYSTEM_TOPIC_LIST_FROM_NS", namesrv.GetSystemTopicListFromNamesrv, NAMESRV,
         reply_body=Body.JSON),
    _row("GET_UNIT_TOPIC_LIST", namesrv.GetUnitTopicList, NAMESRV, reply_body=Body.JSON),
    _row("GET_HAS_UNIT_SUB_TOPIC_LIST", namesrv.GetHasUnitSubTopicList, NAMESRV,
         reply_body=Body.JSON),
    _row("GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST", namesrv.GetHasUnitSubUnunitTopicList, NAMESRV,
         reply_body=Body.JSON),
    _row("UPDATE_NAMESRV_CONFIG", namesrv.UpdateNamesrvConfig, NAMESRV, (Code.NO_PERMISSION,),
         body=Body.PROPERTIES),
    _row("GET_NAMESRV_CONFIG", namesrv.GetNamesrvConfig, NAMESRV, reply_body=Body.PROPERTIES),
    _row("QUERY_DATA_VERSION", namesrv.QueryDataVersion, NAMESRV,
         response=namesrv.QueryDataVersionResponse, body=Body.JSON, reply_body=Body.JSON),
    _row("PUT_USERS", namesrv.PutUsers, NAMESRV, body=Body.JSON, remoting=False),
)  # fmt: skip


def _table(rows: Iterable[RequestSpec]) -> Mapping[int, RequestSpec]:
    """The rows by code. Fails at import if a row contradicts itself or another."""
    table: dict[int, RequestSpec] = {}
    for spec in rows:
        assert spec.code not in table, f"{spec.name} repeats code {spec.code}"
        assert spec.answered_by, f"{spec.name} has no service that handles it"
        assert spec.name in REQUIREMENTS, f"{spec.name} has no row of needs"
        assert spec.remoting == (spec.code < 30_000), f"{spec.name} is on the wrong carrier"
        table[spec.code] = spec
    for spec in table.values():
        assert table[spec.header.code].header is spec.header, f"{spec.name} has no row of its own"
    return MappingProxyType(table)


REQUESTS: Mapping[int, RequestSpec] = _table(
    (
        *_SENDING,
        *_READING,
        *_CLIENTS,
        *_BROKER_ADMIN,
        *_FILTERS,
        *_BATCHES,
        *_REPLICATION,
        *_NAMESRV,
    )
)
"""Every request by its code."""


def not_supported(code: int) -> str:
    """The remark for an unsupported request; the leading blank is RocketMQ's."""
    text = f" request type {code} not supported"
    if code in ACCOUNTS_AT_BROKERS:
        text += " here: ask a broker; nothing was changed"
    if code == GET_BROKER_CLUSTER_ACL_CONFIG:
        text += ": no secret is ever shown; kourou user list shows the users"
    return text
