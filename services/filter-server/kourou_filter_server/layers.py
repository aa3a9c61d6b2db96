"""The sandbox layers of this machine, and the command that starts the sandboxed processes.

State: none. It imports nothing heavy, since `kourou doctor` uses it as well.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kourou.errors import ConfigError, Unavailable

PROBE_S_MAX = 30.0
"""The timeout of the probe, which normally takes 0.1 s and longer on an overloaded machine."""

_BOOT = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from kourou_filter_server.sandbox.zygote import main; main(sys.argv[2:])"
)
_HINT = (
    "in a container use deploy/seccomp/filter-server.json; for details run "
    "`kourou doctor`; --unsafe-no-sandbox runs filters without a sandbox, "
    "for development on loopback only"
)


@dataclass(frozen=True, slots=True)
class Layer:
    """One sandbox layer. `detail` is its version, or the kernel's error with an explanation."""

    name: str
    there: bool
    detail: str


def command(*arguments: str) -> list[str]:
    """The zygote's command line: isolated, without site packages, with our folder only.

    It writes no bytecode, because its limit of file sizes is 0, and exceeding it would end it.

    The caller starts it with an empty environment and the working directory "/".
    """
    folder = str(Path(__file__).resolve().parent.parent)
    return [sys.executable, "-I", "-S", "-B", "-X", "utf8", "-c", _BOOT, folder, *arguments]


def probe() -> tuple[Layer, ...]:
    """Try every layer in child processes; this process does not change.

    Blocks for about a tenth of a second. Raises Unavailable if Python cannot be started.
    """
    try:
        done = subprocess.run(
            command("probe"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={},
            cwd="/",
            timeout=PROBE_S_MAX,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        text = error.stderr.decode("utf-8", "replace").strip()[-500:]
        raise Unavailable(f"the layers of the sandbox could not be tested: {text}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"the layers of the sandbox could not be tested: {error}") from None
    return layers_of(json.loads(done.stdout))


def layers_of(told: Iterable[tuple[str, bool, str]]) -> tuple[Layer, ...]:
    """Convert the layers from the JSON form that the zygote and the probe use."""
    return tuple(Layer(name, there, detail) for name, there, detail in told)


def missing(layers: Iterable[Layer] | None = None) -> tuple[Layer, ...]:
    """The missing ones of `layers`, or of a new probe."""
    return tuple(layer for layer in (probe() if layers is None else layers) if not layer.there)


def refusal(lacking: Iterable[Layer]) -> ConfigError:
    """The error of a filter server that does not start: one sentence with every missing layer."""
    named = "; ".join(f"{layer.name} ({layer.detail})" for layer in lacking)
    return ConfigError(f"the sandbox of filters lacks: {named}", hint=_HINT)
