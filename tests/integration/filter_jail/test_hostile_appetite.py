"""Filters that take all there is: memory, time, depth, descriptors; and what is told of them."""

import json
import zlib

import pytest

BUSY = "no reply within"
FULL = "the filter needed more memory"

HOSTILE: dict[str, tuple[str, str, str]] = {
    # name: (the body of match, kinds, how the reason begins)
    # -- memory
    "a gigabyte": ("return len(b'a' * (1 << 30)) > 0", "memory", FULL),
    "a terabyte": ("return len(bytes(1 << 40)) > 0", "memory", FULL),
    "a list without end": (
        "kept = []\n    while True: kept.append(bytes(1 << 20))",
        "memory timeout",
        "",
    ),
    "a list of one thing": ("return len([0] * 10**9) > 0", "memory", FULL),
    "a text that doubles": (
        "text = 'ab'\n    while True: text += text",
        "memory timeout",
        "",
    ),
    "many small things": (
        "kept = None\n    while True: kept = (kept, [kept] * 1000)",
        "memory timeout",
        "",
    ),
    "memory that is kept over batches": (
        "KEPT.append(bytes(40 << 20))\n    return True",
        "memory timeout",
        "",
    ),
    "an error for every byte": (
        "kept = []\n    while True:\n        try:\n            kept.append(bytes(1 << 24))\n"
        "        except MemoryError:\n            pass",
        "timeout",
        BUSY,
    ),
    "a format of a billion blanks": ("return '%1000000000d' % 1 == ''", "memory", FULL),
    "a bit far to the left": ("return (1 << (1 << 34)) > 0", "memory", FULL),
    "a bomb of zlib": (
        "import zlib\n    bomb = zlib.compress(bytes(1 << 20), 9)\n"
        "    return len(b''.join(zlib.decompress(bomb) for _ in range(1000))) > 0",
        "memory timeout",
        "",
    ),
    "a product of ranges": (
        "import itertools\n    return len(list(itertools.product(range(9999), repeat=3))) > 0",
        "memory timeout",
        "",
    ),
    "all of a generator": (
        "import itertools\n    return len([*itertools.count()]) > 0",
        "memory timeout",
        "",
    ),
    # -- time
    "a loop": ("while True: pass", "timeout", BUSY),
    "a loop that catches everything": (
        "while True:\n        try: raise KeyboardInterrupt\n        except BaseException: pass",
        "timeout",
        BUSY,
    ),
    "a loop in C": ("return sum(iter(int, 1)) > 0", "timeout", BUSY),
    "a sum without end": (
        "import itertools\n    return all(itertools.repeat(True))",
        "timeout",
        BUSY,
    ),
    "a bomb of a pattern": (
        "import re\n    return bool(re.fullmatch('(a+)+$', 'a' * 40 + 'b'))",
        "timeout",
        BUSY,
    ),
    "a pattern of stars": (
        "import re\n    return bool(re.search('(.*)*(.*)*(.*)*x', 'y' * 60))",
        "timeout",
        BUSY,
    ),
    "a pattern too deep to read": (
        "import re\n    return bool(re.compile('(?:' * 5000 + ')' * 5000))",
        "raised",
        "RecursionError",
    ),
    "a gigantic power": ("return 10 ** 10 ** 8 > 0", "timeout", BUSY),
    "a tower of powers": ("return 9 ** 9 ** 9 > 0", "timeout", BUSY),
    "a gigantic factorial": ("import math\n    return math.factorial(10**7) > 0", "timeout", BUSY),
    "a gigantic decimal": (
        "import decimal\n    decimal.getcontext().prec = 10**7\n"
        "    return decimal.Decimal(7) ** decimal.Decimal('0.3') > 0",
        "timeout memory",
        "",
    ),
    "a number with too many digits": ("return str(10 ** 5000) == ''", "raised", "ValueError"),
    "a text with too many digits": ("return int('9' * 10**6) > 0", "raised", "ValueError"),
    "a flood of equal hashes": (
        "class A:\n        def __hash__(self): return 1\n"
        "        def __eq__(self, o): return False\n"
        "    return len({A() for _ in range(10**6)}) > 0",
        "timeout",
        BUSY,
    ),
    "a comparison without end": (
        "class A:\n        def __lt__(self, o):\n            while True: pass\n"
        "    return bool(sorted([A(), A()]))",
        "timeout",
        BUSY,
    ),
    "a finalizer without end": (
        "class A:\n        def __del__(self):\n            while True: pass\n"
        "    A()\n    return True",
        "timeout",
        BUSY,
    ),
    "an error without end": (
        "class A(Exception):\n        def __str__(self):\n            while True: pass\n"
        "    raise A",
        "timeout",
        BUSY,
    ),
    "an answer without end": (
        "class A:\n        def __bool__(self):\n            while True: pass\n    return A()",
        "raised",
        "`match` returned a A",
    ),
    # -- depth
    "recursion": ("return match(message, context)", "raised", "RecursionError"),
    "recursion through C": (
        "class A:\n        def __repr__(self): return repr([self])\n    return repr(A()) == ''",
        "raised",
        "RecursionError",
    ),
    "recursion of two": (
        "def a(): return b()\n    def b(): return a()\n    return a()",
        "raised",
        "RecursionError",
    ),
}


