"""Filters that get around Python: files, processes, modules, frames, and each other."""

import os
import re
import socket
import sys
from pathlib import Path

import pytest

REFUSED: dict[str, str] = {
    # name: expression
    # -- files, with Python's own means
    "open by io": "sys.modules['io'].open('{file}').read()",
    "open by FileIO": "sys.modules['io'].FileIO('{file}')",
    "write by io": "sys.modules['io'].open('{file}', 'w')",
    "open by number": "os.open('{file}', 0)",
    "list a directory": "os.listdir('/')",
    "scan a directory": "list(os.scandir('/'))",
    "its own memory map": "os.open('/proc/self/maps', 0)",
    "memory by /proc": "os.open('/proc/self/mem', 2)",
    "a kernel setting": "os.open('/proc/sys/kernel/core_pattern', 1)",
    "a device": "os.open('/dev/mem', 2)",
    "remove a file": "os.unlink('{file}')",
    "link a file": "os.symlink('{file}', '{file}2')",
    "rename a file": "os.rename('{file}', '{file}2')",
    "change a mode": "os.chmod('{file}', 0o777)",
    "make a directory": "os.mkdir('{file}2')",
    "go elsewhere": "os.chdir('/tmp')",
    "a file in memory": "os.memfd_create('x')",
    "duplicate the socket": "os.dup(3)",
    "close the socket": "os.close(3)",
    "make the socket non-blocking": "os.set_blocking(3, False)",
    # -- processes
    "fork": "os.fork()",
    "forkpty": "os.forkpty()",
    "exec": "os.execv('/bin/sh', ['sh', '-c', 'touch {file}2'])",
    "posix_spawn": "os.posix_spawn('/bin/sh', ['sh', '-c', 'touch {file}2'], {{}})",
    "kill its parent": "os.kill({parent}, 9)",
    "kill everybody": "os.kill(-1, 9)",
    "kill its group": "os.killpg(0, 9)",
    "stop itself": "os.kill(os.getpid(), 19)",
    "be nicer": "os.nice(-20)",
    "become root": "os.setuid(0)",
    "new namespaces": "os.setsid()",
    # -- modules
    "import a file": "named('SourceFileLoader')('x', '{file}').get_data('{file}')",
    # -- other ways into the machine
    "standard output": "os.write(1, b'x')",
    "standard error": "os.write(2, b'x')",
}
"""What ends in a system call that the kernel refuses."""

HOSTILE: dict[str, tuple[str, str, str]] = {
    # name: (expression, kind, how the reason begins)
    # -- files, with Python's own means
    "descriptor 3 as a file": ("sys.modules['io'].open(3, 'rb').read()", "timeout", "no reply"),
    # -- processes
    "system": ("os.system('touch {file}2')", "raised", "Told: (32512|-1),"),
    "a thread": ("sys.modules['_thread'].start_new_thread(len, ('',))", "raised", "RuntimeError"),
    "abort": ("os.abort()", "died", "the worker was killed by SIG"),
    "end at once": ("os._exit(0)", "died", "the worker ended"),
    "end with a lie": ("os._exit(255)", "died", "the worker ended"),
    "end politely": ("sys.exit(0)", "raised", "SystemExit: 0"),
    # -- modules
    "import os": ("__import__('os')", "raised", "ImportError: a filter may not import os"),
    "import by the real import": (
        "sys.modules['builtins'].__import__('subprocess')",
        "raised",
        "Mod",
    ),
    "import an extension": (
        "ctypes()['CDLL']('{folder}/planted.so')",
        "raised",
        "OSError",
    ),
    "look for modules elsewhere": (
        "(sys.path.append('{folder}'), __import__('planted'))",
        "raised",
        "ImportError",
    ),
    "plant an importer": (
        "(sys.modules.__setitem__('socket', os), __import__('socket'))",
        "raised",
        "ImportError",
    ),
    "evaluate a text": (
        "sys.modules['builtins'].eval('os.system(\"touch {file}2\")', {{'os': os}})",
        "raised",
        "Told: (32512|-1),",
    ),
    # -- other ways into the machine
    "a null pointer": ("ctypes()['string_at'](0)", "died", "the worker was killed by SIGSEGV"),
    "write to address 8": ("ctypes()['memset'](8, 0, 8)", "died", "the worker was killed by SIGS"),
    "a forged code object": (
        "type(call)(call.__code__.replace(co_code=b'd\\xff' * 40, co_consts=()), {{}})(1)",
        "died",
        "the worker was killed by SIG",
    ),
    "the environment": (
        "os.environ",
        "raised",
        r"Told: \{(b'LC_CTYPE': b'C.UTF-8', )?b'TZ': b'UTC0'\}",
    ),
    "the arguments": ("sys.argv + sys.orig_argv", "raised", r"Told: \[\]"),
    "print": ("print('x')", "raised", "Told: None"),
    "sys.stdout": ("sys.stdout.write('x')", "raised", "AttributeError"),
    "sys.__stderr__": (
        "(sys.__stderr__.write('x'), sys.__stderr__.flush())",
        "raised",
        "(Attribute|Permission)Error",
    ),
    # -- what is not said in any other way
    "an error of the worst kind": ("(_ for _ in ()).throw(KeyboardInterrupt())", "raised", "Keyb"),
    "an error without a name": ("(_ for _ in ()).throw(BaseException())", "raised", "BaseExc"),
    "an error group": (
        "(_ for _ in ()).throw(BaseExceptionGroup('x', [SystemExit(1)]))",
        "raised",
        "BaseExceptionGroup",
    ),
}


