"""What is refused of a task before anything is done for it."""

from __future__ import annotations

import pytest

from dsec_runtime.errors import InvalidRequestError
from dsec_runtime.spec import Environment, FncallTask
from dsec_runtime.tiers.fncall.kinds import BUILT_IN
from dsec_runtime.tiers.fncall.tasks import check

ENVIRONMENT = Environment(reference="env/demo:v1")


def task(**given: object) -> FncallTask:
    return FncallTask(environment=ENVIRONMENT, **given)  # type: ignore[arg-type] # by name


@pytest.mark.parametrize(
    "path", ["", "/etc/passwd", "..", "../x", "a/../../x", ".", "a/..", "a\0b"]
)
def test_files_stay_in_the_folder_of_the_task(path: str) -> None:
    with pytest.raises(InvalidRequestError):
        check(task(code="x", files={path: b""}), BUILT_IN["shell"])
    with pytest.raises(InvalidRequestError):
        check(task(code="x", results=(path,)), BUILT_IN["shell"])


@pytest.mark.parametrize("path", ["a", "a/b", "./a", "a/../b", "..a", "...", "-"])
def test_other_names_are_fine(path: str) -> None:
    check(task(code="x", files={path: b""}, results=(path,)), BUILT_IN["shell"])


def test_there_is_something_to_run() -> None:
    with pytest.raises(InvalidRequestError):
        check(task(), BUILT_IN["shell"])
    check(task(argv=("true",)), BUILT_IN["shell"])


def test_the_file_of_long_code_is_its_own() -> None:
    kind = BUILT_IN["python"]
    check(task(code="x", files={"main.py": b""}), kind)
    with pytest.raises(InvalidRequestError):
        check(task(code="x" * (1 << 20), files={"main.py": b""}), kind)
