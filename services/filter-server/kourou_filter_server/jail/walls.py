"""Applies all layers of the sandbox to a worker, in the only order that works.

The order is necessary. Entering a user namespace grants capabilities, so they are dropped later,
and it may reset the parent-death signal, so that is set again. Landlock needs a descriptor, so the
limit of descriptors comes later. Landlock and seccomp need no_new_privs. Seccomp forbids the system
calls of all other layers, so it is last. State: none.

Invariant: `build` returns with every layer in force, or raises; there is no partial sandbox.
"""

from __future__ import annotations

from collections.abc import Callable

from kourou_filter_server.jail import (
    capabilities,
    descriptors,
    kernel,
    landlock,
    limits,
    lineage,
    namespaces,
    seccomp,
)
from kourou_filter_server.jail.limits import SandboxLimits


class WallMissing(Exception):
    """A layer could not be applied; the text names it and contains the kernel's error."""


def build(channel: int, parent_pid: int, allowed: SandboxLimits, *, unsafe: bool = False) -> None:
    """Put this process into the sandbox permanently; `channel` becomes descriptor 3.

    With `unsafe`, only resource limits and the end with the parent apply, and the parent's
    deadlines. Raises WallMissing if a layer fails after descriptor 3 is set up, and OSError before.
    """
    descriptors.keep_only(channel)
    _put_up("signals", lineage.forget_signal_handlers)
    _put_up("parent-death signal", lambda: lineage.die_with_parent(parent_pid))
    _put_up("no_new_privs", lineage.gain_nothing)
    if not unsafe:
        _put_up("namespaces", namespaces.leave)
        _put_up("parent-death signal", lambda: lineage.die_with_parent(parent_pid))
        _put_up("Landlock", landlock.forbid_everything)
    _put_up("rlimits", lambda: limits.confine(allowed))
    if not unsafe:
        _put_up("dumpable", lineage.hide_memory)
        _put_up("capabilities", capabilities.give_away)
        _put_up("seccomp", seccomp.allow_only_the_list)


def _put_up(name: str, make: Callable[[], None]) -> None:
    try:
        make()
    except OSError as error:
        raise WallMissing(f"{name}: {kernel.words(error)}") from None
    except (lineage.Orphaned, ValueError) as error:
        raise WallMissing(f"{name}: {error}") from None
