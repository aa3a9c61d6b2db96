"""Certificates for tests, made when they are needed and valid for a day."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass
class Authority:
    """Signs certificates, and writes them with their keys."""

    folder: Path
    name: str

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.path = self.folder / f"{self.name}-ca.pem"
        self.path.write_bytes(_pem(self._signed(self.name, self._key, authority=True)))

    def pair(self, name: str, password: bytes = b"") -> tuple[Path, Path]:
        """A certificate and its key, in files."""
        key = ec.generate_private_key(ec.SECP256R1())
        place = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        place[0].write_bytes(_pem(self._signed(name, key)))
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

    def _signed(
        self, name: str, key: ec.EllipticCurvePrivateKey, *, authority: bool = False
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(_named(name))
            .issuer_name(_named(self.name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(authority, None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
            .sign(self._key, hashes.SHA256())
        )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
