"""Core scheduling is found by asking the kernel, and what it lacks is an error."""

from __future__ import annotations

import os

import pytest

from dsec_runtime.linux import coresched


@pytest.mark.skipif(coresched.supported(), reason="this kernel has core scheduling")
def test_a_kernel_without_it_says_so() -> None:
    with pytest.raises(OSError, match="core scheduling"):
        coresched.give_cookie(os.getpid())


@pytest.mark.skipif(not coresched.supported(), reason="this kernel has no core scheduling")
def test_a_child_gets_a_cookie() -> None:
    ready, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(ready, 1)
        os._exit(0)
    try:
        coresched.give_cookie(child)
    finally:
        os.write(go, b".")
        os.waitpid(child, 0)
        os.close(ready)
        os.close(go)
