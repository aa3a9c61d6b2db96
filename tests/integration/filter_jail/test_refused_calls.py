"""Every dangerous system call, made by a filter itself: the kernel refuses each with EPERM.

The filters here do not ask Python: they get hold of ctypes and call the kernel. Each call is made a
second time by a worker without a sandbox, with arguments with which it fails harmlessly or does
nothing; there it must end otherwise, or the test would prove nothing. One worker makes all calls of
a table: none of them changes what another one does.
"""

import os
import platform

import pytest

from kourou_filter_server.sandbox.seccomp import CALLS, this_architecture

UPROBES = {335, 336} if platform.machine() == "x86_64" else set()
"""Calls of the kernel's own trampolines: newer kernels let them past seccomp on purpose, and kill
by SIGILL, or refuse, whoever makes them from elsewhere."""

X86 = 0
"""Index of x86_64 in the numbers below; aarch64 has the other; None where there is no such call."""

NUMBERS: dict[str, tuple[int | None, int | None]] = {
    # files
    "open": (2, None),
    "openat": (257, 56),
    "openat2": (437, 437),
    "read": (0, 63),
    "write": (1, 64),
    "pread64": (17, 67),
    "readv": (19, 65),
    "writev": (20, 66),
    "close": (3, 57),
    "close_range": (436, 436),
    "readlinkat": (267, 78),
    "symlinkat": (266, 36),
    "linkat": (265, 37),
    "renameat2": (316, 276),
    "unlinkat": (263, 35),
    "mkdirat": (258, 34),
    "mknodat": (259, 33),
    "chdir": (80, 49),
    "fchdir": (81, 50),
    "getcwd": (79, 17),
    "getdents64": (217, 61),
    "newfstatat": (262, 79),
    "fstat": (5, 80),
    "statx": (332, 291),
    "statfs": (137, 43),
    "faccessat": (269, 48),
    "fchmodat": (268, 53),
    "fchownat": (260, 54),
    "truncate": (76, 45),
    "ftruncate": (77, 46),
    "umask": (95, 166),
    "inotify_init1": (294, 26),
    "fanotify_init": (300, 262),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "memfd_create": (319, 279),
    "copy_file_range": (326, 285),
    "splice": (275, 76),
    "sendfile": (40, 71),
    "ioctl": (16, 29),
    "fcntl": (72, 25),
    "dup": (32, 23),
    "dup3": (292, 24),
    "pipe2": (293, 59),
    "eventfd2": (290, 19),
    "epoll_create1": (291, 20),
    "timerfd_create": (283, 85),
    "signalfd4": (289, 74),
    # sockets
    "socket": (41, 198),
    "socketpair": (53, 199),
    "connect": (42, 203),
    "bind": (49, 200),
    "listen": (50, 201),
    "accept4": (288, 242),
    "sendto": (44, 206),
    "recvfrom": (45, 207),
    "sendmsg": (46, 211),
    "recvmsg": (47, 212),
    "shutdown": (48, 210),
    "setsockopt": (54, 208),
    "getpeername": (52, 205),
    # processes
    "fork": (57, None),
    "vfork": (58, None),
    "clone": (56, 220),
    "clone3": (435, 435),
    "execve": (59, 221),
    "execveat": (322, 281),
    "wait4": (61, 260),
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "pidfd_getfd": (438, 438),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "getppid": (110, 173),
    "setpgid": (109, 154),
    "setsid": (112, 157),
    "setuid": (105, 146),
    "setresuid": (117, 147),
    "setgroups": (116, 159),
    "capset": (126, 91),
    "prctl": (157, 167),
    "setrlimit": (160, 164),
    "prlimit64": (302, 261),
    "setpriority": (141, 140),
    "sched_setscheduler": (144, 119),
    "sched_setaffinity": (203, 122),
    "ioprio_set": (251, 30),
    # the kernel
    "io_uring_setup": (425, 425),
    "io_uring_register": (427, 427),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "fsopen": (430, 430),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "kexec_load": (246, 104),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "acct": (163, 89),
    "sethostname": (170, 161),
    "clock_settime": (227, 112),
    "syslog": (103, 116),
    "quotactl": (179, 60),
    "personality": (135, 92),
    "landlock_create_ruleset": (444, 444),
    "seccomp": (317, 277),
    "uname": (63, 160),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    # memory
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "madvise": (28, 233),
    "mlock": (149, 228),
    "mlockall": (151, 230),
    "remap_file_pages": (216, 234),
    "pkey_mprotect": (329, 288),
    "arch_prctl": (158, None),
    "set_tid_address": (218, 96),
    "membarrier": (324, 283),
    # signals and time
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "sigaltstack": (131, 132),
    "alarm": (37, None),
    "setitimer": (38, 103),
    "timer_create": (222, 107),
    "pause": (34, None),
    "nanosleep": (35, 101),
    "clock_nanosleep": (230, 115),
    "poll": (7, None),
    "ppoll": (271, 73),
    "pselect6": (270, 72),
    "futex": (202, 98),
}

