"""The broker's settings as its decisions need them: plain and typed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kourou.model.message import DELAY_LEVELS_MS


@dataclass(slots=True)
class BrokerPolicy:
    """The operator's settings. The comments have the keys in `broker.conf`.

    `change` assigns the field of a dynamic key again when its event is applied.
    """

    cluster_name: str  # brokerClusterName
    broker_name: str  # brokerName
    broker_id: int = 0  # brokerId
    permission: int = 6  # brokerPermission
    body_size_max: int = 4 * 1024 * 1024  # maxMessageSize
    auto_create_group: bool = True  # autoCreateSubscriptionGroup
    transfer_count_in_memory: int = 32  # maxTransferCountOnMessageInMemory
    transfer_bytes_in_memory: int = 262_144  # maxTransferBytesOnMessageInMemory
    transfer_count_on_disk: int = 8  # maxTransferCountOnMessageInDisk
    transfer_bytes_on_disk: int = 65_536  # maxTransferBytesOnMessageInDisk
    query_max: int = 32  # defaultQueryMaxNum
    progress_interval_ms: int = 5_000  # flushConsumerOffsetInterval
    client_expiry_ms: int = 120_000  # clients that are silent for this long are removed
    hold_ms_max: int = 30_000  # longPollingTimeMillsMax
    pull_bytes_max: int = 4 * 1024 * 1024  # maxPullBytes, for clients that state their budget
    notify_consumer_ids_changed: bool = True  # notifyConsumerIdsChangedEnable
    delay_levels_ms: tuple[int, ...] = DELAY_LEVELS_MS  # messageDelayLevel
    reject_transactions: bool = False  # rejectTransactionMessage
    transaction_timeout_ms: int = 6_000  # transactionTimeOut
    transaction_check_max: int = 15  # transactionCheckMax
    transaction_check_interval_ms: int = 60_000  # transactionCheckInterval
    store_replies: bool = True  # storeReplyMessageEnable
    long_polling: bool = True  # longPollingEnable
    slave_read: bool = False  # slaveReadEnable
    property_filter: bool = True  # enablePropertyFilter
    region_id: str = "DefaultRegion"  # regionId
    trace_on: bool = True  # traceOn
    group_subscription_policy: str = "warn"  # groupSubscriptionPolicy
    deduplicate_retried_sends: bool = True  # deduplicateRetriedSends
    reserved_hours: int = 72  # fileReservedTime
    delete_hours: tuple[int, ...] = (4,)  # deleteWhen
    disk_clean_percent: int = 75  # diskMaxUsedSpaceRatio
    disk_force_percent: int = 85  # diskSpaceCleanForciblyRatio
    disk_refuse_percent: int = 90  # diskSpaceWarningLevelRatio
    clean_forcibly: bool = True  # cleanFileForciblyEnable
    lose_unconsumed: bool = True  # allowLoseUnconsumed
    filter_upload: bool = True  # filterUploadEnable
    filter_auto_enable: bool = True  # filterAutoEnable
    filter_server_expiry_ms: int = 30_000  # filterServerExpiry
    batch_timeout_ms: int = 21_600_000  # batchTransactionTimeOut
    batch_memory_hours: int = 720  # batchQueryReservedTime

    def change(self, name: str, value: bool | int | str) -> None:
        """Assign the field of a dynamic key; a key of another component is ignored."""
        field = POLICY_FIELDS.get(name)
        if field is not None:
            setattr(self, field, value)


POLICY_FIELDS: Mapping[str, str] = {
    "brokerPermission": "permission",
    "maxMessageSize": "body_size_max",
    "autoCreateSubscriptionGroup": "auto_create_group",
    "maxTransferCountOnMessageInMemory": "transfer_count_in_memory",
    "maxTransferBytesOnMessageInMemory": "transfer_bytes_in_memory",
    "maxTransferCountOnMessageInDisk": "transfer_count_on_disk",
    "maxTransferBytesOnMessageInDisk": "transfer_bytes_on_disk",
    "maxPullBytes": "pull_bytes_max",
    "longPollingTimeMillsMax": "hold_ms_max",
    "defaultQueryMaxNum": "query_max",
    "notifyConsumerIdsChangedEnable": "notify_consumer_ids_changed",
    "rejectTransactionMessage": "reject_transactions",
    "transactionTimeOut": "transaction_timeout_ms",
    "transactionCheckMax": "transaction_check_max",
    "transactionCheckInterval": "transaction_check_interval_ms",
    "storeReplyMessageEnable": "store_replies",
    "longPollingEnable": "long_polling",
    "slaveReadEnable": "slave_read",
    "enablePropertyFilter": "property_filter",
    "traceOn": "trace_on",
    "deduplicateRetriedSends": "deduplicate_retried_sends",
    "fileReservedTime": "reserved_hours",
    "diskMaxUsedSpaceRatio": "disk_clean_percent",
    "diskSpaceCleanForciblyRatio": "disk_force_percent",
    "diskSpaceWarningLevelRatio": "disk_refuse_percent",
    "filterUploadEnable": "filter_upload",
    "filterAutoEnable": "filter_auto_enable",
    "filterServerExpiry": "filter_server_expiry_ms",
    "batchTransactionTimeOut": "batch_timeout_ms",
    "batchQueryReservedTime": "batch_memory_hours",
}
"""Dynamic keys of broker.conf that the core reads, and the BrokerPolicy field of each."""
