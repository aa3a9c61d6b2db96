"""Transcripts: what a broker's core does with the requests of a short script.

A transcript is a text of scenarios. Each begins with a title and a new broker:

    == A waiting pull is answered by the next message

    > group g
      + GroupPut …
      1< SUCCESS
    > 2 pull g orders/0@1 suspend_timeout_millis=10000
    > send orders/0 news
      + orders/0@1 "news"
      …

A line that begins with `>` is a command, perhaps with the number of the connection that it comes
from (else 1). With `&` instead of `>` its request comes in the same turn as the one before, and
with `.` it is a preparation, whose effects are not shown. A line that begins with `#` is a remark.
The indented lines are the broker's effects, in their order:

    + …     a record that is appended: a message with its queue and offset, or a control event
    2< …    the reply to connection 2, with the messages in its body
    2! …    a notification to connection 2
    2? …    a request to the client of connection 2
    * …     any other effect
    warning …

Values: `pos(orders/0@1)` is the log position of a message, `id(orders/0@1)` its offset message ID,
`last()` the offset of the last control event, `properties(A=1 B=2)` RocketMQ's properties, and
`300*x` a text of 300 letters. The text after ` -- ` is the body of the request, in which `\\n` is a
new line.

A broker with users begins with `. administrator`, which creates user root. The word before a
command is then who sends it: `@till` by the CURVE key of the user, `@till:secret-of-till` with a
signature, and behind a `?` more of the connection: `@till?for=ann&address=10.0.0.1`, see SENDER.
Its reply is `till< …`, and `! …` is a line for the audit. `key(till)` is the user's CURVE key,
`digest(a)` the digest of a token and `token(a)` its ID, `hash()` a hash of a password, and
`now(1000)` the time in 1,000 ms. `user` and `allow` create users and policies.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from operator import attrgetter
from typing import Any

import msgspec

from kourou.access.api_token import OF_NO_USER, id_of, token_digest, token_of
from kourou.access.model import Effect, Pattern, Policy
from kourou.authorization.audit import AccessDecided
from kourou.engine.effects import Append
from kourou.engine.inputs import (
    ClosedSegment,
    DiskMeasured,
    LogShrunk,
    RegistrationDone,
    SpaceChanged,
    StoreFailed,
)
from kourou.engine.policy import BrokerPolicy
from kourou.errors import Code
from kourou.events.control_events import decode_record_body
from kourou.model.message import StoredMessage
from kourou.model.names import CONTROL_TOPIC
from kourou.model.subscription import MessageModel, Subscription
from kourou.protocol.bodies.access_bodies import encode_policies, parse_actions, policy_id
from kourou.protocol.bodies.heartbeat_body import ConsumerData, HeartbeatBody, encode_heartbeat
from kourou.protocol.messages.access import AuthCreateAcl, AuthCreateUser
from kourou.protocol.messages.groups import HeartBeat, UpdateAndCreateSubscriptionGroup
from kourou.protocol.messages.pulls import (
    PullFlag,
    PullMessage,
    QueryConsumerOffset,
    UpdateConsumerOffset,
)
from kourou.protocol.messages.sends import EndTransaction, SendMessage, SendRecords, Target
from kourou.protocol.record.layout import encode_batch
from kourou.protocol.record.message_id import encode_offset_id
from kourou.protocol.record.message_record import encode_draft
from kourou.protocol.record.properties import encode_properties
from kourou.protocol.request import Body, Request
from kourou.protocol.table import REQUESTS
from kourou.runtime import (
    AskClient,
    Buffer,
    ClientAnswered,
    Disconnected,
    LogWarning,
    Notify,
    Peer,
    Received,
    Reply,
)
from kourou.settings.declaration import settings_of
from kourou_rigs.access import (
    FIRST_PEER,
    SecuredBroker,
    Sender,
    curve_key,
    secret_box,
)
from kourou_rigs.engine import Engine
from kourou_rigs.records import decode_many

HOST = ("127.0.0.1", 10911)
HEADERS = {spec.header.__name__: spec.header for spec in REQUESTS.values()}
RECORD_BODIES = {
    spec.code for spec in REQUESTS.values() if spec.reply_body in (Body.RECORDS, Body.MESSAGE)
}
OUTCOMES = {"unknown": 0, "commit": 8, "rollback": 12}
BORN_MS = 1_700_000_000_000
BODY_SHOWN = 200
_UNSHOWN = ("runs", "born_timestamp")
_POSITIONS = ("commit_log_offset", "index_last_update_phyoffset")
_NO_QUEUE = "next_begin_offset=0 min_offset=0 max_offset=0"
_LEFT_OUT: Mapping[str, Sequence[object]] = {
    "suggest_which_broker_id": (0,),
    "target_remarks": ([""], ["", ""], ["", "", ""]),
}
"""Values of reply fields that say nothing."""

SENDER = {"address": "source", "door": "protocol", "listener": "listener", "certificate": "subject"}
"""What may stand behind the `?` of a sender; `for` is the user on whose behalf it sends."""

_PLACE = re.compile(r"(pos|id)\(([^()]+)/(\d+)@(\d+)\)")
_CLIENT = re.compile(r"local:127\.0\.0\.1:\d+#(\d+)")
_POSITION = re.compile(r'(position |"physicOffset":)(\d+)')
_REPEATED = re.compile(r"([\w#%]+=)?(\d+)\*(.+)", re.DOTALL)
_KEY = re.compile(r"key\(([\w-]+)\)")
_SHOWN_KEY = re.compile(r"([\w-]+)\.{10,}")
_DIGEST = re.compile(r"(digest|token)\(([\w-]+)\)")
_NOW = re.compile(r"now\((\d*)\)")
_SEALED = re.compile(r'("(?:nonce|ciphertext)":")[^"]*')
_PROPERTIES = re.compile(r"(properties=)properties\((.*)\)")


def performed(script: str) -> str:
    """The script with the effects that its commands have now."""
    told: list[str] = []
    scene = Scene()
    lines = [line for line in script.splitlines() if not line.startswith("  ")]
    for number, line in enumerate(lines):
        told.append(line)
        if line.startswith("== "):
            scene = Scene()
        elif line.startswith((">", "&", ".")):
            following = lines[number + 1 : number + 2]
            together = bool(following) and following[0].startswith("&")
            effects = list(scene.run(line[1:].strip(), together=together))
            told += [f"  {effect}" for effect in effects if not line.startswith(".")]
    return "\n".join(told) + "\n"


class Scene:
    """One broker, and what its clients do."""

    def __init__(self) -> None:
        self.engine = Engine()
        self._turn: list[Received] = []
        self._body = ""
        self._shown: list[str] = []
        self._peers: dict[tuple[int, Sender], Peer] = {}
        self._names: dict[int, str] = {}
        self._secured = SecuredBroker(self.engine)
        self._asked: dict[tuple[int, int], Request] = {}
        self._commands: Mapping[str, Callable[..., None]] = {
            name.removeprefix("_do_"): getattr(self, name)
            for name in dir(self)
            if name.startswith("_do_")
        }

    def run(self, command: str, *, together: bool) -> Iterator[str]:
        """Run a command; returns the effects, one a line, of its turn."""
        engine, before = self.engine, len(self.engine.effects)
        text, _, body = command.partition(" -- ")
        self._body = body.replace("\\n", "\n")
        words = [self._value(word) for word in shlex.split(text)]
        peer = int(words.pop(0)) if words[0].isdigit() else 0
        sender = words.pop(0) if words[0].startswith("@") else ""
        name = words.pop(0)
        named = dict(word.split("=", 1) for word in words if re.match(r"[\w#%]+=", word))
        rest = [word for word in words if not re.match(r"[\w#%]+=", word)]
        if name in self._commands:
            self._commands[name](*rest, **named)
        else:
            deadline = int(named.pop("deadline", 0))
            made = made_of(self, name, rest, named, self._value(self._body))
            self._add(peer, sender, *made, deadline)
        if self._turn and not together:
            turn, self._turn = self._turn, []
            self.engine.handle(*turn)
        if self.engine is engine:
            yield from self._told(before)
        yield from self._shown
        self._shown.clear()

    def _add(self, peer: int, sender: str, request: Request, body: bytes, in_ms: int) -> None:
        deadline_ms = self.engine.now_ms + in_ms if in_ms else 0
        if sender:
            received = self._sent_by(sender, peer, request, body)
            received.deadline_ms = deadline_ms
        else:
            _, received = self.engine.received(
                request, body, peer=peer or 1, deadline_ms=deadline_ms
            )
        self._asked[received.to.peer.id, received.to.correlation] = request
        self._turn.append(received)

    def _sent_by(self, text: str, number: int, request: Request, body: bytes) -> Received:
        """A request of a user, by a connection of its own if it has no number."""
        who, _, more = text.removeprefix("@").partition("?")
        name, _, secret = who.partition(":")
        given = dict(one.split("=", 1) for one in more.split("&") if one)
        user = given.pop("for", "")
        known: dict[str, Any] = {SENDER[option]: value for option, value in given.items()}
        key = curve_key(name) if name and not secret else ""
        sender = Sender(user=name, secret=secret, key=key, **known)
        at = (number, sender)
        if at not in self._peers:
            count = number or 10 * FIRST_PEER + len(self._peers)
            self._peers[at] = Peer(
                *(count, sender.protocol, (sender.source, 40_000)),
                *(sender.listener, sender.key, sender.subject),
            )
            self._names[count] = str(number or name or "anonymous")
        self._secured.engine = self.engine
        return self._secured.received(
            sender, request, body, over=self._peers[at], on_behalf_of=user
        )

    def _value(self, word: str) -> str:
        """A word with the places and repetitions that it names."""
        named = _PROPERTIES.fullmatch(word)
        if named:
            known = dict(one.split("=", 1) for one in named[2].split())
            return named[1] + encode_properties(known).decode()
        repeated = _REPEATED.fullmatch(word)
        if repeated:
            return (repeated[1] or "") + repeated[3] * int(repeated[2])
        word = word.replace("last()", str(self.engine.control.next_offset - 1))
        word = word.replace("hash()", OF_NO_USER)
        word = _NOW.sub(lambda found: str(self.engine.wall_ms + int(found[1] or 0)), word)
        word = _KEY.sub(lambda found: curve_key(found[1]), word)
        word = _DIGEST.sub(_token_or_digest, word)
        return _PLACE.sub(self._place, word)

    def _place(self, found: re.Match[str]) -> str:
        kind, topic, queue_id, offset = found.groups()
        position = self.engine.store.queues[topic, int(queue_id)][int(offset)]
        return str(position) if kind == "pos" else encode_offset_id(HOST, position)

    # -- commands that are no requests ------------------------------------------------------------

    def _do_broker(self, **options: str) -> None:
        """A broker with other options of Engine or BrokerPolicy; `settings` are dynamic ones."""
        known = {one.name for one in fields(BrokerPolicy)}
        values = {name: msgspec.json.decode(value) for name, value in options.items()}
        dynamic = values.pop("settings", ())
        if values.pop("secrets", False):
            values["secrets"] = secret_box()
        policy = {name: value for name, value in values.items() if name in known}
        others = {name: value for name, value in values.items() if name not in known}
        specs = [one for one in settings_of(BrokerPolicy) if one.key in dynamic]
        self.engine = Engine(
            policy=BrokerPolicy("DefaultCluster", "broker-a", **policy), specs=specs, **others
        )

    def _do_administrator(self) -> None:
        """The first user, root; a broker that cannot keep secrets is replaced by one that can."""
        if self.engine.secrets is None:
            self.engine = Engine(secrets=secret_box())
        self._secured.engine = self.engine
        self._secured.administrator()

    def _do_restart(self) -> None:
        old = self.engine
        self.engine = Engine(left=old.store, wall_ms=old.wall_ms)

    def _do_wait(self, ms: str) -> None:
        self.engine.advance(int(ms))

    def _do_flush(self) -> None:
        self.engine.flush()

    def _do_set(self, **settings: str) -> None:
        for key, value in settings.items():
            kind = int if value.lstrip("-").isdigit() else str
            known: bool | int | str = kind(value)
            if value in ("true", "false"):
                known = value == "true"
            self.engine.core.parts.apply(key, known)

    def _do_cold(self) -> None:
        """What is read is no longer in memory."""
        self.engine.store.recent = False

    def _do_warm(self) -> None:
        """What is read is in memory again."""
        self.engine.store.recent = True

    def _do_disconnect(self, peer: str) -> None:
        self.engine.handle(Disconnected(self.engine.peer(int(peer))))

    def _do_registered(self, number: str) -> None:
        self.engine.handle(RegistrationDone(int(number)))

    def _do_fail(self, reason: str) -> None:
        self.engine.handle(StoreFailed(reason))

    def _do_full(self) -> None:
        self.engine.core.parts.appends._allocated_end = self.engine.store.end
        self.engine.handle(SpaceChanged(0, full=True))

    def _do_room(self) -> None:
        self.engine.handle(SpaceChanged(1 << 62, full=False))

    def _do_answer(self, peer: str, token: str, code: str = "0", remark: str = "") -> None:
        said = ClientAnswered(
            int(token),
            self.engine.peer(int(peer)),
            code=int(code),
            remark=remark,
            body=(self._body.encode(),),
        )
        self.engine.handle(said)

    def _do_show(self, path: str) -> None:
        """A figure of the broker, as its statistics have it."""
        value = attrgetter(path)(self.engine.core.parts)
        value = value() if callable(value) else value
        self._shown.append(f"= {dict(value) if isinstance(value, Mapping) else value}")

    def _do_disk(
        self, *ages: str, used: str = "50", hour: str = "12", first: str = "0", **more: str
    ) -> None:
        """A disk of 100 segments, with closed segments of these ages in hours from `first` on."""
        size = self.engine.segment_size
        start = int(first) * size
        segments = [
            ClosedSegment(start + number * size, start + (number + 1) * size, int(age) * 3_600_000)
            for number, age in enumerate(ages)
        ]
        look = DiskMeasured(
            100 * size,
            round((100 - float(used)) * size),
            self.engine.wall_ms,
            int(hour),
            segments,
            deletable_end=int(more.get("deletable", start + len(ages) * size)),
            full=more.get("full") == "yes",
        )
        self.engine.handle(look)

    def _do_shrunk(self, start: str) -> None:
        self.engine.handle(LogShrunk(int(start)))

    # -- effects as text --------------------------------------------------------------------------

    def _told(self, before: int) -> Iterator[str]:
        for effect in self.engine.effects[before:]:
            match effect:
                case Append():
                    for _, data in effect.pieces:
                        yield from (f"+ {self._record(one)}" for one in decode_many(bytes(data)))
                case Reply():
                    yield from self._reply(effect)
                case Notify():
                    yield f"{self._name(effect.peer)}! {self._struct(effect.request)}"
                    yield from self._carried(effect.body)
                case AskClient():
                    asked = self._struct(effect.request)
                    until = f"token {effect.token}, {effect.timeout_ms} ms"
                    yield f"{self._name(effect.peer)}? {asked} ({until})"
                    yield from self._carried(effect.body)
                case AccessDecided():
                    yield f"! {self._places(noted(effect))}"
                case LogWarning():
                    yield f"warning {self._places(str(effect))}"
                case _:
                    shown = {one.name: getattr(effect, one.name) for one in fields(effect)}
                    shown.pop("number", None)
                    yield " ".join(["*", type(effect).__name__, *map(_pair, shown.items())])

    def _record(self, stored: StoredMessage) -> str:
        if stored.topic == CONTROL_TOPIC:
            recorded = decode_record_body(stored.body, offset=0, position=0)
            event = recorded.event
            said = f"{_json(_brief(event))} ({recorded.actor}: {recorded.reason})"
            return f"{event.type} {self._places(said)}"
        return self._message(stored)

    def _message(self, stored: StoredMessage) -> str:
        body = stored.body.decode("utf-8", "backslashreplace")
        if len(body) > BODY_SHOWN:
            body = f"{body[:10]}… {len(stored.body)} bytes"
        marks = {
            "flag": stored.flag,
            "sys_flag": int(stored.sys_flag),
            "reconsume_times": stored.reconsume_times,
            "prepared": self._at(stored.prepared_transaction_offset)
            if stored.prepared_transaction_offset
            else 0,
            **stored.properties,
        }
        known = [self._places(f"{name}={value}") for name, value in marks.items() if value]
        place = f"{stored.topic}/{stored.queue_id}@{stored.offset}"
        return " ".join([place, msgspec.json.encode(body).decode(), *known])

    def _at(self, position: int) -> str:
        """The place of the message at a position."""
        for (topic, queue_id), positions in self.engine.store.queues.items():
            if position in positions:
                first = self.engine.store.firsts.get((topic, queue_id), 0)
                return f"pos({topic}/{queue_id}@{positions.index(position) + first})"
        return str(position)

    def _places(self, text: str) -> str:
        """A text in which offset message IDs are places."""
        prefix = encode_offset_id(HOST, 0)[:-16]

        def place(found: re.Match[str]) -> str:
            return self._at(int(found[1], 16)).replace("pos(", "id(")

        text = re.sub(prefix + "([0-9A-F]{16})", place, text)
        text = _CLIENT.sub(r"client \1", text)
        text = _SHOWN_KEY.sub(r"key(\1)", text)
        text = _SEALED.sub(r"\1…", text)
        return _POSITION.sub(lambda found: found[1] + self._at(int(found[2])), text)

    def _struct(self, struct: Any) -> str:
        shown: dict[str, Any] = {}
        for one in msgspec.structs.fields(type(struct)):
            value = getattr(struct, one.name)
            said_nothing = value is None or value == one.default
            if said_nothing or one.name in _UNSHOWN or value in _LEFT_OUT.get(one.name, ()):
                continue
            if one.name in _POSITIONS:
                value = self._at(value)
            if one.name == "positions":
                value = [self._at(at) for at in value]
            shown[one.name] = value
        return self._places(" ".join([type(struct).__name__, *map(_pair, shown.items())]))

    def _name(self, peer: Peer) -> str:
        return self._names.get(peer.id, str(peer.id))

    def _reply(self, reply: Reply) -> Iterator[str]:
        words = [f"{self._name(reply.to.peer)}<", Code(reply.code).name]
        if reply.header is not None:
            _, _, shown = self._struct(reply.header).partition(" ")
            empty = not words[1].startswith("PULL") and shown == _NO_QUEUE
            words += [shown] if shown and not empty else []
        if reply.remark:
            words.append(f"({self._places(reply.remark)})")
        yield " ".join(words)
        asked = self._asked[reply.to.peer.id, reply.to.correlation]
        if asked.code in RECORD_BODIES:
            for part in reply.body:
                yield from (f"     {self._message(one)}" for one in decode_many(part))
        else:
            yield from self._carried(reply.body)

    def _carried(self, body: Sequence[Buffer]) -> Iterator[str]:
        data = b"".join(map(bytes, body))
        if data[:1] in (b"{", b"["):
            yield f"     {self._places(data.decode())}"
        elif int.from_bytes(data[:4], "big") == len(data):
            yield from (f"     {self._message(one)}" for one in decode_many(data))
        else:
            yield from (f"     {line}" for line in data.decode().splitlines())


def noted(decided: AccessDecided) -> str:
    """A line for the audit: the decision, who, the request, the need and what decided."""
    decision = "allowed" if decided.allowed else "observed" if decided.handled else "refused"
    more = {
        "source": decided.source if decided.source != "127.0.0.1" else "",
        "console": decided.console,
        "door": decided.door,
        "count": decided.count if decided.count > 1 else "",
    }
    return " ".join(
        [
            *(decision, decided.user, f"{decided.request}:", decided.need, f"({decided.by})"),
            *(_pair(one) for one in more.items() if one[1] != ""),
        ]
    )


def _token_or_digest(found: re.Match[str]) -> str:
    digest = digest_of(found[2])
    return id_of(digest) if found[1] == "token" else digest


def digest_of(name: str) -> str:
    """The digest of a token that is derived from a name."""
    return token_digest(token_of(name.encode().ljust(32, b"\0")))


def _pair(item: tuple[str, Any]) -> str:
    name, value = item
    if isinstance(value, str) and re.fullmatch(r"[^\x00-\x20=\"]+", value):
        return f"{name}={value}"
    shown = value if isinstance(value, int | str | list | dict | bool) else str(value)
    return f"{name}={_json(shown)}"


def _brief(value: Any) -> Any:
    """A value without the fields that have their defaults."""
    if isinstance(value, msgspec.Struct):
        told = {one.name: one.default for one in msgspec.structs.fields(type(value))}
    elif is_dataclass(value):
        told = {one.name: one.default for one in fields(value)}
    elif isinstance(value, Mapping):
        return {str(name): _brief(one) for name, one in value.items()}
    elif isinstance(value, list | tuple):
        return [_brief(one) for one in value]
    else:
        return value
    return {
        name: _brief(getattr(value, name))
        for name, default in told.items()
        if getattr(value, name) != default
    }


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


# -- requests -------------------------------------------------------------------------------------

Made = tuple[Request, bytes]


def made_of(
    scene: Scene, name: str, words: Sequence[str], named: Mapping[str, str], body: str
) -> Made:
    """The request that a command stands for."""
    short = _SHORT.get(name)
    if short is not None:
        return short(scene, words, dict(named))
    return _request(HEADERS[name], named), body.encode()


def _request(header: type[Request], named: Mapping[str, Any], **known: Any) -> Request:
    """A header from texts; `known` are the values that `named` may replace."""
    types = {one.name: one.type for one in msgspec.structs.fields(header)}
    values = {}
    for name, value in {**known, **named}.items():
        if isinstance(value, str):
            given = msgspec.json.decode(value) if value[:1] in ("[", "{") else value
            values[name] = msgspec.convert(given, types[name], strict=False)
        else:
            values[name] = value
    return header(**values)


def _queue(text: str) -> tuple[str, int, int]:
    """Topic, queue and offset of `orders/0@5`; the offset may be missing."""
    place, _, offset = text.partition("@")
    topic, _, queue_id = place.rpartition("/")
    return topic, int(queue_id), int(offset or 0)


def _split(header: type[Request], named: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Fields of the header, and properties: names in capitals."""
    known = {one.name for one in msgspec.structs.fields(header)}
    return (
        {name: value for name, value in named.items() if name in known},
        {name: value for name, value in named.items() if name not in known},
    )


