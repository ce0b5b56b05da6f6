"""What programs say of themselves: shebangs and ELF headers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsec_layers.api.checks.elf import Needs, Read, needs
from dsec_layers.api.checks.shebang import Shebang, parse
from tests.support.elves import make_elf

ELF = make_elf(b"/lib/ld.so", [b"liba.so", b"libb.so.1"])


def reader(data: bytes) -> Read:
    return lambda offset, length: data[offset : offset + length]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("wide", [True, False])
def test_every_form_of_elf(wide: bool, order: str) -> None:
    data = make_elf(b"/lib/ld.so", [b"liba.so", b"libb.so.1"], wide=wide, order=order)
    assert needs(reader(data)) == Needs(b"/lib/ld.so", (b"liba.so", b"libb.so.1"))
    static = make_elf(b"", [], wide=wide, order=order)
    assert needs(reader(static)) == Needs(None, ())


def test_a_real_program() -> None:
    path = Path(sys.executable).resolve()
    found = needs(reader(path.read_bytes()))
    assert found is not None
    assert found.interpreter is not None
    assert Path(found.interpreter.decode()).exists()
    assert any(name.startswith(b"libc.") for name in found.libraries)


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"#!/bin/sh\n", b"\x7fELF" + bytes(60)])
def test_no_elf(data: bytes) -> None:
    assert needs(reader(data)) is None


@settings(max_examples=200)
@given(
    st.integers(0, len(ELF)),
    st.lists(st.tuples(st.integers(0, len(ELF) - 1), st.integers(0, 255)), max_size=8),
)
def test_damage_is_no_harm(length: int, changes: list[tuple[int, int]]) -> None:
    data = bytearray(ELF)
    for at, value in changes:
        data[at] = value
    found = needs(reader(bytes(data[:length])))
    assert found is None or len(found.libraries) <= 512


@pytest.mark.parametrize(
    ("head", "found"),
    [
        (b"#!/bin/sh\nmore", Shebang(b"/bin/sh")),
        (b"#! /bin/sh -e", Shebang(b"/bin/sh")),
        (b"#!/usr/bin/env python3\n", Shebang(b"/usr/bin/env", b"python3")),
        (b"#!/usr/bin/env -S A=b python3 -I\n", Shebang(b"/usr/bin/env", b"python3")),
        (b"#!/usr/bin/env /bin/x\n", Shebang(b"/usr/bin/env")),
        (b"#!/usr/bin/env\n", Shebang(b"/usr/bin/env")),
        (b"#!python\n", None),
        (b"#!\n", None),
        (b"", None),
        (b"\x7fELF", None),
    ],
)
def test_shebangs(head: bytes, found: Shebang | None) -> None:
    assert parse(head) == found
