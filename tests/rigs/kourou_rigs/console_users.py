"""A console of this process with users whose secrets a test knows, instead of those of brokers.

    with users_at(console, known := KnownSecrets({"till": "the-secret"})):
        console.post("/session", json={"user": "till", "secret": "the-secret"})

Requests of users go to the cluster as they would without users: who is asked for rights allows all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from kourou.errors import Rejected, Unavailable
from kourou_console.gateway import UserGateways
from kourou_console.http.access import AccessControl, Tokens
from kourou_console.http.sessions import Sessions
from kourou_console.http.sign_in import SignIns
from kourou_rigs.console import ConsoleHere


class HandTime:
    """Monotonic ms, moved by hand."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        """The time."""
        return self.now_ms


class KnownSecrets:
    """What brokers would say about secrets and subjects. `silent`: they do not reply."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self.secrets = dict(secrets)
        #: Users by the subjects of their certificates.
        self.subjects: dict[str, str] = {}
        #: Names of tokens by their SHA-256; those that begin with ! have expired.
        self.tokens: dict[str, str] = {}
        #: Hashes of passwords by user.
        self.passwords: dict[str, str] = {}
        self.silent = False

    async def credential(self, name: str, secret: str) -> Mapping[str, str]:
        """The id of the secret; empty if it is wrong."""
        self._check()
        return {"broker-a": secret} if self.secrets.get(name) == secret else {}

    async def has_credential(self, name: str, credential: Mapping[str, str]) -> bool:
        """Whether the user still has that secret."""
        self._check()
        return dict(credential) == {"broker-a": self.secrets.get(name)}

    async def password_hash(self, name: str) -> str:
        """The hash of the user's password."""
        self._check()
        return self.passwords.get(name, "")

    async def user_of_certificate(self, subject: str) -> str:
        """The user to whom certificates with the subject belong."""
        self._check()
        return self.subjects.get(subject, "")

    async def sender_of_token(self, digest: str) -> str:
        """The name of the token with the SHA-256."""
        self._check()
        name = self.tokens.get(digest, "")
        if name.startswith("!"):
            raise Rejected("the token has expired")
        return name

    def _check(self) -> None:
        if self.silent:
            raise Unavailable("no broker responds")


@contextmanager
def users_at(
    console: ConsoleHere,
    known: KnownSecrets,
    now_ms: Callable[[], int] | None = None,
    tokens: Tokens | None = None,
) -> Iterator[None]:
    """Let these users sign in at a started console, and owners of tokens call."""
    service, handler = console.service, console.service._handler
    assert handler is not None
    access, dispatch = handler._access, handler._dispatch
    now_ms = now_ms or HandTime()
    users = UserGateways(console.gateway, service._open_client)
    handler._access = AccessControl(tokens, (), Sessions(SignIns(known, now_ms), now_ms))
    dispatch._users = users
    try:
        yield
    finally:
        handler._access, dispatch._users = access, None
        console.run(users.close())
