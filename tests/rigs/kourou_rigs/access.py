"""A broker's core with users, and requests that they sign or send with their CURVE keys."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from kourou.access.api_token import id_of, token_digest, token_of
from kourou.access.model import Effect, Pattern, Policy
from kourou.access.signature import ACCESS_KEY, SIGNATURE, SignedFields, sign
from kourou.authorization.access_table import AccessAggregate
from kourou.authorization.request_gate import SecretBox
from kourou.events.control_events import Recorded, decode_record_body
from kourou.model.names import AUTO_CREATE_TOPIC
from kourou.model.units import DAY_MS
from kourou.protocol.bodies.access_bodies import encode_policies, parse_actions, policy_id
from kourou.protocol.messages.access import AuthCreateAcl, AuthCreateUser, CreateApiToken
from kourou.protocol.messages.broker_admin import UpdateAndCreateTopic
from kourou.protocol.messages.sends import SendMessage
from kourou.protocol.request import Request, RequestSpec
from kourou.protocol.table import REQUESTS
from kourou.protocol.wire.ext_fields import encode_ext_fields
from kourou.protocol.wire.remoting import VERSION_4_9_8
from kourou.runtime import Buffer, Peer, Received, Reply, ReplyTo
from kourou.service.secret_keys import SecretKeys
from kourou_rigs.engine import Engine

FIRST_PEER = 1_000


def secret_box() -> SecretBox:
    """The box that keeps secrets in these tests."""
    return SecretKeys({"k1": bytes(range(32))})


def curve_key(name: str) -> str:
    """The CURVE public key of a user: as long as a real one."""
    return f"{name:.<40}"


@dataclass(slots=True)
class SignedReplyTo(ReplyTo):
    """The reply address of a request by remoting; `signed` as RemotingReplyTo has it."""

    signed: SignedFields | None = field(default=None, repr=False)
    version: int = VERSION_4_9_8


@dataclass(frozen=True, kw_only=True)
class Sender:
    """Where a request comes from, and the credentials that it brings."""

    user: str = ""
    secret: str = ""
    key: str = ""
    subject: str = ""
    source: str = "127.0.0.1"
    protocol: str = "local"
    listener: str = "internal"
    version: int = VERSION_4_9_8


ANYBODY = Sender()
"""Without credentials."""


@dataclass
class SecuredBroker:
    """An engine, its users' senders, and what came back."""

    engine: Engine = field(default_factory=lambda: Engine(secrets=secret_box()))
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(FIRST_PEER))

    @property
    def access(self) -> AccessAggregate:
        """The table of users."""
        return self.engine.control.access

    def received(
        self,
        sender: Sender,
        request: Request,
        *body: Buffer,
        signed: Mapping[str, str | None] | None = None,
        oneway: bool = False,
        over: Peer | None = None,
        on_behalf_of: str = "",
    ) -> Received:
        """A request as an input: signed if the sender has a secret.

        `signed` are the fields with their signature, if they are not those of the request. `over`
        is its connection, if it is not a new one.
        `on_behalf_of` is the user that the frame names.
        """
        number = next(self._numbers)
        address = (sender.source, 40_000)
        peer = over or Peer(
            number, sender.protocol, address, sender.listener, sender.key, sender.subject
        )
        fields = signed
        if fields is None and sender.secret:
            fields = signed_fields(sender, request, *body)
        proof = None if fields is None else SignedFields.of(fields)
        to = SignedReplyTo(peer, number, oneway, b"", proof, sender.version)
        given = Received(to, request, list(body), self.engine.wall_ms)
        given.on_behalf_of = on_behalf_of
        return given

    def give(self, *inputs: Received) -> list[Reply | None]:
        """Handle these requests in one batch; their replies, None where there is none yet."""
        self.engine.handle(*inputs)
        replies = self.engine.replies
        return [replies.get((one.to.peer.id, one.to.correlation)) for one in inputs]

    def ask(self, sender: Sender, request: Request, *body: Buffer, **how: Any) -> Reply:
        """Send a request and return its reply, which must be available immediately."""
        [reply] = self.give(self.received(sender, request, *body, **how))
        assert reply is not None, "no reply"
        return reply

    def create_topics(self, *names: str) -> None:
        """Create topics of one queue, while there are no users."""
        for name in names:
            reply = self.ask(ANYBODY, new_topic(name))
            assert reply.code == 0, reply.remark

    def create(self, by: Sender, name: str, *roles: str, secret: str = "", **fields: Any) -> Sender:
        """Create a user with roles, a secret and a CURVE key; return its requests' sender."""
        made = Sender(user=name, secret=secret or f"secret-of-{name}", key=curve_key(name))
        body = {
            "password": made.secret,
            "roles": list(roles),
            "curveKeys": [made.key],
            **fields,
        }
        reply = self.ask(by, AuthCreateUser(username=name), msgspec.json.encode(body))
        assert reply.code == 0, reply.remark
        return made

    def administrator(self, name: str = "root") -> Sender:
        """Create the first user."""
        return self.create(ANYBODY, name, "administrator")

    def allow(self, by: Sender, name: str, resource: str, *actions: str, **fields: Any) -> Reply:
        """Give a user a policy; `effect`, `networks` and `until_ms` as in Policy."""
        pattern = Pattern.parse(resource)
        effect = Effect(fields.pop("effect", Effect.ALLOW))
        policy = Policy(
            id=policy_id(name, pattern, effect),
            user=name,
            resource=pattern,
            actions=parse_actions(actions),
            effect=effect,
            **fields,
        )
        request = AuthCreateAcl(subject=f"User:{name}")
        return self.ask(by, request, encode_policies(name, [policy]))

    def token(self, by: Sender, name: str, scope: str) -> str:
        """Give a user a token for a day; return the name of who sends requests with it."""
        digest = token_digest(token_of(bytes([next(self._numbers) % 256]) * 32))
        now_ms = self.engine.wall_ms
        request = CreateApiToken(
            username=name,
            digest=digest,
            scope=scope,
            created_ms=now_ms,
            expires_ms=now_ms + DAY_MS,
        )
        reply = self.ask(by, request)
        assert reply.code == 0, reply.remark
        return f"{name}:{id_of(digest)}"

    def events(self) -> Sequence[Recorded]:
        """All control events, as they are read back from the log."""
        return [
            decode_record_body(one.body, offset=one.offset, position=one.position)
            for one in self.engine.events()
        ]