# A name, the call, its arguments as Python: b'…' is a pointer to those bytes, 0 a null pointer.
FREE: list[tuple[str, str, str]] = [
    ("reading a file", "open", "b'/etc/passwd', 0"),
    ("reading a file from a directory", "openat", "-100, b'/etc/passwd', 0"),
    ("reading /proc", "openat", "-100, b'/proc/self/environ', 0"),
    ("reading /sys", "openat", "-100, b'/sys/kernel/notes', 0"),
    ("opening beside the socket", "openat", "3, b'x', 0"),
    ("opening in the new way", "openat2", "-100, b'/etc/passwd', bytes(24), 24"),
    ("making a file", "openat", "-100, b'/tmp/kourou-filter-was-here', 0o101, 0o600"),
    ("reading another descriptor", "read", "0, bytes(8), 8"),
    ("reading at a place", "pread64", "0, bytes(8), 8, 0"),
    ("reading in pieces", "readv", "0, bytes(16), 0"),
    ("writing to stdout", "write", "1, b'x', 1"),
    ("writing to stderr", "write", "2, b'x', 1"),
    ("writing in pieces", "writev", "1, bytes(16), 0"),
    ("closing a descriptor", "close", "9"),
    ("closing all descriptors", "close_range", "20, 30, 0"),
    ("reading a link", "readlinkat", "-100, b'/proc/self/exe', bytes(64), 64"),
    ("making a link", "symlinkat", "b'/etc/passwd', 77, b'x'"),
    ("making a hard link", "linkat", "77, b'x', 77, b'y', 0"),
    ("renaming", "renameat2", "77, b'x', 77, b'y', 0"),
    ("removing a file", "unlinkat", "77, b'x', 0"),
    ("making a directory", "mkdirat", "77, b'x', 0"),
    ("making a pipe with a name", "mknodat", "77, b'x', 0o010600, 0"),
    ("going elsewhere", "chdir", "b'/'"),
    ("going elsewhere by descriptor", "fchdir", "77"),
    ("asking where it is", "getcwd", "bytes(64), 64"),
    ("listing a directory", "getdents64", "77, bytes(64), 64"),
    ("asking about a file", "newfstatat", "-100, b'/', bytes(256), 0"),
    ("asking about a descriptor", "fstat", "3, bytes(256)"),
    ("asking about a file in the new way", "statx", "-100, b'/', 0, 0, bytes(512)"),
    ("asking about a file system", "statfs", "b'/', bytes(256)"),
    ("asking for access", "faccessat", "-100, b'/', 0"),
    ("changing a mode", "fchmodat", "77, b'x', 0"),
    ("changing an owner", "fchownat", "77, b'x', -1, -1, 0"),
    ("cutting a file", "truncate", "b'/nonexistent', 0"),
    ("growing a file", "ftruncate", "77, 1"),
    ("changing its umask", "umask", "0o77"),
    ("watching files", "inotify_init1", "0"),
    ("naming a file by handle", "name_to_handle_at", "77, b'x', 0, 0, 0"),
    ("a file in memory", "memfd_create", "b'x', 0"),
    ("copying files in the kernel", "copy_file_range", "77, 0, 77, 0, 1, 0"),
    ("splicing", "splice", "77, 0, 77, 0, 1, 0"),
    ("sending a file", "sendfile", "77, 77, 0, 1"),
    ("controlling a device", "ioctl", "3, 0x5413, bytes(64)"),
    ("typing into the terminal", "ioctl", "77, 0x5412, b'x'"),
    ("controlling a descriptor", "fcntl", "3, 1, 0"),
    ("duplicating the socket", "dup", "3"),
    ("replacing the socket", "dup3", "0, 3, 77"),
    ("a pipe", "pipe2", "bytes(8), 0"),
    ("an event descriptor", "eventfd2", "0, 0"),
    ("an epoll", "epoll_create1", "0"),
    ("a timer descriptor", "timerfd_create", "1, 0"),
    ("a signal descriptor", "signalfd4", "-1, bytes(8), 8, 0"),
    ("a TCP socket", "socket", "2, 1, 0"),
    ("a UDP socket", "socket", "2, 2, 0"),
    ("an IPv6 socket", "socket", "10, 1, 0"),
    ("a unix socket", "socket", "1, 1, 0"),
    ("a netlink socket", "socket", "16, 3, 0"),
    ("a vsock", "socket", "40, 1, 0"),
    ("a pair of sockets", "socketpair", "1, 1, 0, bytes(8)"),
    ("connecting to an abstract name", "connect", "3, b'\\1\\0\\0kourou', 9"),
    ("binding", "bind", "3, b'\\2\\0\\0\\0\\0\\0\\0\\0', 16"),
    ("listening", "listen", "77, 1"),
    ("accepting", "accept4", "77, 0, 0, 0"),
    ("sending a datagram", "sendto", "77, b'x', 1, 0, 0, 0"),
    ("receiving a datagram", "recvfrom", "77, bytes(8), 8, 0, 0, 0"),
    ("sending a descriptor", "sendmsg", "3, 0, 0"),
    ("receiving a descriptor", "recvmsg", "3, 0, 0"),
    ("shutting the socket", "shutdown", "77, 2"),
    ("an option of the socket", "setsockopt", "77, 1, 8, bytes(4), 4"),
    ("asking who is at the other end", "getpeername", "3, bytes(64), bytes(4)"),
    ("clone", "clone", "0x800, 0, 0, 0, 0"),
    ("clone3", "clone3", "0, 0"),
    ("exec", "execve", "0, 0, 0"),
    ("exec by descriptor", "execveat", "77, b'x', 0, 0, 0"),
    ("waiting for children", "wait4", "-1, 0, 1, 0"),
    ("a signal to its group", "kill", "0, 0"),
    ("a signal to the parent", "kill", "{parent}, 0"),
    ("a signal to everybody", "kill", "-1, 0"),
    ("a signal to a thread", "tkill", "{parent}, 0"),
    ("a signal to a thread of a process", "tgkill", "{parent}, {parent}, 0"),
    ("a signal with a value", "rt_sigqueueinfo", "{parent}, 0, 0"),
    ("a descriptor of its parent", "pidfd_open", "{parent}, 0"),
    ("a signal by descriptor", "pidfd_send_signal", "77, 0, 0, 0"),
    ("a descriptor of another process", "pidfd_getfd", "77, 0, 0"),
    ("ptrace of its parent", "ptrace", "77, {parent}, 0, 0"),
    ("being traced", "ptrace", "99, 0, 0, 0"),
    ("reading another process", "process_vm_readv", "{parent}, 0, 0, 0, 0, 0"),
    ("writing to another process", "process_vm_writev", "{parent}, 0, 0, 0, 0, 0"),
    ("advice about another process", "process_madvise", "77, 0, 0, 0, 0"),
    ("comparing processes", "kcmp", "2**30, 2**30, 0, 0, 0"),
    ("asking who its parent is", "getppid", ""),
    ("changing its group", "setpgid", "0, -1"),
    ("a session of its own", "setsid", ""),
    ("becoming another user", "setuid", "-1"),
    ("becoming another user in all ways", "setresuid", "-1, -1, -1"),
    ("taking capabilities", "capset", "0, 0"),
    ("outliving its parent", "prctl", "1, 0, 0, 0, 0"),
    ("changing its name", "prctl", "15, b'sshd', 0, 0, 0"),
    ("being dumpable again", "prctl", "4, 1, 0, 0, 0"),
    ("asking for seccomp by prctl", "prctl", "22, 99, 0, 0, 0"),
    ("raising a limit", "setrlimit", "99, 0"),
    ("raising a limit in the new way", "prlimit64", "0, 9, 0, bytes(16)"),
    ("a limit of its parent", "prlimit64", "{parent}, 9, 0, bytes(16)"),
    ("being nicer", "setpriority", "0, 0, 19"),
    ("real-time scheduling", "sched_setscheduler", "0, 99, 0"),
    ("choosing its processor", "sched_setaffinity", "0, 0, 0"),
    ("choosing its disk priority", "ioprio_set", "9, 0, 0"),
    ("io_uring", "io_uring_setup", "8, 0"),
    ("io_uring's descriptors", "io_uring_register", "77, 0, 0, 0"),
    ("bpf", "bpf", "99, 0, 0"),
    ("perf events", "perf_event_open", "0, 0, -1, -1, 0"),
    ("userfaultfd", "userfaultfd", "77"),
    ("the kernel's keys", "keyctl", "99, 0, 0, 0, 0"),
    ("adding a key", "add_key", "0, 0, 0, 0, 0"),
    ("requesting a key", "request_key", "0, 0, 0, 0"),
    ("other namespaces", "unshare", "0"),
    ("joining namespaces", "setns", "77, 0"),
    ("a personality", "personality", "-1"),
    ("landlock", "landlock_create_ruleset", "0, 0, 1"),
    ("a seccomp filter of its own", "seccomp", "99, 0, 0"),
    ("asking for the host's name", "uname", "bytes(512)"),
    ("shared memory", "shmget", "0, 0, 0"),
    ("semaphores", "semget", "0, -1, 0"),
    ("message queues", "msgget", "77, 0"),
    ("POSIX message queues", "mq_open", "b'x', 0, 0, 0"),
    ("executable memory", "mmap", "0, 4096, 7, 0x22, -1, 0"),
    ("mapping the socket", "mmap", "0, 4096, 1, 1, 3, 0"),
    ("memory shared with children", "mmap", "0, 4096, 3, 0x03, 77, 0"),
    ("making memory executable", "mprotect", "0, 4096, 5"),
    ("advice about memory", "madvise", "0, 0, 21"),
    ("locking memory", "mlock", "0, 4096"),
    ("locking all memory", "mlockall", "99"),
    ("moving mapped pages", "remap_file_pages", "0, 0, 0, 0, 0"),
    ("memory keys", "pkey_mprotect", "1, 4096, 0, 99"),
    ("segment registers", "arch_prctl", "0x9999, 0"),
    ("the thread's address", "set_tid_address", "0"),
    ("barriers for all processes", "membarrier", "0, 0"),
    ("catching a signal", "rt_sigaction", "14, 0, bytes(32), 8"),
    ("blocking signals", "rt_sigprocmask", "0, 0, bytes(8), 8"),
    ("a stack for signals", "sigaltstack", "0, bytes(24)"),
    ("an alarm", "alarm", "0"),
    ("an interval timer", "setitimer", "99, 0, 0"),
    ("a POSIX timer", "timer_create", "99, 0, 0"),
    ("sleeping", "nanosleep", "bytes(16), 0"),
    ("sleeping by a clock", "clock_nanosleep", "1, 0, bytes(16), 0"),
    ("waiting for the socket", "poll", "0, 0, 0"),
    ("waiting in the new way", "ppoll", "0, 0, bytes(16), 0, 8"),
    ("selecting", "pselect6", "0, 0, 0, 0, bytes(16), 0"),
    ("locks of other processes", "futex", "bytes(8), 6, 0, bytes(16), 0, 0"),
]
"""Calls that any process may make without a sandbox."""

