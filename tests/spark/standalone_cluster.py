"""A Spark standalone cluster on this machine: a master and workers, as processes of their own.

Started through `spark-class`, as in the compose file: the pip package has no start scripts. All
ports are free ones of loopback, which each part's log tells. Parts know a secret, by a
spark-defaults.conf in the folder that SPARK_CONF_DIR names; drivers are to be given the same one.
"""

from __future__ import annotations

import json
import re
import secrets
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pyspark.find_spark_home import _find_spark_home

from kourou.errors import Unavailable
from kourou.service.processes import Child, Children

PACKAGE = "org.apache.spark.deploy"
START_S = 180
LOOK_S = 0.2
PAGE_S = 60
"""A Java that has just started, on a machine with much else to do."""

DRIVER_HOST = "127.0.0.1"


def waited(what: str, look: Callable[[], Any], child: Child, within_s: float = START_S) -> Any:
    """What `look` finds at last; Unavailable if the child ends first, or it takes too long."""
    for _ in range(int(within_s / LOOK_S)):
        if found := look():
            return found
        if child.wait_for_exit(LOOK_S) is not None:
            break
    raise Unavailable(f"{what}: {child.log_path.read_text(encoding='utf-8', errors='replace')}")


class StandaloneCluster:
    """A master and so many workers of one core each; leaving the `with` block ends them."""

    def __init__(self, folder: Path, workers: int) -> None:
        self._folder = folder
        self._children = Children(folder)
        conf = folder / "conf"
        conf.mkdir(parents=True)
        text = f"spark.authenticate true\nspark.authenticate.secret {secrets.token_hex(16)}\n"
        (conf / "spark-defaults.conf").write_text(text, encoding="utf-8")
        self.environment = {
            "SPARK_CONF_DIR": str(conf),
            "SPARK_LOCAL_IP": DRIVER_HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            # Five Javas that live for a minute: what the second compiler costs they never gain.
            "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        try:
            ports = ("--host", DRIVER_HOST, "--port", "0", "--webui-port", "0")
            master = self._start("master", "master.Master", *ports)
            self.url = self._told(master, r"Starting Spark master at (spark://\S+)")
            self._page = self._told(master, r"MasterWebUI.* started at (http://\S+)")
            for number in range(workers):
                folders = ("--work-dir", str(folder / f"work-{number}"))
                size = ("--cores", "1", "--memory", "1g")
                self._start(f"worker-{number}", "worker.Worker", *ports, *size, *folders, self.url)
            waited("workers", lambda: len(self.state()["workers"]) == workers, master)
        except BaseException:
            self.stop()
            raise

    def _start(self, name: str, module: str, *arguments: str) -> Child:
        return self._children.start(
            name,
            [f"{_find_spark_home()}/bin/spark-class", f"{PACKAGE}.{module}", *arguments],
            environment=self.environment,
            says_ready=False,
        )

    def _told(self, child: Child, pattern: str) -> str:
        def look() -> str:
            found = re.search(pattern, child.log_path.read_text(encoding="utf-8"))
            return found[1] if found else ""

        return str(waited(pattern, look, child))

    def state(self) -> dict[str, Any]:
        """What the master's page says: workers, applications that run or have run."""
        with urllib.request.urlopen(f"{self._page}/json/", timeout=PAGE_S) as answer:
            return dict(json.load(answer))

    def executors(self) -> list[Path]:
        """The folders of all executors that workers have had."""
        return sorted(self._folder.glob("work-*/app-*/*"))

    def stop(self) -> None:
        """End it; the youngest part first."""
        self._children.stop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
