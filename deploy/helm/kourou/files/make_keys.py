"""Makes the keys and secrets of a release, and keeps those that exist.

A hook of the chart runs this in Kourou's image, before an installation and before an upgrade. The
variable PLAN has what to make, as JSON: the prefix and the labels of all Secrets; the pairs of
CURVE keys, each with its Secret and its server's addresses; the pair that also gets a ring.
`kourou keys make --keep` makes them in a folder in memory, which begins with what the Secrets hold.

State: the Secrets. An existing key or secret is never replaced, and what others put into a Secret,
such as the public keys of applications, stays. No secret is printed.
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TIMEOUT_S = 30.0
ACCESS_FILES = ("access.keys", "admin.secret")
SPARK_FILE = "spark-defaults.conf"

Contents = dict[str, bytes]
"""The keys of a Secret, and what they hold."""


class SecretStore:
    """The Secrets of a namespace, by the API of Kubernetes at `url`."""

    __slots__ = ("_tls", "_token", "_url")

    def __init__(
        self, url: str, namespace: str, token: str, tls: ssl.SSLContext | None = None
    ) -> None:
        self._url = f"{url}/api/v1/namespaces/{namespace}/secrets"
        self._token = token
        self._tls = tls

    def read(self, name: str) -> Contents | None:
        """Return what a Secret holds; None if it does not exist."""
        found = self._call("GET", name)
        if found is None:
            return None
        return {key: base64.b64decode(text) for key, text in (found.get("data") or {}).items()}

    def create(self, name: str, labels: Mapping[str, str], contents: Contents) -> None:
        """Create a Secret. Fails if it exists by now; the hook then runs again."""
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",
            "metadata": {"name": name, "labels": dict(labels)},
            "data": _encoded(contents),
        }
        self._call("POST", "", body)

    def extend(self, name: str, contents: Contents) -> None:
        """Write these keys of a Secret; the others stay."""
        self._call("PATCH", name, {"data": _encoded(contents)}, "application/merge-patch+json")

    def _call(
        self, method: str, name: str, body: Any = None, kind: str = "application/json"
    ) -> Any:
        """Return the reply; None if there is no such Secret. Raises SystemExit for an error."""
        request = urllib.request.Request(
            f"{self._url}/{name}" if name else self._url,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self._token}", "Content-Type": kind},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=self._tls) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as error:
            with error:
                reason = error.read().decode("utf-8", "replace")[:500]
            if error.code == 404 and method == "GET":
                return None
            raise SystemExit(f"{method} {name or 'secrets'}: {error.code} {reason}") from error
        except OSError as error:
            raise SystemExit(f"{method} {name or 'secrets'}: {error}") from error


def _encoded(contents: Contents) -> dict[str, str]:
    return {key: base64.b64encode(data).decode() for key, data in contents.items()}


def make(store: SecretStore, plan: Mapping[str, Any], folder: Path) -> None:
    """Make what is missing in the Secrets of a plan; `folder` is empty, and in memory."""
    prefix = f"{plan['prefix']}-"
    pairs: Mapping[str, Mapping[str, Any]] = plan["pairs"]
    names = sorted({"access", "public", "spark", *(one["secret"] for one in pairs.values())})
    stored = {name: store.read(f"{prefix}{name}") for name in names}

    def kept(name: str, file: Path) -> None:
        """Write a file of `folder` as its Secret holds it."""
        contents = stored[name] or {}
        if file.name in contents:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file.touch(mode=0o600)
            file.write_bytes(contents[file.name])

    for file in ACCESS_FILES:
        kept("access", folder / "access" / file)
    kept("spark", folder / "spark" / SPARK_FILE)
    for pair, one in pairs.items():
        kept(one["secret"], folder / "pairs" / pair / f"{pair}.key_secret")
    _run_kourou(plan, folder)
    for name, contents in _made(plan, folder).items():
        _write(store, f"{prefix}{name}", plan["labels"], stored[name], contents)


def _run_kourou(plan: Mapping[str, Any], folder: Path) -> None:
    """Make the pairs, their public keys, the ring and the files of `access` that are missing."""
    access_keys, *secret_files = (str(folder / "access" / file) for file in ACCESS_FILES)
    command = ["keys", "make", "--keep", "--public", str(folder / "public"), "--ring", plan["ring"]]
    command += ["--access-keys", access_keys]
    command += ["--spark-defaults", str(folder / "spark" / SPARK_FILE)]
    for file in secret_files:
        command += ["--secret", file]
    for pair, one in plan["pairs"].items():
        addresses = f"={','.join(one['addresses'])}" if one["addresses"] else ""
        command.append(f"{folder / 'pairs' / pair}{addresses}")
    done = subprocess.run([sys.executable, "-m", "kourou.cli", *command], check=False)
    if done.returncode:
        raise SystemExit(f"kourou keys make ended with {done.returncode}")


def _made(plan: Mapping[str, Any], folder: Path) -> dict[str, Contents]:
    """Return what each Secret shall hold, by its name without the prefix."""
    found: dict[str, Contents] = {
        "access": {file: (folder / "access" / file).read_bytes() for file in ACCESS_FILES},
        "public": {file.name: file.read_bytes() for file in (folder / "public").glob("*.key")},
        "spark": {SPARK_FILE: (folder / "spark" / SPARK_FILE).read_bytes()},
    }
    for pair, one in plan["pairs"].items():
        contents = found.setdefault(one["secret"], {})
        for file in (folder / "pairs" / pair).iterdir():
            if file.suffix in (".key_secret", ".ring"):
                contents[file.name] = file.read_bytes()
    return found


def _write(
    store: SecretStore,
    name: str,
    labels: Mapping[str, str],
    before: Contents | None,
    contents: Contents,
) -> None:
    """Create a Secret, or add to it what it lacks."""
    if before is None:
        store.create(name, labels, contents)
        sys.stdout.write(f"created Secret {name}: {', '.join(sorted(contents))}\n")
        return
    new = {key: data for key, data in contents.items() if before.get(key) != data}
    if new:
        store.extend(name, new)
    sys.stdout.write(f"kept Secret {name}; new in it: {', '.join(sorted(new)) or 'nothing'}\n")


def main() -> None:
    """Connect to the API of the cluster as every pod can, and make the plan of the environment."""
    host, port = (os.environ[f"KUBERNETES_SERVICE_{part}"] for part in ("HOST", "PORT"))
    shown = f"[{host}]" if ":" in host else host
    store = SecretStore(
        f"https://{shown}:{port}",
        os.environ["NAMESPACE"],
        (ACCOUNT / "token").read_text(encoding="ascii").strip(),
        ssl.create_default_context(cafile=ACCOUNT / "ca.crt"),
    )
    with tempfile.TemporaryDirectory() as folder:
        make(store, json.loads(os.environ["PLAN"]), Path(folder))


if __name__ == "__main__":
    main()
