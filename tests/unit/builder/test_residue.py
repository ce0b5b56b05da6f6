"""Which paths are residue, and what becomes of a diff without them."""

from pathlib import Path

import pytest
from hypothesis import given

from dsec_layers.builder.residue import Dropped, attest, sweep
from dsec_layers.builder.residuerules import RULES, RuleSet, choose
from dsec_layers.errors import InvalidInputError, NotFoundError
from dsec_layers.model.content import LocalFile, Source
from dsec_layers.model.merge import apply
from dsec_layers.model.tree import Entry, EntryKind, Tree
from tests.support.profiles import fewest
from tests.support.trees import Contents, trees


def source(*paths: str, opaque: str = "", whiteouts: tuple[str, ...] = ()) -> Source:
    """Files at these paths; a path that ends in a slash is a directory."""
    entries: dict[bytes, Entry] = {}
    for path in (*paths, *whiteouts):
        parts = path.rstrip("/").encode().split(b"/")
        for count in range(1, len(parts)):
            above = b"/".join(parts[:count])
            entries[above] = Entry(
                path=above, kind=EntryKind.DIRECTORY, opaque=above == opaque.encode()
            )
        kind = EntryKind.DIRECTORY if path.endswith("/") else EntryKind.FILE
        kind = EntryKind.WHITEOUT if path in whiteouts else kind
        at = b"/".join(parts)
        entries[at] = Entry(path=at, kind=kind, size=3 if kind is EntryKind.FILE else 0)
    tree = Tree.of(entries.values())
    files = {entry.path for entry in tree if entry.kind is EntryKind.FILE}
    return Source(tree, {path: LocalFile(b"/nonexistent/" + path) for path in files})


def dropped(found: Source, rules: RuleSet | None = None) -> dict[str, str]:
    swept = sweep(found, rules or RuleSet())
    return {each.path.decode(): each.rule for each in swept.dropped}


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("root/.bash_history", "shell-history"),
        ("home/agent/.python_history", "shell-history"),
        ("root/.cache/pip/http/x", "caches"),
        ("root/.npm/_cacache/x", "caches"),
        ("work/.pytest_cache/README", "caches"),
        ("var/lib/apt/lists/x", "package-caches"),
        ("work/pkg/__pycache__/m.pyc", "bytecode"),
        ("var/log/dpkg.log", "logs"),
        ("tmp/x", "temporary"),
        ("run/lock/x", "temporary"),
        ("work/.a.py.swp", "editors"),
        ("work/a.py~", "editors"),
        (".DS_Store", "editors"),
        ("root/.ssh/known_hosts", "ssh"),
        ("home/a/.vscode-server/bin/x", "language-servers"),
    ],
)
def test_what_is_residue(path: str, rule: str) -> None:
    assert dropped(source(path))[path] == rule


@pytest.mark.parametrize(
    "path",
    [
        *("work/history", "work/cache/x", "work/tmp/x", "work/log/x", "tmp/", "run/", "var/log/"),
        *("root/.ssh/config", "root/.bashrc", "work/a.swp.py", "usr/lib/sourceless.pyc"),
        *("work/var/log/x", "root/.gitconfig"),
    ],
)
def test_what_is_not(path: str) -> None:
    assert dropped(source(path)) == {}


def test_removals_stay_removed() -> None:
    found = source("tmp/new", whiteouts=("tmp/old", "root/.cache/x"))
    swept = sweep(found, RuleSet())
    assert [entry.path for entry in swept.source.tree if entry.kind is EntryKind.WHITEOUT] == [
        b"root/.cache/x",
        b"tmp/old",
    ]
    assert [each.path for each in swept.dropped] == [b"tmp/new"]


def test_an_opaque_directory_becomes_a_whiteout() -> None:
    swept = sweep(source("tmp/d/new", opaque="tmp/d"), RuleSet())
    assert swept.source.tree.by_path()[b"tmp/d"].kind is EntryKind.WHITEOUT
    assert [each.path for each in swept.dropped] == [b"tmp/d", b"tmp/d/new"]


def test_rules_are_switched_off_and_added() -> None:
    found = source("tmp/x", "notes/a", "work/b")
    rules = choose(keep=["temporary"], drop=["/notes"])
    assert dropped(found, rules) == {"notes": "task", "notes/a": "task"}
    assert rules.kept == ("temporary",)


def test_rules_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(
        'keep = ["logs"]\ndrop = ["work/a"]\n'
        '[[rule]]\nname = "answers"\nreason = "of the task"\npaths = ["**/answer*"]\nversion = 3\n'
    )
    found = source("var/log/x", "work/a", "work/answer.txt")
    rules = choose(file=file)
    assert dropped(found, rules) == {"work/a": "task", "work/answer.txt": "answers"}
    told = attest(rules, sweep(found, rules).dropped)
    assert told.kept == ("logs",)
    counts = {each.rule: (each.version, each.paths, each.bytes) for each in told.dropped}
    assert counts["answers"] == (3, 1, 3)
    assert counts["temporary"] == (1, 0, 0)
    assert "logs" not in counts


@pytest.mark.parametrize(
    "text",
    [
        "keep = [",
        "kept = []",
        'keep = ["nonsense"]',
        'drop = ["["]',
        '[[rule]]\nname = "logs"\npaths = []',
        '[[rule]]\npaths = ["x"]',
    ],
)
def test_files_that_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(text)
    with pytest.raises(InvalidInputError):
        choose(file=file)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        choose(file=tmp_path / "none")


def test_the_attested_digest_is_that_of_the_sorted_paths() -> None:
    one = [Dropped(b"tmp/a", "temporary", 1), Dropped(b"var/log/b", "logs", 2)]
    assert attest(RuleSet(), one).digest == attest(RuleSet(), reversed(one)).digest
    assert attest(RuleSet(), one).digest != attest(RuleSet(), one[:1]).digest


def test_every_rule_has_a_reason_and_a_name_of_its_own() -> None:
    assert all(rule.reason for rule in RULES)
    assert len({rule.name for rule in RULES}) == len(RULES)


@fewest
@given(trees(changes=False), trees())
def test_nothing_else_changes(below: tuple[Tree, Contents], above: tuple[Tree, Contents]) -> None:
    """Without rules the diff stays; with a rule for all, nothing that was written is seen."""
    lower, upper = below[0], above[0]
    files = {entry.path for entry in upper if entry.kind is EntryKind.FILE}
    diff = Source(upper, {path: LocalFile(b"/nonexistent/" + path) for path in files})
    assert sweep(diff, RuleSet(())).source.tree == upper
    everything = RuleSet((choose(drop=["**"]).rules[-1],))
    swept = sweep(diff, everything).source.tree
    holding = {entry.parent for entry in swept}
    for entry in swept:
        assert entry.kind is EntryKind.WHITEOUT or entry.path in (b"", *holding)
        assert not entry.opaque or entry.path == b""
    seen = apply(lower, swept).by_path()
    assert seen.keys() - lower.by_path().keys() <= holding
