"""A real Prometheus for tests: promtool's checks, and a server that scrapes a test's services.

    with PrometheusServer(folder, {"broker": ["127.0.0.1:18081"]}) as prometheus:
        prometheus.wait_for("up == 1")
        found = prometheus.query("rocketmq_topic_number")

State: soft; the server's data is in the given folder.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kourou.errors import Unavailable

MISSING = "no prometheus and promtool in PATH (apt-get install prometheus)"
START_S = 60.0
WAIT_S = 60.0
LOOK_S = 0.1


def find_program(name: str) -> str:
    """The path of `prometheus` or `promtool`; raises Unavailable (`MISSING`) if it is missing."""
    path = shutil.which(name)
    if path is None:
        raise Unavailable(MISSING)
    return path


def promtool(*arguments: str, text: str = "") -> tuple[int, str]:
    """Run promtool with `text` on its stdin; returns its exit code and output."""
    done = subprocess.run(
        [find_program("promtool"), *arguments],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout + done.stderr


class PrometheusServer:
    """Scrapes every second. `targets` maps values of the label `service` to addresses.

    `names` maps services to the query parameter `names` of their metrics page.
    """

    def __init__(
        self,
        folder: Path,
        targets: Mapping[str, Sequence[str]],
        *,
        names: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = folder
        self._targets = targets
        self._names = names or {}
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._told = threading.Event()
        self._lines: list[str] = []
        self.address = ""

    def __enter__(self) -> Self:
        program = find_program("prometheus")
        self._folder.mkdir(parents=True, exist_ok=True)
        config = self._folder / "prometheus.yml"
        config.write_text(json.dumps(self._config()), encoding="utf-8")  # JSON is valid YAML
        self._process = subprocess.Popen(
            [
                program,
                f"--config.file={config}",
                f"--storage.tsdb.path={self._folder / 'data'}",
                "--web.listen-address=127.0.0.1:0",
                "--log.format=json",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        self._reader = threading.Thread(target=self._read, name="prometheus-log", daemon=True)
        self._reader.start()
        if not self._told.wait(START_S) or not self.address:
            self.__exit__(None, None, None)
            raise Unavailable("prometheus did not start: " + " ".join(self._lines[-5:]))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.wait(30)
            if self._reader is not None:
                self._reader.join()  # it reads to the end; closed before, the pipe fails it
            if process.stderr is not None:
                process.stderr.close()

    def _config(self) -> dict[str, Any]:
        return {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "scrape_configs": [
                {
                    "job_name": f"kourou-{service}",
                    "params": {"names": [self._names[service]]} if service in self._names else {},
                    "static_configs": [
                        {"targets": list(addresses), "labels": {"service": service}}
                    ],
                }
                for service, addresses in self._targets.items()
            ],
        }

    def _read(self) -> None:
        """Read its log; one line contains its port."""
        process = self._process
        assert process is not None
        assert process.stderr is not None
        for raw in process.stderr:
            line = raw.decode(errors="replace").strip()
            self._lines.append(line)
            if '"Listening on"' in line:
                self.address = json.loads(line)["address"]
                self._told.set()
        self._told.set()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an instant query: {"metric": labels, "value": [time, text]}."""
        question = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"http://{self.address}/api/v1/query?{question}") as answer:
            found: dict[str, Any] = json.load(answer)
        data = found["data"]
        if data["resultType"] == "scalar":
            return [{"metric": {}, "value": data["result"]}]
        series: list[dict[str, Any]] = data["result"]
        return series

    def wait_for(self, expression: str, count: int = 1, wait_s: float = WAIT_S) -> None:
        """Wait until a query has `count` series; raises AssertionError on timeout."""
        deadline = time.monotonic() + wait_s
        found: list[dict[str, Any]] = []
        looking = threading.Event()
        while time.monotonic() < deadline:
            try:
                found = self.query(expression)
            except urllib.error.HTTPError as error:
                if error.code != 503:  # 503: it is still starting
                    raise
            if len(found) >= count:
                return
            looking.wait(LOOK_S)
        raise AssertionError(f"{expression} has {len(found)} series, not {count}")
