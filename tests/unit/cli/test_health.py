"""`kourou health`: one exit code, from whatever may answer at an address."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from kourou.cli import main as command_line
from kourou.model.limits import HEALTH_ANSWER_BYTES_MAX
from kourou.transport.tls import ClientAuth, ServerTls, TlsFiles
from kourou_rigs.certificates import Authority

Answering = Callable[[bytes], str]


@pytest.fixture
def answering() -> Iterator[Answering]:
    """`answering(b"HTTP/1.1 200 OK…")`: the URL of something that says this to who comes first."""
    opened: list[tuple[socket.socket, threading.Thread]] = []

    def serve(answer: bytes) -> str:
        listener = socket.create_server(("127.0.0.1", 0))

        def reply() -> None:
            connection, _ = listener.accept()
            with connection:
                asked = connection.recv(4_096)
                assert asked.startswith(b"GET /readyz HTTP/1.0\r\n")
                with closing(connection):
                    connection.sendall(answer)

        thread = threading.Thread(target=reply, daemon=True)
        thread.start()
        opened.append((listener, thread))
        return f"http://127.0.0.1:{listener.getsockname()[1]}/readyz"

    yield serve
    for listener, thread in opened:
        thread.join()
        listener.close()


@pytest.mark.parametrize(
    "answer",
    [b"Content-Type: text/plain\r\n\r\nok\n", b"\r\n" + b"x" * HEALTH_ANSWER_BYTES_MAX],
    ids=["short", "endless"],
)
def test_well_is_0_and_an_endless_answer_is_not_read_to_its_end(
    answering: Answering, answer: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.main(["health", answering(b"HTTP/1.1 200 OK\r\n" + answer)]) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\nstarting\n", "answers 503: starting"),
        (b"HTTP/1.0 404 Not Found\r\n\r\n", "answers 404: "),
        (b"HTTP/1.1 500 x\r\n\r\nbad\x1b[31m\nmore", "answers 500: bad[31m"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "does not speak HTTP"),
        (b"HTTP/1.1\r\n\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 two hundred\r\n\r\n", "does not speak HTTP"),
        (b"", "does not speak HTTP"),
    ],
)
def test_anything_else_is_1_and_says_why(
    answering: Answering, answer: bytes, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.main(["health", answering(answer)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err
    assert err.count("\n") == 1


def test_nobody_there_is_1(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert command_line.main(["health", f"http://127.0.0.1:{port}/readyz"]) == 1
    assert "does not answer: Connection refused" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["a", "b"],
        ["127.0.0.1:18080"],
        ["ftp://127.0.0.1/readyz"],
        ["--ca"],
        ["--ca", "ca.pem"],
        ["--ca", "ca.pem", "http://127.0.0.1/readyz"],
        ["http:///readyz"],
        ["http://127.0.0.1:port/"],
        ["http://127.0.0.1:99999/"],
        ["http://127.0.0.1/a b"],
        ["http://127.0.0.1/\r\nX: y"],
    ],
)
def test_wrong_usage_is_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["health", *arguments]) == 2
    assert "kourou health http://HOST:PORT/readyz" in capsys.readouterr().err


class SecurePage:
    """A page over TLS that answers so many connections."""

    def __init__(self, files: TlsFiles, count: int = 1) -> None:
        self._context = ServerTls(files, enforcing=True).context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self._listener.getsockname()[1]}/readyz"
        self._thread = threading.Thread(target=self._serve, args=(count,), daemon=True)

    def _serve(self, count: int) -> None:
        for _ in range(count):
            plain, _ = self._listener.accept()
            with suppress(OSError), self._context.wrap_socket(plain, server_side=True) as link:
                link.recv(4_096)
                link.sendall(b"HTTP/1.1 200 OK\r\n\r\nok\n")

    def __enter__(self) -> str:
        self._thread.start()
        return self.url

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        self._listener.close()


def test_https_is_verified_by_the_authority(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority, other = (Authority(tmp_path / name, name) for name in ("own", "other"))
    with SecurePage(TlsFiles(*authority.pair("server")), 3) as url:
        assert command_line.main(["health", "--ca", str(authority.path), url]) == 0
        assert capsys.readouterr() == ("", "")
        for trust in (["--ca", str(other.path)], []):
            assert command_line.main(["health", *trust, url]) == 1
            assert "the TLS handshake failed: unable to get" in capsys.readouterr().err


def test_a_page_that_requires_a_certificate_gets_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = Authority(tmp_path / "own", "own")
    pair, own = authority.pair("server"), authority.pair("health")
    files = TlsFiles(*pair, trust=authority.path, client_auth=ClientAuth.REQUIRE)
    trust = ["health", "--ca", str(authority.path)]
    with SecurePage(files, 2) as url:
        assert command_line.main([*trust, "--cert", str(own[0]), "--key", str(own[1]), url]) == 0
        assert command_line.main([*trust, url]) == 1
        assert command_line.main([*trust, "--cert", str(own[0]), url]) == 2
        assert "belong together" in capsys.readouterr().err
        assert command_line.main(["health", "--ca", f"{tmp_path}/gone", url]) == 2
        assert "gone cannot be read" in capsys.readouterr().err


def test_it_loads_nothing_but_the_standard_library() -> None:
    """It runs every few seconds: no third-party package, and no HTTP client, for one request."""
    program = (
        "import sys\n"
        "from kourou.cli.main import main\n"
        "main(['health', 'http://127.0.0.1:1/'])\n"
        "names = {name.partition('.')[0] for name in sys.modules} - {'kourou', '__main__'}\n"
        "print(sorted(names - set(sys.stdlib_module_names)), 'http' in names, 'asyncio' in names)\n"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{program}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[] False False\n"
