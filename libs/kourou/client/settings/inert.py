"""Keys of RocketMQ's clients that have no effect in Kourou.

They are accepted with a warning, so that properties files of existing clients can be reused; their
usual value causes no warning. Keys are refused if ignoring them would do harm (messages in clear
text, or in another topic than intended).
"""

from __future__ import annotations

from collections.abc import Mapping

from kourou.client.settings.declaration import InertKey

CLIENT_KEYS: Mapping[str, InertKey] = {
    "accessChannel": InertKey("LOCAL", "it selects a vendor's cloud"),
    "decodeDecompressBody": InertKey("true", "bodies are decompressed when they are looked at"),
    "decodeReadBody": InertKey("true", "bodies are read when they are looked at"),
    "enableStreamRequestType": InertKey("false", "requests have one type"),
    "language": InertKey("JAVA", "brokers treat all languages alike"),
    "namespace": InertKey(
        "", "give topics and groups their full names, namespace%name", refused=True
    ),
    "namespaceInitialized": InertKey("false", "there are no namespaces"),
    "unitMode": InertKey("false", "brokers make no difference between units; unitName counts"),
    "vipChannelEnabled": InertKey("false", "a broker has one port for clients"),
}
"""RocketMQ 4.9 `ClientConfig`."""

PRODUCER_KEYS: Mapping[str, InertKey] = {
    "latencyMax": InertKey("", "the table of latencies is fixed"),
    "notAvailableDuration": InertKey("", "the table of latencies is fixed"),
    "retryTimesWhenSendAsyncFailed": InertKey(
        "2", "retryTimesWhenSendFailed counts for all ways of sending"
    ),
    "sendMessageWithVIPChannel": InertKey("false", "a broker has one port for clients"),
    "unitMode": InertKey("false", "brokers make no difference between units; unitName counts"),
}
"""RocketMQ 4.9 `DefaultMQProducer`."""

CONSUMER_KEYS: Mapping[str, InertKey] = {
    "adjustThreadPoolNumsThreshold": InertKey("100000", "RocketMQ does nothing with it either"),
    "popBatchNums": InertKey("32", "messages are pulled"),
    "popInvisibleTime": InertKey("60000", "messages are pulled"),
    "popThresholdForQueue": InertKey("96", "messages are pulled"),
    "postSubscriptionWhenPull": InertKey("false", "every pull carries its subscription"),
    "unitMode": InertKey("false", "brokers make no difference between units; unitName counts"),
}
"""RocketMQ 4.9 `DefaultMQPushConsumer`, with the keys for pop consumption of version 5."""

PULL_CONSUMER_KEYS: Mapping[str, InertKey] = {
    "maxReconsumeTimes": InertKey("16", "pull consumers decide about attempts themselves"),
    "unitMode": InertKey("false", "brokers make no difference between units; unitName counts"),
}
"""RocketMQ 4.9 `DefaultMQPullConsumer`."""
