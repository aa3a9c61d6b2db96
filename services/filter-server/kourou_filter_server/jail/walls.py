"""Puts up all the walls around a worker, in the one order that works.

The order is forced: leaving for a user namespace gives capabilities, so they go after it, and it
may make the kernel forget the parent-death signal, so that is asked for again; Landlock needs a
descriptor, so the limit on descriptors comes later; Landlock and seccomp need no_new_privs;
seccomp forbids the calls that all the others are made of, so it is last. State: none.

Invariant: `build` returns with every wall standing, or raises; there is no half jail.
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
from kourou_filter_server.jail.limits import JailLimits


class WallMissing(Exception):
    """A wall could not be put up; the text names it and says what the kernel said."""


def build(channel: int, parent_pid: int, allowed: JailLimits, *, unsafe: bool = False) -> None:
    """Jail this process for good; `channel` becomes descriptor 3.

    With `unsafe` it only dies with its parent and has limits; the parent's deadline is left, too.
    Raises WallMissing, which can be told through descriptor 3, and OSError if it cannot.
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
