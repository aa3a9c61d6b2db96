"""Files of clients, and subjects of certificates with unusual names."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from kourou.errors import ConfigError
from kourou.transport.tls import ClientTlsFiles, certificate_subject
from kourou_rigs.certificates import Authority


class Peer:
    """The other end of a connection, as ssl shows it."""

    def __init__(self, found: Any) -> None:
        self._found = found

    def getpeercert(self) -> Any:
        if isinstance(self._found, Exception):
            raise self._found
        return self._found


@pytest.mark.parametrize(
    ("found", "subject"),
    [
        (None, ""),
        ({}, ""),
        ({"subject": ()}, ""),
        ({"subject": ((("organizationName", "b"),), (("commonName", "a"),))}, "CN=a,O=b"),
        ({"subject": ((("commonName", "a"),), (("x500UniqueIdentifier", b"\x01"),))}, ""),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"), ""),
        (ssl.SSLError("no text"), ""),
    ],
)
def test_a_subject_that_is_not_text_is_none(found: Any, subject: str) -> None:
    peer: Any = Peer(found)
    assert certificate_subject(peer) == subject


def test_a_client_verifies_servers_and_their_names(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "own")
    for files in (ClientTlsFiles(), ClientTlsFiles(authority.path, *authority.pair("client"))):
        context = files.context()
        assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert len(ClientTlsFiles(authority.path).context().get_ca_certs()) == 1


@pytest.mark.fault
def test_files_of_a_client_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "own")
    certificate, key = authority.pair("client", b"hunter2")
    for files, text in (
        (ClientTlsFiles(certificate=certificate, key=key), "the client's key is encrypted"),
        (ClientTlsFiles(certificate=certificate), "belong together"),
        (ClientTlsFiles(certificate=certificate, key=authority.pair("other")[1]), "not a pair"),
        (ClientTlsFiles(trust=key), r"client.key holds no certificate"),
        (ClientTlsFiles(trust=tmp_path / "gone"), "gone cannot be read"),
    ):
        with pytest.raises(ConfigError, match=text):
            files.context()
