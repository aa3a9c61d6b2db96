"""Certificates for tests, made when they are needed and valid for a day, of this machine."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

_NAMES = (x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1")))


@dataclass
class Authority:
    """Signs certificates, and writes them with their keys."""

    folder: Path
    name: str

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.path = self.folder / f"{self.name}-ca.pem"
        self.path.write_bytes(_pem(self._signed(f"CN={self.name}", self._key, authority=True)))

    def pair(
        self, name: str, password: bytes = b"", *, subject: str = "", expired: bool = False
    ) -> tuple[Path, Path]:
        """A certificate and its key, in files; `subject` (RFC 4514) instead of CN=`name`."""
        key = ec.generate_private_key(ec.SECP256R1())
        place = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        place[0].write_bytes(_pem(self._signed(subject or f"CN={name}", key, expired=expired)))
        place[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(password)
                if password
                else serialization.NoEncryption(),
            )
        )
        return place

    def trusted(self, pair: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        """What a client has that trusts this authority and presents a pair."""
        context = ssl.create_default_context(cafile=str(self.path))
        if pair is not None:
            context.load_cert_chain(*pair)
        return context

    def _signed(
        self,
        subject: str,
        key: ec.EllipticCurvePrivateKey,
        *,
        authority: bool = False,
        expired: bool = False,
    ) -> x509.Certificate:
        day = datetime.timedelta(days=1)
        now = datetime.datetime.now(datetime.UTC) - (2 * day if expired else 0 * day)
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name.from_rfc4514_string(subject))
            .issuer_name(x509.Name.from_rfc4514_string(f"CN={self.name}"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - day)
            .not_valid_after(now + day)
            .add_extension(x509.BasicConstraints(authority, None), critical=True)
            .add_extension(x509.SubjectAlternativeName(_NAMES), critical=False)
            .sign(self._key, hashes.SHA256())
        )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