def _send(scene: Scene, words: Sequence[str], named: dict[str, str]) -> Made:
    """`send TOPIC/QUEUE BODY… PROPERTY=… field=…`: as RocketMQ's client; several are a batch."""
    topic, queue_id, _ = _queue(words[0])
    header, properties = _split(SendMessage, named)
    bodies = [one.encode() for one in words[1:]]
    request = _request(
        SendMessage,
        header,
        producer_group="p",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=queue_id,
        born_timestamp=BORN_MS,
        properties=encode_properties(properties).decode(),
        batch=len(bodies) > 1,
    )
    return request, encode_batch([(0, one, b"") for one in bodies]) if len(bodies) > 1 else bodies[
        0
    ]


def _records(scene: Scene, words: Sequence[str], named: dict[str, str]) -> Made:
    """`records TOPIC/QUEUE BODY… [TOPIC/QUEUE BODY…]`: one frame, as Kourou's own client."""
    header, properties = _split(SendRecords, named)
    targets: list[Target] = []
    target_of: list[int] = []
    drafts: list[bytes] = []
    for word in words:
        if re.fullmatch(r"[^/\s]+/-?\d+", word):
            topic, queue_id, _ = _queue(word)
            targets.append(Target(topic, queue_id))
            continue
        body, *own = word.split("|")
        known = {**properties, **dict(one.split("=", 1) for one in own)}
        target = targets[-1]
        target_of.append(len(targets) - 1)
        drafts.append(
            encode_draft(
                topic=target.topic.encode(),
                queue_id=max(target.queue_id, 0),
                body=body.encode(),
                properties=encode_properties(known),
                born_timestamp=BORN_MS,
                born_host=bytes(8),
            )
        )
    request = _request(
        SendRecords,
        header,
        targets=targets,
        target_of=b"".join(one.to_bytes(2, "little") for one in target_of),
        sizes=b"".join(len(draft).to_bytes(4, "little") for draft in drafts),
        producer_group="p",
        default_topic="TBW102",
        default_topic_queue_nums=4,
    )
    return request, b"".join(drafts)