PRIVILEGED: list[tuple[str, str, str]] = [
    ("watching a file system", "fanotify_init", "77, 0"),
    ("opening by handle", "open_by_handle_at", "77, 0, 0"),
    ("leaving its groups", "setgroups", "-1, 0"),
    ("mounting", "mount", "0, b'/nonexistent', 0, 0, 0"),
    ("unmounting", "umount2", "b'/nonexistent', 0"),
    ("changing the root", "pivot_root", "b'/nonexistent', b'/nonexistent'"),
    ("a root of its own", "chroot", "b'/nonexistent'"),
    ("a file system of its own", "fsopen", "b'x', 77"),
    ("a tree of mounts", "open_tree", "77, b'x', 0"),
    ("moving a mount", "move_mount", "77, b'x', 77, b'x', 0"),
    ("the clock", "clock_settime", "99, bytes(16)"),
    ("the kernel's log", "syslog", "99, 0, 0"),
    ("quotas", "quotactl", "0, 0, 0, 0"),
    ("the host's name", "sethostname", "0, -1"),
    ("rebooting", "reboot", "0, 0, 0, 0"),
    ("loading a module", "init_module", "0, 0, 0"),
    ("loading a module by descriptor", "finit_module", "77, 0, 0"),
    ("another kernel", "kexec_load", "0, 99, 0, 0"),
    ("swap", "swapon", "b'/nonexistent', 0"),
    ("accounting", "acct", "b'/nonexistent'"),
]
"""Calls that only root may make, whatever their arguments."""