class Planted:
    """A folder with a file and with modules, which stays as it is."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "file"
        self.file.write_text("untouched")
        (folder / "planted.py").write_text("raise SystemExit")
        (folder / "planted.so").write_bytes(Path(sys.executable).read_bytes()[:4096])

    def reached_by(self, expression: str) -> str:
        """The expression with the places that it is after."""
        return expression.format(file=self.file, folder=self.folder, parent=os.getpid())

    def check(self) -> None:
        names = sorted(path.name for path in self.folder.iterdir())
        assert names == ["file", "planted.py", "planted.so"]
        assert self.file.read_text() == "untouched"


@pytest.fixture
def planted(tmp_path: Path) -> Planted:
    return Planted(tmp_path)


@pytest.mark.feature("F243")
def test_python_is_refused_what_the_kernel_refuses(jail, planted: Planted, capfd) -> None:
    """Each by the same error, which the filter may catch."""
    tried = "".join(
        f"    ({name!r}, lambda: {planted.reached_by(expression)}),\n"
        for name, expression in REFUSED.items()
    )
    source = f"""
TRIED = [
{tried}]
def outcome(expression):
    try:
        return repr(expression())
    except PermissionError as error:
        return error.errno
    except BaseException as error:
        return repr(error)
def match(message, context):
    outcomes = [(name, outcome(expression)) for name, expression in TRIED]
    raise Told([(name, one) for name, one in outcomes if one != 1])
"""
    outcome = jail.reach(source, count=1)
    assert (outcome.kind, outcome.reason.partition(", line")[0]) == ("raised", "Told: []")
    planted.check()
    assert capfd.readouterr() == ("", "")


@pytest.mark.feature("F243")
@pytest.mark.parametrize("name", HOSTILE)
def test_contained_and_reported(jail, name: str, planted: Planted, capfd) -> None:
    expression, kind, said = HOSTILE[name]
    source = f"def match(message, context): raise Told({planted.reached_by(expression)})"
    outcome = jail.reach(source, count=1, hurried=kind == "timeout")
    assert outcome.kind == kind, outcome
    assert re.match(said, outcome.reason), outcome
    planted.check()
    assert capfd.readouterr() == ("", "")


def test_a_name_that_is_listened_on_is_out_of_reach(jail) -> None:
    """A worker has a network of its own, and it may make no socket in it anyway."""
    with socket.socket() as listening, socket.socket(socket.AF_UNIX) as named:
        listening.bind(("127.0.0.1", 0))
        named.bind(f"\0kourou-test-{os.getpid()}")
        for one in (listening, named):
            one.listen()
            one.setblocking(False)
        port = listening.getsockname()[1]
        source = f"""
c = ctypes()
address = (2).to_bytes(2, "little") + ({port}).to_bytes(2, "big") + bytes([127, 0, 0, 1]) + bytes(8)
name = (1).to_bytes(2, "little") + b"\\0kourou-test-{os.getpid()}"
def match(message, context):
    tried = []
    for fd in (0, 1, 2, 3, call({"41" if os.uname().machine == "x86_64" else "198"}, 2, 1, 0)[0]):
        for at in (address, name):
            tried.append(LIBC[0].connect(fd, at, len(at)))
    raise Told(set(tried))
"""
        assert jail.reach(source, count=1).reason.startswith("Told: {-1},")
        for one in (listening, named):
            with pytest.raises(BlockingIOError):
                one.accept()


# -- from inside to the runtime, and from there to others -----------------------------------------


def test_no_other_filter_is_found_in_its_memory(jail) -> None:
    """The neighbour's source, name and group were never in this process."""
    source = """
gc = sys.modules["gc"]
MARK = "".join(("neigh", "bour"))
def match(message, context):
    texts = [one for one in gc.get_objects() if type(one) in (list, tuple, dict, set)]
    found = [
        one for group in texts for one in (group.values() if type(group) is dict else group)
        if type(one) in (str, bytes) and len(one) < 100_000
        and one is not MARK and MARK in (one if type(one) is str else one.decode("latin-1"))
    ]
    raise Told(len(texts) > 50, found)
"""
    assert jail.reach(source, count=60).reason.startswith("Told: (True, [])")


