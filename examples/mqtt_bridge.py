"""A bridge to MQTT devices: their reports become messages, and commands for them are published.

Requires an MQTT broker (such as Mosquitto) at MQTT_HOST and MQTT_PORT, and `pip install paho-mqtt`.
"""

from __future__ import annotations

import os
import signal
import threading

from paho.mqtt.client import CallbackAPIVersion, MQTTMessage
from paho.mqtt.client import Client as Mqtt

from kourou import ReceivedMessage
from kourou.errors import KourouError
from kourou.sync import Client

ADDRESS = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
MQTT_HOST = os.environ.get("MQTT_HOST", "127.0.0.1")
MQTT_PORT = int(os.environ.get("MQTT_PORT", "1883"))

REPORTS = "device-reports"
COMMANDS = "device-commands"
TIMEOUT_S = 10


class Bridge:
    """At-least-once in both directions: a message is acknowledged when the other side has stored
    it.
    """

    def __init__(self, mq: Client) -> None:
        self._mq = mq
        self._ending = threading.Event()
        # The MQTT broker keeps a session of this name, with its unfinished messages, while we are
        # offline.
        self._mqtt = Mqtt(
            CallbackAPIVersion.VERSION2, "kourou-bridge", clean_session=False, manual_ack=True
        )
        self._mqtt.on_connect = lambda client, *_: client.subscribe("devices/+/report", qos=1)
        self._mqtt.on_message = self._report

    def __enter__(self) -> Bridge:
        self._mqtt.connect(MQTT_HOST, MQTT_PORT)
        self._mqtt.loop_start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._mqtt.disconnect()
        self._mqtt.loop_stop()

    def _report(self, mqtt: Mqtt, _: object, report: MQTTMessage) -> None:
        """Forward a report. Reports of one device stay in order: one key, hence one queue.

        A report is acknowledged only when it is stored; the next one waits until then.
        """
        device = report.topic.split("/")[1]
        while not self._ending.is_set():
            try:
                self._mq.send(REPORTS, report.payload, keys=[device], order_key=device)
            except KourouError as error:  # raised after all of the client's own retries
                print(f"not stored yet: {error}", flush=True)
            else:
                mqtt.ack(report.mid, report.qos)
                print(f"{device} reports: {report.payload!r}", flush=True)
                return

    def command(self, message: ReceivedMessage) -> None:
        """Publish a command; after a timeout, the exception causes a retry of the message."""
        device = message.keys[0]
        published = self._mqtt.publish(f"devices/{device}/command", message.raw_body, qos=1)
        published.wait_for_publish(TIMEOUT_S)
        if not published.is_published():
            raise TimeoutError(f"the MQTT broker has not taken the command for {device}")
        print(f"command for {device}: {message.raw_body!r}", flush=True)


def main() -> None:
    """Run until Ctrl-C."""
    asked, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell)  # a signal writes a byte to this pipe at any time
    signal.signal(signal.SIGINT, lambda *_: None)
    with Client(ADDRESS, group="mqtt-bridge") as mq, Bridge(mq) as bridge:
        for topic in (REPORTS, COMMANDS):
            mq.admin.topics.create(topic)
        with mq.listen(COMMANDS, bridge.command, ordered=True):
            print("carrying; Ctrl-C ends it", flush=True)
            os.read(asked, 1)
    print("closed: what was not carried yet is kept where it is")


if __name__ == "__main__":
    main()