def _pull(scene: Scene, words: Sequence[str], named: dict[str, str]) -> Made:
    """`pull GROUP TOPIC/QUEUE@OFFSET [EXPRESSION]`; without one the heartbeat's is used."""
    topic, queue_id, offset = _queue(words[1])
    flags = PullFlag.SUBSCRIPTION if len(words) > 2 else 0
    if "suspend_timeout_millis" in named:
        flags |= PullFlag.SUSPEND
    if "commit_offset" in named:
        flags |= PullFlag.COMMIT_OFFSET
    known = {
        "consumer_group": words[0],
        "topic": topic,
        "queue_id": queue_id,
        "queue_offset": offset,
        "max_msg_nums": 32,
        "sys_flag": int(flags),
        "subscription": words[2] if len(words) > 2 else "",
    }
    return _request(PullMessage, named, **known), b""


def _user(scene: Scene, words: Sequence[str], named: dict[str, str]) -> Made:
    """`user NAME ROLE…`: create a user with a key and the secret secret-of-NAME."""
    name, *roles = words
    body = {
        "password": f"secret-of-{name}",
        "roles": roles,
        "curveKeys": [curve_key(name)],
        **{field: _json_or_text(value) for field, value in named.items()},
    }
    return AuthCreateUser(username=name), msgspec.json.encode(body)


