"""Kourou: a message broker suite, compatible with Apache RocketMQ's storage format and protocol.

The names that applications need are exported here. Each is imported at first use, so that importing
`kourou` for one of its layers costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from kourou.version import __version__ as __version__

if TYPE_CHECKING:
    from kourou.client.client import Client as Client
    from kourou.client.client import Producer as Producer
    from kourou.client.consumer.outcomes import ConsumedFirst as ConsumedFirst
    from kourou.client.consumer.outcomes import ConsumeOrderlyStatus as ConsumeOrderlyStatus
    from kourou.client.consumer.outcomes import ConsumeResult as ConsumeResult
    from kourou.client.consumer.outcomes import DeadLetter as DeadLetter
    from kourou.client.consumer.outcomes import RetryLater as RetryLater
    from kourou.client.consumer.outcomes import Suspend as Suspend
    from kourou.client.consumer.received import ReceivedMessage as ReceivedMessage
    from kourou.client.filters.expressions import Sql as Sql
    from kourou.client.filters.python_filter import Filter as Filter
    from kourou.client.settings.client_settings import ClientSettings as ClientSettings
    from kourou.client.settings.client_settings import ConsumerSettings as ConsumerSettings
    from kourou.client.settings.client_settings import ProducerSettings as ProducerSettings
    from kourou.client.settings.client_settings import PullConsumerSettings as PullConsumerSettings
    from kourou.client.settings.client_settings import load_settings as load_settings
    from kourou.client.transactions.transaction import Ending as Ending
    from kourou.errors import KourouError as KourouError
    from kourou.model.message import Message as Message
    from kourou.model.message import SendResult as SendResult
    from kourou.model.message import SendStatus as SendStatus
    from kourou.model.subscription import ConsumeFromWhere as ConsumeFromWhere
    from kourou.model.subscription import MessageModel as MessageModel
    from kourou.model.topic import MessageQueue as MessageQueue
    from kourou.model.transaction import TransactionState as TransactionState

_HOMES = {
    "Client": "kourou.client.client",
    "Producer": "kourou.client.client",
    "ConsumeOrderlyStatus": "kourou.client.consumer.outcomes",
    "ConsumeResult": "kourou.client.consumer.outcomes",
    "ConsumedFirst": "kourou.client.consumer.outcomes",
    "DeadLetter": "kourou.client.consumer.outcomes",
    "RetryLater": "kourou.client.consumer.outcomes",
    "Suspend": "kourou.client.consumer.outcomes",
    "Sql": "kourou.client.filters.expressions",
    "Filter": "kourou.client.filters.python_filter",
    "ReceivedMessage": "kourou.client.consumer.received",
    "ClientSettings": "kourou.client.settings.client_settings",
    "ConsumerSettings": "kourou.client.settings.client_settings",
    "ProducerSettings": "kourou.client.settings.client_settings",
    "PullConsumerSettings": "kourou.client.settings.client_settings",
    "load_settings": "kourou.client.settings.client_settings",
    "Ending": "kourou.client.transactions.transaction",
    "KourouError": "kourou.errors",
    "Message": "kourou.model.message",
    "SendResult": "kourou.model.message",
    "SendStatus": "kourou.model.message",
    "MessageQueue": "kourou.model.topic",
    "ConsumeFromWhere": "kourou.model.subscription",
    "MessageModel": "kourou.model.subscription",
    "TransactionState": "kourou.model.transaction",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(home), name)
    globals()[name] = found
    return found
