import struct
from collections.abc import Callable, Sequence

import pytest

from kourou.protocol.messages.sends import SendRecords, Target
from kourou.protocol.record.message_record import encode_draft
from kourou.protocol.record.properties import encode_properties
from kourou_rigs.access import SecuredBroker, Sender
from kourou_rigs.engine import Engine


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def broker() -> SecuredBroker:
    """A broker with the topics `orders` and `secret`, and no users."""
    made = SecuredBroker()
    made.create_topics("orders", "secret")
    return made


@pytest.fixture
def root(broker: SecuredBroker) -> Sender:
    """The administrator of the broker."""
    return broker.administrator()


@pytest.fixture
def draft() -> Callable[..., bytes]:
    def make(
        topic: str = "orders",
        queue_id: int = 0,
        body: bytes = b"hello",
        key: str = "",
        tag: str = "",
        keys: str = "",
    ) -> bytes:
        properties = {"UNIQ_KEY": key, "TAGS": tag, "KEYS": keys, "CLUSTER": "DefaultCluster"}
        return encode_draft(
            topic=topic.encode(),
            queue_id=queue_id,
            body=body,
            properties=encode_properties({n: v for n, v in properties.items() if v}),
            born_timestamp=1,
            born_host=bytes(8),
        )

    return make


@pytest.fixture
def records() -> Callable[..., tuple[SendRecords, bytes]]:
    def make(
        drafts: Sequence[bytes],
        targets: Sequence[tuple[str, int]] = (("orders", 0),),
        target_of: Sequence[int] = (),
        **fields: object,
    ) -> tuple[SendRecords, bytes]:
        request = SendRecords(
            targets=[Target(*target) for target in targets],
            target_of=struct.pack(f"<{len(target_of)}H", *target_of),
            sizes=struct.pack(f"<{len(drafts)}I", *map(len, drafts)),
            producer_group="p",
            default_topic="TBW102",
            default_topic_queue_nums=4,
            **fields,
        )
        return request, b"".join(drafts)

    return make
