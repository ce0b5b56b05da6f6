"""Writes dsec_runtime/sdk/sync.py from the asynchronous SDK; --check only says if it is current.

Run from the root of the repository: python -m scripts.syncface
"""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from dsec_runtime import sdk
from scripts.written import write_or_check

PATH = Path(__file__).resolve().parent.parent / "dsec_runtime" / "sdk" / "sync.py"
HEAD = '''\
"""The SDK without `await`: each call is carried out by a loop in a thread of its own.

Written by `python -m scripts.syncface` from the classes of the same names.
"""

'''
FACES = (sdk.Process, sdk.Shell, sdk.Files, sdk.Forward, sdk.Ports, sdk.Sandbox, sdk.DSecClient)
NAMES = {face.__name__ for face in FACES}
FIELDS = {"Sandbox": {"files": "Files", "ports": "Ports"}}
ATTRIBUTES = {
    "Sandbox": {"info": "SandboxInfo"},
    "Process": {"id": "str"},
    "Forward": {"host": "str", "port": "int", "error": "SandboxError | None"},
    "Shell": {"ended": "bool"},
}
# An httpx client for a loop has no use without one; `listen` is for `Ports.forward`.
LEFT_OUT = {("Ports", "http"), ("Forward", "listen")}
IMPORTS = {
    "collections.abc": ("AsyncIterable", "Iterator", "Mapping", "Sequence"),
    "contextlib": ("AbstractContextManager",),
    "pathlib": ("Path",),
    "dsec_runtime": ("sdk",),
    "dsec_runtime.errors": ("SandboxError",),
    "dsec_runtime.messages": ("Event", "FileChange", "Health", "UsageAnswer"),
    "dsec_runtime.sdk.args": ("DSecContainerRunArgs", "DSecEnvironment"),
    "dsec_runtime.sdk.files": ("OnProgress",),
    "dsec_runtime.sdk.fncalls": ("FncallResult", "Tasks"),
    "dsec_runtime.sdk.looping": ("entered", "iterate", "run"),
    "dsec_runtime.sdk.output": ("Output",),
    "dsec_runtime.sdk.results": ("ExecResult",),
    "dsec_runtime.sdk.running": ("OnBytes",),
    "dsec_runtime.spec": (
        *("ExecEnd", "ExecInfo", "FileInfo", "FncallTask", "NetworkCounts", "NetworkRule"),
        *("SandboxInfo", "SandboxSpec", "State"),
    ),
}


def render() -> str:
    """The text of the module, formatted."""
    body = "\n\n".join(_face(face) for face in FACES)
    lines = ["from __future__ import annotations", ""]
    for module, names in IMPORTS.items():
        used = [name for name in names if re.search(rf"\b{name}\b", body)]
        if used:
            lines.append(f"from {module} import {', '.join(used)}")
    if re.search(r"\bssl\b", body):
        lines.insert(2, "import ssl")
    text = HEAD + "\n".join(lines) + "\n\n" + body
    for step in (("check", "--quiet", "--select=I", "--fix"), ("format", "--quiet")):
        words = [sys.executable, "-m", "ruff", *step, "--stdin-filename", str(PATH), "-"]
        text = subprocess.run(words, input=text, capture_output=True, check=True, text=True).stdout
    return text


def main(arguments: list[str]) -> int:
    """Write or check the module."""
    return write_or_check({PATH: render()}, "syncface", arguments)