def signed_fields(sender: Sender, request: Request, *body: Buffer) -> dict[str, str | None]:
    """The fields of a request as a client of RocketMQ signs them."""
    spec = REQUESTS[request.code]
    fields: dict[str, str | None] = {
        **encode_ext_fields(request, short_names=spec.short_names),
        ACCESS_KEY: sender.user,
    }
    pieces = [bytes(piece) for piece in body]
    return {**fields, SIGNATURE: sign(fields, pieces, sender.secret)}


def new_topic(name: str, perm: int = 6) -> UpdateAndCreateTopic:
    """A request that creates a topic of one queue, or changes its permission."""
    return UpdateAndCreateTopic(topic=name, read_queue_nums=1, write_queue_nums=1, perm=perm)


def send_to(topic: str, **fields: Any) -> SendMessage:
    """The request that sends one message."""
    return SendMessage(
        **{
            "producer_group": "p",
            "topic": topic,
            "default_topic": AUTO_CREATE_TOPIC,
            "default_topic_queue_nums": 1,
            "queue_id": 0,
            "born_timestamp": 1,
            **fields,
        }
    )


def stored_at(broker: SecuredBroker, topic: str) -> int:
    """The log position of the newest message of a topic."""
    return broker.engine.stored(topic)[-1].position


def sample_request(spec: RequestSpec, known: Mapping[str, Any]) -> Any:
    """A request with these values, and with empty ones for what it requires besides."""
    hints = get_type_hints(spec.header)
    return spec.header(
        **{
            field.name: known[field.name] if field.name in known else _empty(hints[field.name])
            for field in msgspec.structs.fields(spec.header)
            if field.name in known or field.required
        }
    )


def _empty(hint: Any) -> Any:
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    kind = get_origin(options[0]) or options[0]
    return kind()