DEADLY: list[tuple[str, str, str]] = [
    ("fork", "fork", ""),
    ("vfork", "vfork", ""),
    ("waiting for ever", "pause", ""),
]
"""Calls that cannot be tried without a sandbox: no argument makes them harmless."""


ALL = {"free": FREE, "privileged": PRIVILEGED, "deadly": DEADLY}


def calling(table: str, *, wanted: str) -> str:
    """A filter that makes the calls that this machine has; it tells whose outcome is not wanted."""
    index = X86 if platform.machine() == "x86_64" else 1
    calls = [
        f"    ({label!r}, lambda: call({number}, {arguments.format(parent=os.getpid())})),\n"
        for label, name, arguments in ALL[table]
        if (number := NUMBERS[name][index]) is not None
    ]
    return (
        f"CALLS = [\n{''.join(calls)}]\n"
        "def match(message, context):\n"
        "    found = [(label, one()) for label, one in CALLS]\n"
        f"    raise Told([(label, one) for label, one in found if not one {wanted}])\n"
    )


@pytest.mark.feature("F243")
@pytest.mark.parametrize("table", ALL)
def test_the_kernel_refuses(jail, table: str) -> None:
    outcome = jail.reach(calling(table, wanted="== (-1, 1)"), count=1)
    assert (outcome.kind, outcome.reason.partition(", line")[0]) == ("raised", "Told: []")