def _face(face: type) -> str:
    name = face.__name__
    lines = [f"class {name}:", f'    """See `sdk.{name}`."""', ""]
    if name == "DSecClient":
        lines += _constructor(face)
    else:
        lines += [f"    def __init__(self, inner: sdk.{name}) -> None:"]
        lines += ["        self._inner = inner"]
    lines += [
        f"        self.{field} = {kind}(inner.{field})" for field, kind in _fields(name).items()
    ]
    for attribute, kind in ATTRIBUTES.get(name, {}).items():
        lines += _property(attribute, kind)
    if hasattr(face, "__aenter__"):
        lines += [
            *("", f"    def __enter__(self) -> {name}:"),
            *(["        run(self._inner.open())"] if name == "DSecClient" else []),
            *("        return self", "", "    def __exit__(self, *_: object) -> None:"),
            "        run(self._inner.__aexit__(None, None, None))",
        ]
    if hasattr(face, "__aiter__"):
        lines += ["", "    def __iter__(self) -> Iterator[Output]:"]
        lines += ["        return iterate(aiter(self._inner))"]
    for method, value in _public(face):
        lines += _property(method, value) if isinstance(value, str) else _method(name, value)
    return "\n".join(lines) + "\n"


def _fields(name: str) -> dict[str, str]:
    return FIELDS.get(name, {})


def _constructor(face: type) -> list[str]:
    parameters, words = _parameters(face.__init__)  # type: ignore[misc] # of the class itself
    return [
        f"    def __init__({parameters}) -> None:",
        f"        self._inner = sdk.{face.__name__}({words})",
    ]


def _public(face: type) -> Iterator[tuple[str, str | Callable[..., object]]]:
    """Methods, and properties with their types, in the order of the source."""
    for base in reversed(face.__mro__[:-1]):
        for name, value in vars(base).items():
            if name.startswith("_") or (face.__name__, name) in LEFT_OUT:
                continue
            if isinstance(value, property) and value.fget is not None:
                yield name, str(inspect.signature(value.fget).return_annotation)
            elif inspect.isfunction(value):
                yield name, value


def _property(name: str, kind: str) -> list[str]:
    return [
        *("", "    @property", f"    def {name}(self) -> {kind}:"),
        *('        """See the class of `sdk`."""', f"        return self._inner.{name}"),
    ]


def _method(face: str, method: Callable[..., object]) -> list[str]:
    parameters, words = _parameters(method)
    call = f"self._inner.{method.__name__}({words})"
    result = str(inspect.signature(method).return_annotation)
    items = re.fullmatch(r"AsyncIterator\[(.*)\]", result)
    if items and items[1].startswith("AsyncIterator["):
        kind = items[1].removeprefix("Async")
        result, body = f"AbstractContextManager[{kind}]", f"return entered({call})"
    elif items:
        result, body = f"Iterator[{items[1]}]", f"return iterate({call})"
    else:
        body = _wrapped(result, f"run({call})")
    if face == "DSecClient" and method.__name__ == "open":
        body = f"run({call})\n        return self"
    doc = (method.__doc__ or "").splitlines()[0]
    return [
        *("", f"    def {method.__name__}({parameters}) -> {result}:"),
        *(f'        """{doc}"""', f"        {body}"),
    ]


def _wrapped(result: str, call: str) -> str:
    inner = re.fullmatch(r"list\[(\w+)\]", result)
    if inner and inner[1] in NAMES:
        return f"return [{inner[1]}(each) for each in {call}]"
    if result in NAMES:
        return f"return {result}({call})"
    return call if result == "None" else f"return {call}"


def _parameters(method: Callable[..., object]) -> tuple[str, str]:
    """Of the definition, and handed on."""
    signature = inspect.signature(method)
    shown = [
        str(each.replace(annotation=inspect.Parameter.empty))
        if each.name == "self"
        else str(each).replace(f"'{each.annotation}'", str(each.annotation))
        for each in signature.parameters.values()
    ]
    words, star = [], False
    listed = []
    for each, text in zip(signature.parameters.values(), shown, strict=True):
        keyword = each.kind is inspect.Parameter.KEYWORD_ONLY
        if keyword and not star:
            listed.append("*")
            star = True
        listed.append(text)
        if each.name != "self":
            words.append(f"{each.name}={each.name}" if keyword else each.name)
    return ", ".join(listed), ", ".join(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
