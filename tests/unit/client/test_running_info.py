"""Settings as text, for those who ask a consumer what it is."""

from __future__ import annotations

from kourou.client.running_info import properties_of
from kourou.client.settings import ConsumerSettings
from kourou.model.subscription import MessageModel


class Store:
    async def load(self, queue):
        return None

    async def save(self, offsets):
        pass


def test_every_setting_is_told_by_its_key():
    settings = ConsumerSettings(
        consumer_group="g",
        message_model=MessageModel.BROADCASTING,
        subscription={"T": "a || b", "U": "*"},
        offset_store=Store(),
    )
    told = properties_of(settings)
    assert told.keys() == ConsumerSettings.by_key().keys()
    assert told["consumerGroup"] == "g"
    assert told["messageModel"] == "BROADCASTING"
    assert told["consumeThreadMax"] == "20"
    assert told["subscription"] == "T=a || b;U=*"
    assert told["offsetStore"] == "Store"
    assert told["allocateMessageQueueStrategy"] == "AVG"
    assert told["messageListener"] == ""
    assert all(isinstance(value, str) for value in told.values())