@pytest.mark.feature("F243")
@pytest.mark.parametrize("name", HOSTILE)
def test_stopped_and_reported(jail, name: str) -> None:
    body, kinds, said = HOSTILE[name]
    outcome = jail.ask(
        f"KEPT = []\ndef match(message, context):\n    {body}",
        count=1,
        batches=10,
        hurried="timeout" in kinds,
    )
    assert outcome.kind in kinds.split(), outcome
    assert outcome.reason.startswith(said), outcome


@pytest.mark.feature("F243")
@pytest.mark.parametrize("name", ["a gigabyte", "a loop", "recursion"])
def test_quarantined_after_its_failures(jail, name: str) -> None:
    source = f"def match(message, context):\n    {HOSTILE[name][0]}"
    assert jail.until_quarantine(source, hurried=name == "a loop") == 3


@pytest.mark.parametrize(
    ("source", "kinds"),
    [
        ("while True: pass", "timeout"),
        ("KEPT = bytes(1 << 30)", "memory"),
        ("def f(): f()\nf()", "setup"),
        ("raise SystemExit", "setup"),
        ("import os", "setup"),
        ("class A:\n    def __init__(self):\n        while True: pass\n    match = 1", "timeout"),
        ("x = " + "(" * 5000 + ")" * 5000, "setup memory"),
        ("x = " + "-" * 60_000 + "1", "setup memory"),
        ("x = a" + ".b" * 30_000, "setup memory"),
        ("x = " + "9" * 60_000, "setup"),
        ("def set_up(context):\n    while True: pass\ndef match(m, c): return True", "timeout"),
    ],
)
def test_hostile_at_set_up(jail, source: str, kinds: str) -> None:
    outcome = jail.ask(source, hurried="timeout" in kinds)
    assert outcome.kind in kinds.split(), outcome


def test_an_error_at_one_message_and_memory_at_another(jail) -> None:
    """The worker lives on, and each message has its own verdict."""
    source = """
def match(message, context):
    if message.offset == 1:
        return len(bytes(1 << 32)) > 0
    if message.offset == 2:
        raise ValueError
    return True
"""
    outcome = jail.ask(source, count=4, batches=2)
    assert (outcome.kind, outcome.results) == ("memory", b"\1\2\2\1")


# -- bodies that are bombs ------------------------------------------------------------------------


def test_a_compressed_body_that_grows_without_measure(jail) -> None:
    bomb = zlib.compress(bytes(5 << 20), 9)
    outcome = jail.ask("def match(m, c): return m.body == b''", body=bomb, flag=1 | 3 << 8, count=1)
    assert outcome.kind == "raised"
    assert outcome.reason.startswith("BadRecord: body: it would grow beyond"), outcome


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"[" * 100_000, "RecursionError"),
        (b'{"a":' * 100_000, "RecursionError"),
        (b"9" * 100_000, "ValueError"),
        (b"[1,", "JSONDecodeError"),
        (b"\xff\xfe\x00", "UnicodeDecodeError"),
        (json.dumps("x").encode()[:-1], "JSONDecodeError"),
    ],
)
def test_json_that_is_a_bomb_or_none(jail, body: bytes, said: str) -> None:
    outcome = jail.ask("def match(message, context): return bool(message.json)", body=body, count=1)
    assert outcome.kind == "raised"
    assert outcome.reason.startswith(said), outcome


# -- what needs more than the language ------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "body", "kinds"),
    [
        (
            "no limit of recursion",
            "sys.setrecursionlimit(10**9)\n    return match(m, c)",
            "memory timeout",
        ),
        (
            "a stack that ends",
            "sys.setrecursionlimit(10**9)\n    nest = []\n"
            "    for _ in range(10**6): nest = [nest]\n    return repr(nest) == ''",
            "died timeout memory",
        ),
        (
            "a lock that nobody opens",
            "l = sys.modules['_thread'].allocate_lock()\n    l.acquire()\n    return l.acquire()",
            "timeout",
        ),
        ("a read that nobody answers", "return os.read(3, 1) == b''", "timeout"),
        ("a sleep", "sys.modules['time'].sleep(100)", "raised"),
        ("all descriptors", "return [os.dup(3) for _ in range(10**6)] == []", "raised"),
        ("pipes", "return [os.pipe() for _ in range(10**6)] == []", "raised"),
        (
            "threads",
            "return [sys.modules['_thread'].start_new_thread(f, ()) for f in [match] * 9]",
            "raised",
        ),
        ("malloc", "return ctypes()['create_string_buffer'](1 << 34) is None", "memory"),
        ("more memory by brk", "raise Told(call(12, 1 << 46))", "raised"),
        ("more memory by mmap", "raise Told([call(9, 0, 1 << 34, 3, 0x22, -1, 0)])", "raised"),
        (
            "no digits' limit",
            "sys.set_int_max_str_digits(0)\n    return int('9' * 10**7) > 0",
            "timeout",
        ),
        (
            "the collector at work",
            "sys.modules['gc'].collect()\n    while True:\n        sys.modules['gc'].get_objects()",
            "timeout memory",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and "\n" not in value else "",
)
def test_with_all_of_python_at_hand(jail, name: str, body: str, kinds: str) -> None:
    outcome = jail.reach(f"def match(m, c):\n    {body}", count=1, hurried="timeout" in kinds)
    assert outcome.kind in kinds.split(), outcome
    if name == "more memory by mmap":
        assert outcome.reason.startswith("Told: [(-1, 12)]"), outcome  # ENOMEM