def test_frames_lead_to_the_loop_and_the_loop_knows_nothing(jail) -> None:
    source = """
def match(message, context):
    frame, seen = sys._getframe(), []
    while frame is not None:
        seen.append(frame.f_code.co_name)
        for name, value in frame.f_locals.items():
            if "".join(("neigh", "bour")) in repr(value)[:10_000]:
                raise Told(name)
        frame = frame.f_back
    raise Told(seen[-1])
"""
    assert jail.reach(source, count=1).reason.startswith("Told: <module>")


@pytest.mark.parametrize(
    ("what", "source"),
    [
        ("its builtins", "__builtins__['len'] = None"),
        ("everybody's builtins", "sys.modules['builtins'].len = lambda one: 0"),
        ("isinstance", "sys.modules['builtins'].isinstance = lambda a, b: True"),
        ("the runtime", "named('LoadedFilter').evaluate = lambda *a: (b'\\1' * a[-1], 0, None)"),
        ("the view", "named('MessageView').tag = 't1'"),
        (
            "the records",
            "named('LoadedFilter').evaluate.__globals__['next_record'] = lambda d, a: 0",
        ),
        ("the channel", "named('Channel').send = lambda self, reply: None"),
        ("the frames", "named('Channel').next_frame = lambda self: None"),
        ("the sandbox", "named('Channel').__init__.__globals__['enter_sandbox'] = None"),
        ("the clock", "sys.modules['time'].process_time_ns = lambda: -10**30"),
        ("the garbage collector", "sys.modules['gc'].set_threshold(1, 1, 1)"),
        ("tracing", "sys.settrace(lambda *a: None)"),
        ("profiling", "sys.setprofile(lambda *a: None)"),
        ("the switch interval", "sys.setswitchinterval(1e9)"),
        ("audit hooks", "sys.addaudithook(lambda *a: None)"),
        ("hooks at the end", "sys.modules['atexit'].register(print)"),
        ("the hook of errors", "sys.excepthook = None"),
        ("the limit of digits", "sys.set_int_max_str_digits(0)"),
        ("a class of the language", "ctypes()['c_char'].from_address(id(True) + 24).value = 0"),
    ],
)
@pytest.mark.parametrize("when", ["at set-up", "at a message"])
def test_who_changes_the_runtime_changes_his_own(jail, what: str, source: str, when: str) -> None:
    """Whatever becomes of it, the neighbour judges as before: `ask` looks."""
    changed = (
        f"{source}\ndef match(message, context): return True"
        if when == "at set-up"
        else f"def match(message, context):\n    {source}\n    return True"
    )
    outcome = jail.reach(changed, batches=3, hurried=True)
    assert outcome.kind in ("", "raised", "died", "timeout", "lied", "setup"), outcome
    assert not outcome.kind or outcome.reason


def test_a_handler_for_signals_cannot_be_set(jail) -> None:
    source = """
signal = sys.modules["_signal"]
def match(message, context):
    tried = []
    for number in range(1, 65):
        try:
            signal.signal(number, signal.SIG_IGN)
            tried.append(number)
        except (OSError, ValueError):
            pass
    raise Told(tried)
"""
    assert jail.reach(source, count=1).reason.startswith("Told: [],")


def test_no_signal_comes(jail) -> None:
    source = """
signal = sys.modules["_signal"]
CALLS = [
    lambda: signal.alarm(1),
    lambda: signal.setitimer(0, 0.001),
    lambda: signal.pause(),
    lambda: signal.sigwait([14]),
    lambda: signal.raise_signal(9),
]
def errno_of(call):
    try:
        call()
    except OSError as error:
        return error.errno
    return 0
def match(message, context):
    raise Told(set(map(errno_of, CALLS)) - {0, 1})
"""
    assert jail.reach(source, count=1).reason.startswith("Told: set(),")


def test_nothing_of_the_server_is_in_the_environment_of_its_zygote(jail) -> None:
    """Also not in the memory from which the kernel's environment was made."""
    source = """
def match(message, context):
    c = ctypes()
    call(39)
    environ = c["POINTER"](c["c_char_p"]).in_dll(LIBC[0], "environ")
    found = []
    while environ[len(found)] is not None:
        found.append(environ[len(found)])
    raise Told(found)
"""
    assert jail.reach(source, count=1).reason.endswith(
        "b'TZ=UTC0'], line 44 of the filter, at orders/2@0"
    )
