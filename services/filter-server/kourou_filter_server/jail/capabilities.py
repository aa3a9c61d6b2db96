"""Drops all capabilities, so that the process has no privileges of root."""

from __future__ import annotations

import ctypes
import errno

from kourou_filter_server.jail import kernel

_VERSION_3 = 0x2008_0522
_SETS = 6
_CAPABILITIES_MAX = 64


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def give_away() -> None:
    """Drop every capability permanently. Raises OSError."""
    for number in range(_CAPABILITIES_MAX):
        try:
            kernel.prctl("CAPBSET_DROP", kernel.PR_CAPBSET_DROP, number)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            break  # the kernel has no more capabilities
    kernel.prctl("CAP_AMBIENT", kernel.PR_CAP_AMBIENT, kernel.PR_CAP_AMBIENT_CLEAR_ALL)
    header, nothing = _Header(_VERSION_3, 0), (ctypes.c_uint32 * _SETS)()
    kernel.checked("capset", kernel.LIBC.capset(ctypes.byref(header), nothing))


def held() -> int:
    """The number of capabilities in the process's permitted set. Raises OSError."""
    header, sets = _Header(_VERSION_3, 0), (ctypes.c_uint32 * _SETS)()
    kernel.checked("capget", kernel.LIBC.capget(ctypes.byref(header), sets))
    return (sets[1] | sets[4] << 32).bit_count()
