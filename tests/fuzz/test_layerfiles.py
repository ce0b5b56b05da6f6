"""Whatever a Layerfile says: it is planned or refused, with its line, and in time."""

from __future__ import annotations

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from dsec_layers.builder.expand import expand, expand_heredoc
from dsec_layers.builder.layerfile import parse
from dsec_layers.builder.layers import ParentLayer
from dsec_layers.builder.patterns import IgnoreRules
from dsec_layers.builder.plan import make_plan
from dsec_layers.builder.stepmaking import Options
from dsec_layers.builder.words import parse_json_list, parse_pairs, split_words, take_flags
from dsec_layers.errors import InvalidInputError, NotFoundError
from dsec_layers.model.digest import Digest
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.model.runconfig import RunConfig
from tests.support.fuzzing import only_errors_of_ours, refusal, times
from tests.support.layerfiles import REAL, mutated, structured


def resolve(reference: Reference) -> ParentLayer:
    """Some layers exist."""
    if reference.tag == "none":
        raise NotFoundError(f"no layer {reference}")
    run = RunConfig(env={"a": "b/c.d"}, workdir="/w")
    return ParentLayer(reference, Digest.sha256(b"x"), Kind(reference.kind), run, run, "")


def plan(data: bytes) -> None:
    def made() -> None:
        options = Options({}, None, None, None, None, frozenset({"named"}))
        found = make_plan(parse(data, name="L"), options, resolve, name="L")
        for step in [step for stage in found.stages for step in stage.steps]:
            assert step.where.startswith("L:")

    with only_errors_of_ours():
        error = refusal(made, InvalidInputError, NotFoundError)
        assert str(error or "L").startswith("L")


@given(st.binary(max_size=300))
@times(1)
def test_any_bytes(data: bytes) -> None:
    plan(data)


@given(structured)
@times(4)
def test_words_of_the_language(data: bytes) -> None:
    plan(data)


@given(mutated(REAL))
@times(3)
def test_a_real_one_with_changes(data: bytes) -> None:
    plan(data)


_PIECES = ["$", "${", "}", "a", ":", "-", "+", "?", "#", "%", "/", "*", "\\", "'", '"', "x", "\n"]
_texts = st.lists(st.sampled_from(_PIECES), max_size=40).map("".join)
_values = st.dictionaries(st.sampled_from("ax"), st.text("ax*?/\\.", max_size=30))


@given(_texts | st.text(max_size=60), _values, st.sampled_from("\\`"))
@times(2)
def test_variables(text: str, values: dict[str, str], escape: str) -> None:
    with only_errors_of_ours():
        refusal(lambda: expand(text, values, escape=escape), ValueError)
        refusal(lambda: expand_heredoc(text, values), ValueError)


@given(st.lists(st.sampled_from(["--a", "=", " ", "'", '"', "\\", "[", "]", ","]), max_size=30))
@times(1)
def test_words(pieces: list[str]) -> None:
    text = "".join(pieces)
    with only_errors_of_ours():
        for read in (split_words, take_flags, parse_json_list, parse_pairs):
            refusal(partial(read, text), ValueError)


_PATTERNS = [b"*", b"**", b"/", b"a", b"?", b"[", b"]", b"^", b"-", b"\\", b"!", b".", b"..", b"\n"]


@given(
    st.lists(st.sampled_from(_PATTERNS) | st.binary(max_size=3), max_size=60).map(b"".join),
    st.lists(st.sampled_from([b"a", b"ab", b"a" * 200, b"b", b"\xff", b"\n"]), min_size=1).map(
        b"/".join
    ),
)
@times(1)
def test_ignore_rules(text: bytes, path: bytes) -> None:
    with only_errors_of_ours():
        error = refusal(lambda: IgnoreRules.parse(text).ignores(path), ValueError)
        assert "pattern" in str(error or "pattern")
