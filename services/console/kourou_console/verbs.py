"""Maps the commands of `kourou admin` to operations.

A test compares it with the commands and with the operations, so that none is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping

VERBS: Mapping[str, tuple[str, ...]] = {
    # topics
    "updateTopic": ("put_topic",),
    "updateTopicPerm": ("put_topic_permission",),
    "deleteTopic": ("delete_topic",),
    "topicList": ("topics",),
    "topicRoute": ("topic_route",),
    "topicStatus": ("topic_status",),
    "topicClusterList": ("topic",),
    "updateOrderConf": ("topic_order", "put_topic_order", "delete_topic_order"),
    "allocateMQ": ("topic_allocation",),
    "statsAll": ("topic_counters",),
    # groups, progress, dead letters
    "updateSubGroup": ("put_group",),
    "deleteSubGroup": ("delete_group",),
    "subGroupList": ("groups",),
    "getConsumerConfig": ("group",),
    "consumerProgress": ("group_lag", "groups"),
    "consumerConnection": ("group_members",),
    "producerConnection": ("producers_of_group",),
    "producer": ("producers",),
    "consumerStatus": ("member_running", "group_subscriptions"),
    "brokerConsumeStats": ("broker_progress",),
    "resetOffsetByTime": ("reset_offsets",),
    "skipAccumulatedMessage": ("skip_accumulation",),
    "cloneGroupOffset": ("clone_offsets",),
    "deadLetters": ("list_dead_letters", "list_dead_letter_groups"),
    "resendDeadLetters": ("begin_redrive",),
    "discardDeadLetters": ("discard_dead_letters",),
    # messages
    "queryMsgById": ("get_message", "consume_directly"),
    "queryMsgByUniqueKey": ("get_message", "consume_directly"),
    "queryMsgByKey": ("find_messages",),
    "queryMsgByOffset": ("browse_queue",),
    "queryMsgTraceById": ("get_message_trace",),
    "messageTrack": ("explain_message",),
    "why": ("explain_message",),
    "printMsg": ("find_messages", "browse_queue"),
    "printMsgByQueue": ("browse_queue",),
    "queryCq": ("queue_units",),
    "sendMessage": ("send_message",),
    "consumeMessage": ("tail_topic", "browse_queue"),
    # brokers, clusters, name servers
    "clusterList": ("cluster",),
    "brokerStatus": ("broker_runtime",),
    "replicas": ("broker_replicas",),
    "promote": ("promote",),
    "transfer-leader": ("transfer_leader",),
    "getBrokerConfig": ("broker_config",),
    "updateBrokerConfig": ("update_broker_config",),
    "wipeWritePerm": ("broker_write_permission",),
    "addWritePerm": ("broker_write_permission",),
    "deleteExpiredCommitLog": ("clean_broker",),
    "cleanExpiredCQ": ("clean_broker",),
    "cleanUnusedTopic": ("clean_broker",),
    "getNamesrvConfig": ("name_servers",),
    "updateNamesrvConfig": ("update_name_servers",),
    "updateKvConfig": ("put_name_server_value",),
    "deleteKvConfig": ("delete_name_server_value",),
    "getKvConfig": ("name_server_values",),
    "exportMetadata": ("export_metadata",),
    "exportConfigs": ("export_configs",),
    "exportMetrics": ("export_metrics",),
    # filters
    "filter list": ("filters",),
    "filter show": ("filter", "filter_source"),
    "filter put": ("put_filter",),
    "filter enable": ("enable_filter",),
    "filter disable": ("disable_filter",),
    "filter rollback": ("roll_back_filter",),
    "filter policy": ("set_filter_policy",),
    "filter delete": ("delete_filter",),
    "filter try": ("try_filter",),
    "filter stats": ("filter_statistics",),
    # tests and monitoring
    "sendMsgStatus": ("probe",),
    "checkMsgSendRT": ("probe",),
    "clusterRT": ("probe",),
    "startMonitoring": ("alarms", "group_subscriptions"),
}
"""Command -> names of operations."""

LEFT_OUT: Mapping[str, str] = {}
"""Command -> why there is no operation for it. Currently all commands have one."""
