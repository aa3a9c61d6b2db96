"""TLS of a listener: its files, the context of new connections, and the reload of changed files.

Listeners for RocketMQ's clients and HTTP servers share it; their names follow RocketMQ's settings.
A context is never changed: a reload makes a new one, so an open connection keeps the certificate
and the authorities with which it began. There is no self-signed certificate: without files there is
no TLS.

Contents of keys and passwords are never printed, logged or included in an error.

State: soft (the context of the files when last read; they are read again when they have changed).
"""

from __future__ import annotations

import enum
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from kourou.access.subject import subject_text
from kourou.errors import ConfigError
from kourou.model.limits import TLS_FILE_BYTES_MAX

if TYPE_CHECKING:
    from kourou.access.subject import Rdns

_log = logging.getLogger("kourou.transport")

Signature = tuple[tuple[int, int, int] | None, ...]

TLS_HANDSHAKE = b"\x16"
"""The first byte of every TLS connection."""


class TlsMode(enum.StrEnum):
    """What a listener for RocketMQ's clients accepts: clear text, both, or TLS only."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ClientAuth(enum.StrEnum):
    """Whether clients present a certificate; one that is presented is always verified."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


_VERIFY = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.OPTIONAL: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRE: ssl.CERT_REQUIRED,
}


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The PEM files of a listener. `trust` holds the authorities that sign client certificates."""

    certificate: Path
    key: Path
    key_password: Path | None = None
    trust: Path | None = None
    client_auth: ClientAuth = ClientAuth.NONE

    def signature(self) -> Signature:
        """Return what changes whenever a file is replaced or written."""
        return tuple(
            _signature(path)
            for path in (self.certificate, self.key, self.key_password, self.trust)
            if path is not None
        )

    def context(self) -> ssl.SSLContext:
        """Read the files. Raises ConfigError if one cannot be used, or the pair does not match."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        # Without tickets a client cannot return with the rights of an earlier handshake.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        _load_pair(context, self.certificate, self.key, self._password)
        if self.trust is not None:
            _load_authorities(context, self.trust)
        context.verify_mode = _VERIFY[self.client_auth]
        return context

    def _password(self) -> bytes:
        """Called for an encrypted key only; without it OpenSSL would ask on the terminal."""
        if self.key_password is None:
            raise ConfigError(
                f"the key in {self.key} is encrypted, and its password is not known",
                hint="name a file with the password in tls.server.keyPasswordFile",
            )
        return _read(self.key_password).removesuffix(b"\n").removesuffix(b"\r")


class ServerTls:
    """TLS of the listeners of a process. Raises ConfigError if the files cannot be used.

    `context` is that of new connections. `enforcing`: connections in clear text are closed.
    `requires_certificates`: so are those without a certificate of a trusted authority.
    """

    def __init__(self, files: TlsFiles, *, enforcing: bool) -> None:
        self.enforcing = enforcing
        self.requires_certificates = files.client_auth is ClientAuth.REQUIRE
        self._files = files
        self._signature = files.signature()
        self.context = files.context()

    def refresh(self) -> None:
        """Read the files again if they have changed. Files that cannot be used change nothing."""
        signature = self._files.signature()
        if signature == self._signature:
            return
        self._signature = signature
        try:
            self.context = self._files.context()
        except ConfigError as error:
            _log.error(
                "tls-reload-failed: TLS continues with the earlier certificate and key: %(error)s",
                {"error": error},
            )
        else:
            _log.info(
                "tls-files-reloaded: new TLS connections use the changed files: %(certificate)s",
                {"certificate": self._files.certificate},
            )


@dataclass(frozen=True, slots=True)
class ClientTlsFiles:
    """The PEM files of a client: the authorities that it trusts, and what it presents.

    Without `trust` it trusts the authorities of the operating system.
    """

    trust: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def context(self) -> ssl.SSLContext:
        """Return a context that verifies the server and its name. Raises ConfigError."""
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("a certificate and its key belong together: name both files")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.trust is None:
            context.load_default_certs()
        else:
            _load_authorities(context, self.trust)
        if self.certificate is not None and self.key is not None:
            _load_pair(context, self.certificate, self.key, _no_password)
        return context


def _load_pair(
    context: ssl.SSLContext, certificate: Path, key: Path, password: Callable[[], bytes]
) -> None:
    """Load a certificate and its key. Raises ConfigError."""
    for path in (certificate, key):
        _read(path)  # its own errors do not name the file
    try:
        context.load_cert_chain(certificate, key, password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigError(f"{certificate} and {key} are not a pair") from error
        raise ConfigError(
            f"{certificate} and {key} cannot be used: {why(error)}",
            hint="both are PEM files: the certificate chain, and its private key",
        ) from error
    except OSError as error:
        raise ConfigError(f"{certificate} cannot be read: {error.strerror}") from error


def _no_password() -> bytes:
    """Called for an encrypted key only; without it OpenSSL would ask on the terminal."""
    raise ConfigError("the client's key is encrypted", hint="use a key without a password")


def _load_authorities(context: ssl.SSLContext, trust: Path) -> None:
    """Load the authorities that a context trusts. Raises ConfigError."""
    authorities = _read(trust).decode("ascii", "replace")
    try:
        context.load_verify_locations(cadata=authorities)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"{trust} holds no certificate: {why(error)}") from error


def certificate_subject(tls: ssl.SSLObject) -> str:
    """Return the subject of the other end's certificate, which was verified; "" without one.

    It is "" as well if a name in it is not text.
    """
    try:
        certificate = tls.getpeercert() or {}
    except (ssl.SSLError, ValueError):
        return ""
    rdns = cast("Rdns", certificate.get("subject", ()))
    is_text = all(isinstance(value, str) for rdn in rdns for _, value in rdn)
    return subject_text(rdns) if is_text else ""


def why(error: Exception) -> str:
    """Return OpenSSL's reason in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    reason = error.reason if isinstance(error, ssl.SSLError) else ""
    return reason.lower().replace("_", " ") if reason else str(error)


def _signature(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as opened:
            data = opened.read(TLS_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > TLS_FILE_BYTES_MAX:
        raise ConfigError(f"{path} has more than {TLS_FILE_BYTES_MAX} bytes; it is not a PEM file")
    return data
