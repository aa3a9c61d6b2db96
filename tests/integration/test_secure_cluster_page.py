"""docs/secure-cluster.md, as a reader follows it: its files, its commands, and what they print."""

from __future__ import annotations

import gc
import json
import re
import shlex
from pathlib import Path

import pytest

from kourou.cli.main import main
from kourou.service.processes import Children, free_port

PAGE = Path(__file__).parents[2] / "docs" / "secure-cluster.md"
PORTS = ("19876", "20911", "20912")


def blocks(folder: Path) -> list[str]:
    """The code of the page, with paths in `folder` and free ports."""
    text = PAGE.read_text("utf-8").replace("\\\n", "")
    for port in PORTS:
        text = text.replace(port, str(free_port()))
    for name in ("keys/", "access/", "users.toml", "=store"):
        start = "=" * name.startswith("=")
        text = re.sub(rf"(?<![\w/]){name}", f"{start}{folder}/{name.removeprefix('=')}", text)
    return re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)


def commands(block: str) -> list[list[str]]:
    lines = block.splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("kourou ")]


def test_who_follows_the_page_has_a_cluster_that_refuses_everybody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keys, users, namesrv, broker, start, use, client, refused, read = blocks(tmp_path)
    (tmp_path / "users.toml").write_text(users)
    address = re.search(r"namesrvAddr=(.*)", broker)
    port = re.search(r"keys/broker=127.0.0.1:(\d+)", keys)
    assert address is not None
    assert port is not None
    zmq = address[1].partition(":")[2]
    free = "adminPort=0\n"
    files = {
        "namesrv": f"{namesrv}listenPort={free_port()}\nzmqPort={zmq}\n{free}",
        "broker": f"{broker}listenPort={free_port()}\nzmqPort={port[1]}\n{free}",
    }
    for made in commands(keys):
        assert main(made) == 0
    with Children(tmp_path) as children:
        for command in commands(start):
            name, flag, file = command
            path = tmp_path / file
            path.write_text(files[name])
            children.start_module(name, "kourou.cli", name, flag, str(path)).wait_for_ready()
        monkeypatch.setenv("NAMESRV_ADDR", address[1])
        capsys.readouterr()
        assert main(["admin", "clusterList"]) == 1, "without a key"
        assert "if it requires CURVE keys" in capsys.readouterr().err
        monkeypatch.setenv("KOUROU_CURVE_KEY_FILE", f"{tmp_path}/keys/ops/ops.ring")
        for command in commands(use):
            assert main(command) == 0
        exec(client, {})
        assert "SEND_OK" in capsys.readouterr().out
        monkeypatch.setenv("KOUROU_CURVE_KEY_FILE", f"{tmp_path}/keys/shop/shop.ring")
        asked, *printed = refused.splitlines()
        assert main(shlex.split(asked.partition("kourou ")[2])) == 1
        assert capsys.readouterr().err.splitlines() == printed
        assert main(shlex.split(read.partition("kourou ")[2])) == 0
        assert json.loads(capsys.readouterr().out)["body"] == "hello"
        gc.collect()  # a socket that is not closed is an error here
