"""Docker's seccomp profiles, put into force without a container: read, compiled, applied.

    python tests/containers/seccomp_profile.py PROFILE.json -- COMMAND …

runs a command as a container does that has lost every capability: no new privileges, none of the
capabilities of its user, and the profile's rules for each system call from then on. An engine makes
of such a file just what is made here, by the same library, libseccomp (Debian: `libseccomp2`, which
apt itself needs).
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LIBRARY = "libseccomp.so.2"
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
"""As the kernel calls this machine, and as profiles do."""

EPERM = 1
ENOSYS = 38
ALLOW = 0x7FFF0000
ERRNO = 0x00050000
COMPARISONS = {
    "SCMP_CMP_NE": 1,
    "SCMP_CMP_LT": 2,
    "SCMP_CMP_LE": 3,
    "SCMP_CMP_EQ": 4,
    "SCMP_CMP_GE": 5,
    "SCMP_CMP_GT": 6,
    "SCMP_CMP_MASKED_EQ": 7,
}
NO_SUCH_CALL = -1
AARCH64 = 0xC00000B7  # SCMP_ARCH_AARCH64
CTL_NNP = 3  # SCMP_FLTATR_CTL_NNP
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
CAPABILITY_VERSION_3 = 0x20080522


@dataclass(frozen=True)
class Rule:
    """What becomes of these calls, if all of these comparisons hold."""

    names: tuple[str, ...]
    action: int
    arguments: tuple[tuple[int, int, int, int], ...] = field(default=())


@dataclass(frozen=True)
class Profile:
    """What becomes of a call that no rule names, and the rules."""

    default: int
    rules: tuple[Rule, ...]


def read_profile(path: Path) -> Profile:
    """A profile file, as it holds for a container without capabilities on this machine."""
    view = json.loads(path.read_text(encoding="utf-8"))
    default = action_of(view["defaultAction"], view.get("defaultErrnoRet"))
    rules = [rule for entry in view["syscalls"] if holds(entry) for rule in rules_of(entry)]
    return Profile(default, tuple(rules))


def holds(entry: dict[str, Any]) -> bool:
    """Is it for a container that has no capability, on this machine and kernel?"""
    included, excluded = entry.get("includes") or {}, entry.get("excludes") or {}
    machine = MACHINES[platform.machine()]
    if included.get("caps") or machine in excluded.get("arches", []):
        return False
    if "arches" in included and machine not in included["arches"]:
        return False
    kernel = version_of(platform.release())
    if "minKernel" in included and kernel < version_of(included["minKernel"]):
        return False
    return not ("minKernel" in excluded and kernel >= version_of(excluded["minKernel"]))


def version_of(text: str) -> tuple[int, ...]:
    """`6.1.0-28-amd64` -> (6, 1)."""
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])


def action_of(name: str, errno: int | None) -> int:
    """An action as the kernel knows it."""
    if name == "SCMP_ACT_ALLOW":
        return ALLOW
    assert name == "SCMP_ACT_ERRNO", name
    return ERRNO | (EPERM if errno is None else errno)


def rules_of(entry: dict[str, Any]) -> list[Rule]:
    """An entry's rules: several comparisons of one argument are alternatives, as engines say."""
    action = action_of(entry["action"], entry.get("errnoRet"))
    names = tuple(entry["names"])
    compared = [
        (one["index"], COMPARISONS[one["op"]], one["value"], one.get("valueTwo", 0))
        for one in entry.get("args") or []
    ]
    if len({one[0] for one in compared}) < len(compared):
        return [Rule(names, action, (one,)) for one in compared]
    return [Rule(names, action, tuple(compared))]


class Seccomp:
    """libseccomp, as far as a profile needs it. Raises OSError where it is missing."""

    class Comparison(ctypes.Structure):
        """struct scmp_arg_cmp."""

        _fields_ = (
            ("argument", ctypes.c_uint),
            ("operation", ctypes.c_int),
            ("first", ctypes.c_uint64),
            ("second", ctypes.c_uint64),
        )

    def __init__(self) -> None:
        self._library = library = ctypes.CDLL(LIBRARY)
        library.seccomp_init.restype = ctypes.c_void_p
        library.seccomp_init.argtypes = [ctypes.c_uint32]
        library.seccomp_load.argtypes = [ctypes.c_void_p]
        library.seccomp_attr_set.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32]
        library.seccomp_rule_add_array.argtypes = [
            *(ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint),
            ctypes.POINTER(self.Comparison),
        ]

    def knows(self, name: str) -> bool:
        """Is that a system call, of this machine or another?"""
        return bool(self._number(name) != NO_SUCH_CALL)

    def on_aarch64(self, name: str) -> bool:
        """Has that machine a call of that name?"""
        resolve = self._library.seccomp_syscall_resolve_name_arch
        resolve.argtypes = [ctypes.c_uint32, ctypes.c_char_p]
        return bool(resolve(AARCH64, name.encode()) >= 0)

    def _number(self, name: str) -> int:
        found: int = self._library.seccomp_syscall_resolve_name(name.encode())
        return found

    def apply(self, profile: Profile) -> None:
        """Put it into force for this thread and all that it starts; there is no way back."""
        context = self._library.seccomp_init(profile.default)
        self._done(self._library.seccomp_attr_set(context, CTL_NNP, 0), "attributes")
        for rule in profile.rules:
            if rule.action == profile.default:
                continue  # says nothing new, and the library refuses it
            compared = (self.Comparison * len(rule.arguments))(*rule.arguments)
            for name in rule.names:
                number = self._number(name)
                if number != NO_SUCH_CALL:  # newer than the library: the default holds
                    done = self._library.seccomp_rule_add_array(
                        context, rule.action, number, len(compared), compared
                    )
                    self._done(done, name)
        self._done(self._library.seccomp_load(context), "load")

    @staticmethod
    def _done(result: int, what: str) -> None:
        if result < 0:
            raise OSError(-result, f"{what}: {os.strerror(-result)}")


def lose_privileges() -> None:
    """As `cap_drop: [ALL]` and `no-new-privileges` do."""
    libc = ctypes.CDLL(None, use_errno=True)
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text(encoding="ascii"))
    for capability in range(last + 1):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)  # refused to who has none; fine
    none = (ctypes.c_uint32 * 6)()
    head = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    if libc.capset(head, none) or libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "privileges cannot be lost")


def main(arguments: Sequence[str]) -> None:
    """Become the command, under the profile."""
    file, dashes, *command = arguments
    assert dashes == "--", "PROFILE.json -- COMMAND …"
    profile = read_profile(Path(file))
    seccomp = Seccomp()
    lose_privileges()
    seccomp.apply(profile)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
