"""A signal ends a program whose main thread waits for another, to whichever thread it is given."""

import os
import signal
import subprocess
import sys

import pytest

ENDS = """
import os, signal, sys, threading
from dsec_layers.linux import signals

heard = threading.Event()

def handler(number, frame):
    heard.set()
    print(number, flush=True)
    os._exit(3)

signal.signal(signal.SIGTERM, handler)
signal.signal(signal.SIGUSR1, lambda *_: None)
hearing = signals.heard((signal.SIGTERM,), heard)
hearing.__enter__()
"""
TO_ANOTHER_THREAD = """
def be_given():
    signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)  # none that it is told of
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

threading.Timer(0.2, be_given).start()
"""
TO_A_CHILD = """
child = os.fork()
if not child:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(5))
    os.kill(os.getpid(), signal.SIGTERM)
    os._exit(6)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
assert not heard.wait(0.5)
os.kill(os.getpid(), signal.SIGTERM)
"""
WAITS = """
lock = threading.Lock()
lock.acquire()
lock.acquire()
"""


@pytest.mark.parametrize("given", [TO_ANOTHER_THREAD, TO_A_CHILD])
def test_a_wait_is_ended(given: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", ENDS + given + WAITS],
        stdout=subprocess.PIPE,
        timeout=60,
        env=dict(os.environ),
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (3, b"%d\n" % signal.SIGTERM)
