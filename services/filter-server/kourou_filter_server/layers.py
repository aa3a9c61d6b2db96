"""Which layers of the jail this machine has, and how the filter server starts what is jailed.

State: none. Imports nothing heavy, since `kourou doctor` asks here, too.
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
"""The trials take a tenth of a second; a machine that is short of everything takes longer."""

_BOOT = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from kourou_filter_server.jail.zygote import main; main(sys.argv[2:])"
)
_HINT = (
    "in a container use deploy/seccomp/filter-server.json; for details run "
    "`kourou doctor`; --unsafe-no-sandbox runs filters without a sandbox, "
    "for development on loopback only"
)


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of the jail. `detail` is its version, or what the kernel said and what it means."""

    name: str
    there: bool
    detail: str


def command(*arguments: str) -> list[str]:
    """The zygote's command line: isolated, without site packages, with our one folder to look in.

    It writes no bytecode: its limit of file sizes is 0, and to exceed that would end it.

    Whoever starts it gives it an empty environment and "/" to live in.
    """
    folder = str(Path(__file__).resolve().parent.parent)
    return [sys.executable, "-I", "-S", "-B", "-X", "utf8", "-c", _BOOT, folder, *arguments]


def probe() -> tuple[Layer, ...]:
    """Try every layer in processes that end with it; nothing changes here.

    Blocks for about a tenth of a second. Raises Unavailable if Python cannot be started so.
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
    """Layers as the zygote and the trial tell them."""
    return tuple(Layer(name, there, detail) for name, there, detail in told)


def missing(layers: Iterable[Layer] | None = None) -> tuple[Layer, ...]:
    """Those of `layers`, or of what is found now, that are not there."""
    return tuple(layer for layer in (probe() if layers is None else layers) if not layer.there)


def refusal(lacking: Iterable[Layer]) -> ConfigError:
    """Why a filter server does not start: one sentence that names every missing layer."""
    named = "; ".join(f"{layer.name} ({layer.detail})" for layer in lacking)
    return ConfigError(f"the sandbox of filters lacks: {named}", hint=_HINT)
