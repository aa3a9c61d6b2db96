"""One context a process; a child gets its own."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import zmq

from kourou.transport.zmq_socket import process_context


def test_all_threads_share_one() -> None:
    with ThreadPoolExecutor(8) as pool:
        contexts = list(pool.map(lambda _: process_context(), range(50)))
    assert set(map(id, contexts)) == {id(process_context())}


def test_a_child_can_talk_although_its_parent_did() -> None:
    parent = process_context()
    with parent.socket(zmq.PAIR) as one:
        one.bind_to_random_port("tcp://127.0.0.1")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                own = process_context()
                first, second = own.socket(zmq.PAIR), own.socket(zmq.PAIR)
                port = first.bind_to_random_port("tcp://127.0.0.1")
                second.connect(f"tcp://127.0.0.1:{port}")
                first.send(b"alive")
                code = 0 if own is not parent and second.recv() == b"alive" else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert process_context() is parent
