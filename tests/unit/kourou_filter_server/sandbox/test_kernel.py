"""Calls of the kernel: what it refuses is an OSError that names the call."""

import errno

import pytest

from kourou_filter_server.sandbox import kernel


def test_a_refused_call_is_named_with_the_kernels_word() -> None:
    with pytest.raises(OSError, match=r"prctl SOMETHING: Invalid argument$") as refused:
        kernel.prctl("SOMETHING", 0x7FFF)
    assert refused.value.errno == errno.EINVAL
    assert kernel.error_text(refused.value) == "prctl SOMETHING: Invalid argument"


def test_a_call_without_a_name_in_the_library() -> None:
    with pytest.raises(OSError, match=r"landlock: ") as refused:
        kernel.syscall("landlock", 446, -1, 0)
    assert refused.value.errno in (errno.EBADF, errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP)