def _allow(scene: Scene, words: Sequence[str], named: dict[str, str]) -> Made:
    """`allow USER RESOURCE ACTION… [effect=deny]`: add a policy."""
    user, resource, *actions = words
    pattern, effect = Pattern.parse(resource), Effect(named.pop("effect", "allow"))
    policy = Policy(
        id=policy_id(user, pattern, effect),
        user=user,
        resource=pattern,
        actions=parse_actions(actions),
        effect=effect,
        **{field: _json_or_text(value) for field, value in named.items()},
    )
    return AuthCreateAcl(subject=f"User:{user}"), encode_policies(user, [policy])


def _json_or_text(value: str) -> Any:
    return msgspec.json.decode(value) if value[:1] in ("[", "{") else value


def _beat(scene: Scene, words: Sequence[str], named: dict[str, str]) -> Made:
    """`beat CLIENT [GROUP TOPIC EXPRESSION] [type= version= model= filter= producer=]`."""
    client, *rest = words
    producers = tuple(named["producer"].split(",")) if "producer" in named else ()
    consumers = []
    for at in range(0, len(rest), 3):
        group, topic, text = rest[at : at + 3]
        wanted = Subscription(
            topic,
            text,
            named.get("type", "TAG"),
            version=int(named.get("version", 1)),
            class_filter_mode="filter" in named,
        )
        model = MessageModel(named.get("model", MessageModel.CLUSTERING))
        consumers.append(ConsumerData(group, message_model=model, subscriptions=(wanted,)))
    return HeartBeat(), encode_heartbeat(HeartbeatBody(client, producers, tuple(consumers)))


