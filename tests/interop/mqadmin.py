"""RocketMQ's own mqadmin in one JVM, with or without credentials."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

PATIENCE_S = 60
SHORT_S = 8
"""For the commands that never end."""

ENDLESS = ("clusterRT",)


class Tool:
    """The JVM that runs mqadmin. `credentials` (access key, secret) are in its conf/tools.yml."""

    def __init__(
        self, classes: str, home: Path, credentials: tuple[str, str] | None = None
    ) -> None:
        (home / "conf").mkdir(parents=True)
        if credentials is not None:
            text = "accessKey: {}\nsecretKey: {}\n".format(*credentials)
            (home / "conf" / "tools.yml").write_text(text, encoding="utf-8")
        self._process = subprocess.Popen(
            [
                *("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                *(f"-Duser.home={home}", f"-Drocketmq.client.logRoot={home}"),
                *("-cp", classes, "MqadminLines"),
            ],
            cwd=home,  # consumerStatus leaves its files in the current folder
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.names = self._read().split()

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the command ended the JVM"
        return line

    def run(self, command: str) -> tuple[bool, str]:
        """(did it end?, what it printed)."""
        assert self._process.stdin is not None
        parts = command.split()
        seconds = SHORT_S if parts[0] in ENDLESS else PATIENCE_S
        self._process.stdin.write("\t".join([str(seconds), *parts]) + "\n")
        self._process.stdin.flush()
        how, _, printed = self._read().strip().partition(" ")
        return how == "ended", base64.b64decode(printed).decode()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
