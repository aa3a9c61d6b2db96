"""The build hook: compiles the record kernel if a C compiler is available.

An editable install gets the extension next to its source; a wheel contains it and is then specific
to this platform. Without a compiler the build warns once and continues: kourou.protocol.kernel
falls back to the Python kernel. KOUROU_KERNEL=compiled makes the build fail instead, and
KOUROU_KERNEL=python skips the compilation.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = Path("libs/kourou/protocol")
EXTENSION = "_kernel.abi3.so"
LIMITED_API = "0x030B0000"
"""CPython 3.11: one extension for it and all later versions."""


class CannotCompile(Exception):
    """Raised without a compiler or Python's headers, or if one of them reports an error."""


class KernelHook(BuildHookInterface):  # type: ignore[type-arg]  # hatchling's own generic
    """Called by hatchling before it builds a wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; `version` is "editable" or "standard"."""
        choice = os.environ.get("KOUROU_KERNEL") or "auto"
        if choice == "python" or self.target_name != "wheel":
            return
        folder = Path(self.root) / SOURCES
        try:
            compile_kernel(folder)
        except CannotCompile as error:
            if choice == "compiled":
                raise
            (folder / EXTENSION).unlink(missing_ok=True)  # may be built from other sources
            self.app.display_warning(
                f"the record kernel is not compiled, sends are slower: {error}"
            )
            return
        if version != "editable":
            build_data["force_include"][str(folder / EXTENSION)] = f"kourou/protocol/{EXTENSION}"
            build_data["pure_python"] = False
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["tag"] = f"cp311-abi3-{platform}"


def compile_kernel(folder: Path) -> None:
    """Compile the extension in this folder from its sources; raises CannotCompile."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    headers = sysconfig.get_paths()["include"]
    if not (Path(headers) / "Python.h").is_file():
        raise CannotCompile(f"{headers} has no Python.h (Debian: python3-dev)")
    with tempfile.TemporaryDirectory() as scratch:
        c_file, made = Path(scratch) / "_kernel.c", Path(scratch) / EXTENSION
        _run([sys.executable, "-m", "cython", "-3", str(folder / "_kernel.pyx"), "-o", str(c_file)])
        flags = ["-O2", "-shared", "-fPIC", f"-I{headers}", f"-I{folder}"]
        flags += [f"-DPy_LIMITED_API={LIMITED_API}", "-DCYTHON_LIMITED_API=1"]
        _run([*compiler, *flags, str(c_file), "-o", str(made)])
        # Replaced atomically: a process that has mapped the old file keeps it.
        beside = folder / f".{EXTENSION}.new"
        beside.write_bytes(made.read_bytes())
        beside.chmod(0o755)
        beside.replace(folder / EXTENSION)


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise CannotCompile(str(error)) from error
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise CannotCompile(f"{command[0]}: {lines[-1] if lines else done.returncode}")