def _group(scene: Scene, words: Sequence[str], named: dict[str, str]) -> Made:
    """`group NAME key=value`: create or change it; names and values as in JSON."""
    config = {"groupName": words[0]} | {
        name: msgspec.json.decode(value) for name, value in named.items()
    }
    return UpdateAndCreateSubscriptionGroup(), msgspec.json.encode(config)


def _topic(scene: Scene, words: Sequence[str], named: dict[str, str]) -> Made:
    """`topic NAME READ WRITE PERM`: create or change it."""
    name, read, write, perm = words
    header = HEADERS["UpdateAndCreateTopic"]
    known = {"topic": name, "read_queue_nums": read, "write_queue_nums": write, "perm": perm}
    return _request(header, named, **known), b""


def _commit(scene: Scene, words: Sequence[str], named: dict[str, str]) -> Made:
    """`commit GROUP TOPIC/QUEUE@OFFSET`."""
    topic, queue_id, offset = _queue(words[1])
    known = {"consumer_group": words[0], "topic": topic, "queue_id": queue_id}
    return _request(UpdateConsumerOffset, named, **known, commit_offset=offset), b""


def _offset(scene: Scene, words: Sequence[str], named: dict[str, str]) -> Made:
    """`offset GROUP TOPIC/QUEUE`: the progress of a group."""
    topic, queue_id, _ = _queue(words[1])
    known = {"consumer_group": words[0], "topic": topic, "queue_id": queue_id}
    return _request(QueryConsumerOffset, named, **known), b""


