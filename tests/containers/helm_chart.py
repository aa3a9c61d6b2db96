"""The chart of deploy/helm, as the real Helm renders it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CHART = "deploy/helm/kourou"
RELEASE, NAMESPACE = "shop", "messages"
KUBERNETES = "1.28.0"
"""The oldest version that the chart accepts; without a cluster Helm has to be told one."""

EVERYTHING: dict[str, Any] = {
    "raft": {"enabled": True},
    "filterServer": {"enabled": True},
    "sparkEtl": {"enabled": True},
    "tracing": {"endpoint": "http://collector:4318"},
    "eventStore": {"url": "postgresql://kourou@postgres:5432/kourou", "secret": "database"},
}
"""Values with which every service of the chart runs, as in docker-compose.yml."""

WORKLOADS = ("StatefulSet", "Deployment")
_VARIABLE = re.compile(r"\$\((\w+)\)")


def find_helm() -> str | None:
    """Helm on PATH, or where `.ci/install` builds it."""
    return shutil.which("helm") or shutil.which("helm", path=Path.home() / "go" / "bin")


@dataclass(frozen=True)
class Helm:
    """The program, and the checkout with the chart."""

    program: str
    root: Path

    def run(
        self,
        verb: str,
        *arguments: str,
        values: dict[str, Any] | None = None,
        kubernetes: str = KUBERNETES,
    ) -> subprocess.CompletedProcess[str]:
        """`run("lint", CHART)`: a command of Helm in the checkout, with these values."""
        return subprocess.run(
            [self.program, verb, *arguments, "--kube-version", kubernetes, "--values", "-"],
            cwd=self.root,
            input=json.dumps(values or {}),
            capture_output=True,
            text=True,
            check=False,
        )

    def render(self, values: dict[str, Any] | None = None) -> Release:
        """All objects of a release with these values."""
        done = self.run("template", RELEASE, CHART, "--namespace", NAMESPACE, values=values)
        assert done.returncode == 0, done.stderr
        return Release(done.stdout, tuple(filter(None, yaml.safe_load_all(done.stdout))))


@dataclass(frozen=True)
class Release:
    """The objects that Helm would send to a cluster."""

    text: str
    objects: tuple[dict[str, Any], ...]

    def named(self, *kinds: str) -> dict[str, dict[str, Any]]:
        """The objects of these kinds by name, without the name of the release."""
        found = [one for one in self.objects if one["kind"] in kinds]
        names = [one["metadata"]["name"].removeprefix(f"{RELEASE}-") for one in found]
        assert len(set(names)) == len(names)
        return dict(zip(names, found, strict=True))

    def pods(self) -> dict[str, dict[str, Any]]:
        """The specification of each service's pods, and of those of the job `keys`."""
        found = self.named(*WORKLOADS, "Job")
        return {name: one["spec"]["template"]["spec"] for name, one in found.items()}

    def container(self, name: str) -> dict[str, Any]:
        """The one container of a service's pods."""
        [found] = self.pods()[name]["containers"]
        assert found["name"] == name
        return dict(found)

    def files(self) -> dict[str, str]:
        """The files of /etc/kourou."""
        return dict(self.named("ConfigMap")["settings"]["data"])

    def environment(self, name: str, index: int = 0) -> dict[str, str]:
        """The variables of the pod of that number, with what Kubernetes puts in."""
        pod = {
            "metadata.name": pod_name(name, index),
            "metadata.labels['apps.kubernetes.io/pod-index']": str(index),
        }
        found: dict[str, str] = {}
        for one in self.container(name)["env"]:
            if "valueFrom" in one:
                found[one["name"]] = pod[one["valueFrom"]["fieldRef"]["fieldPath"]]
            else:
                found[one["name"]] = replaced(one["value"], found)
        return found

    def containers(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every container that ever runs, those of initialization included."""
        for name, pod in self.pods().items():
            for one in (*pod.get("initContainers", []), *pod["containers"]):
                yield f"{name}: {one['name']}", one


def pod_name(name: str, index: int) -> str:
    """A pod of a StatefulSet."""
    return f"{RELEASE}-{name}-{index}"


def host(name: str, index: int) -> str:
    """The host name of a pod, for pods in all namespaces."""
    return f"{pod_name(name, index)}.{RELEASE}-{name}.{NAMESPACE}.svc"


def replaced(text: str, variables: dict[str, str]) -> str:
    """`$(NAME)` replaced as Kubernetes does; a KeyError if it would stay."""
    return _VARIABLE.sub(lambda match: variables[match[1]], text)