@pytest.mark.parametrize("table", ["free", "privileged"] if os.geteuid() == 0 else ["free"])
def test_without_a_sandbox_it_would_not(no_jail, table: str) -> None:
    outcome = no_jail.reach(calling(table, wanted="!= (-1, 1)"), count=1)
    assert (outcome.kind, outcome.reason.partition(", line")[0]) == ("raised", "Told: []")


def test_the_second_table_of_calls_ends_the_worker(jail) -> None:
    """x86_64 has another table (x32), by which a list of numbers could be gone around."""
    x32 = platform.machine() == "x86_64"
    number = 0x4000_0000 + 39 if x32 else 9999
    outcome = jail.reach(f"def match(m, c): raise Told(call({number}))", count=1)
    assert outcome.kind == ("died" if x32 else "raised")
    assert ("SIGSYS" if x32 else "(-1, 1)") in outcome.reason


@pytest.mark.feature("F243")
def test_every_call_that_is_not_listed_is_refused(jail) -> None:
    """All numbers there are and some to come, so that none is forgotten here."""
    numbers = this_architecture().numbers
    allowed = {numbers[name] for name in CALLS if name in numbers} | UPROBES
    source = f"""
def match(message, context):
    raise Told([n for n in range(600) if n not in {allowed} and call(n, -1) != (-1, 1)])
"""
    outcome = jail.reach(source, count=100)
    assert outcome.reason.startswith("Told: [], line"), outcome.reason


@pytest.mark.parametrize("number", sorted(UPROBES))
def test_what_goes_past_seccomp_kills_the_caller_at_most(jail, number: int) -> None:
    outcome = jail.reach(f"def match(m, c): raise Told(call({number}))", count=1)
    assert outcome.kind == "died" or outcome.reason.startswith("Told: (-1, ")