def _half(scene: Scene, words: Sequence[str], named: dict[str, str]) -> Made:
    """`half TOPIC/QUEUE BODY PROPERTY=…`: the first phase of a transaction of group PGT."""
    properties = {"TRAN_MSG": "true", "PGROUP": "PGT", "UNIQ_KEY": words[1]}
    flags = {"sys_flag": "4", "producer_group": "PGT"}
    return _send(scene, words, {**properties, **flags, **named})


def _end(scene: Scene, words: Sequence[str], named: dict[str, str]) -> Made:
    """`end OFFSET commit`: resolve the half message with this offset, as its producer would."""
    outcome = OUTCOMES[words[1]]
    known = {
        "producer_group": "PGT",
        "tran_state_table_offset": words[0],
        "commit_log_offset": scene.engine.store.queues["RMQ_SYS_TRANS_HALF_TOPIC", 0][
            int(words[0])
        ],
        "commit_or_rollback": outcome,
        "msg_id": "U",
    }
    return _request(EndTransaction, named, **known), b""


def _filter(scene: Scene, words: Sequence[str], named: dict[str, str]) -> Made:
    """`filter GROUP NAME SOURCE`: upload a filter."""
    group, name, source = words
    digest = hashlib.sha256(source.encode()).hexdigest()
    header = HEADERS["PutFilter"]
    return _request(header, named, consumer_group=group, name=name, sha256=digest), source.encode()


_SHORT: Mapping[str, Callable[[Scene, Sequence[str], dict[str, str]], Made]] = {
    "send": _send,
    "records": _records,
    "pull": _pull,
    "user": _user,
    "allow": _allow,
    "beat": _beat,
    "group": _group,
    "topic": _topic,
    "commit": _commit,
    "offset": _offset,
    "half": _half,
    "end": _end,
    "filter": _filter,
}
