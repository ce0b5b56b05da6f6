from pathlib import Path

import msgspec
import pytest

from dsec_layers.errors import BusyError, DsecError, InvalidInputError
from dsec_layers.lazyfs import targets
from dsec_layers.lazyfs.journal import LayerUse, Owner, Phase, Record
from dsec_layers.linux import procinfo


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "state" / "home"
    home.mkdir(parents=True)
    return home


def wanted(target: Path, upper: Path | None = None) -> Record:
    return Record(
        id="new",
        phase=Phase.MOUNTING,
        owner=Owner.current(),
        boot=procinfo.boot_id(),
        namespace=procinfo.mount_namespace() or 0,
        layers=(LayerUse("0" * 64),),
        bound=False,
        target=str(target),
        upper=str(upper or ""),
        work=f"{upper}.work",
    )


def refusal(target: Path, home: Path, *others: Record) -> DsecError:
    with pytest.raises(DsecError) as caught:
        targets.check_target(wanted(target), home, others)
    return caught.value


def test_an_empty_or_absent_folder_is_fine(tmp_path: Path, home: Path) -> None:
    (tmp_path / "empty").mkdir()
    targets.check_target(wanted(tmp_path / "empty"), home, [])
    targets.check_target(wanted(tmp_path / "absent" / "deep"), home, [])
    targets.check_target(wanted(home / "run/rootfs/new/root"), home, [])


def test_a_folder_with_content_is_refused(tmp_path: Path, home: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "some file").touch()
    error = refusal(tmp_path / "full", home)
    assert isinstance(error, InvalidInputError)
    assert "some file" in error.message


def test_a_file_is_refused(tmp_path: Path, home: Path) -> None:
    (tmp_path / "file").touch()
    assert isinstance(refusal(tmp_path / "file", home), InvalidInputError)


@pytest.mark.parametrize("target", ["/proc", "/"])
def test_a_mount_point_is_busy(target: str, home: Path) -> None:
    assert isinstance(refusal(Path(target), home), BusyError)


def test_a_target_that_is_just_being_mounted_is_busy(tmp_path: Path, home: Path) -> None:
    other = msgspec.structs.replace(wanted(tmp_path / "mnt"), id="other")
    error = refusal(tmp_path / "mnt", home, other)
    assert isinstance(error, BusyError)
    assert f"process {other.owner.pid}" in error.message


def test_a_rootfs_never_hides_the_state_folder_or_lies_in_it(home: Path) -> None:
    for target in (home, home.parent, home / "run", home / "run/rootfs/other/root"):
        assert isinstance(refusal(target, home), InvalidInputError)


def test_a_path_that_the_kernel_or_the_journal_cannot_take_is_refused(home: Path) -> None:
    assert "255" in refusal(Path("/" + "x" * 255), home).message
    assert "UTF-8" in refusal(Path("/\udcff"), home).message


@pytest.mark.parametrize("upper", ["mnt", "mnt/upper", "."])
def test_an_upper_in_the_mount_point_or_around_it_is_refused(tmp_path: Path, upper: str) -> None:
    with pytest.raises(InvalidInputError):
        targets.check_upper(wanted(tmp_path / "mnt", tmp_path / upper), [])


def test_an_upper_has_one_rootfs(tmp_path: Path) -> None:
    upper = tmp_path / "upper"
    other = msgspec.structs.replace(wanted(tmp_path / "other", upper), id="other")
    with pytest.raises(BusyError):
        targets.check_upper(wanted(tmp_path / "mnt", upper), [other])
    targets.check_upper(wanted(tmp_path / "mnt", upper), [])
    upper.touch()
    with pytest.raises(InvalidInputError):
        targets.check_upper(wanted(tmp_path / "mnt", upper), [])


def test_the_state_folder_must_fit_into_mount_options() -> None:
    targets.check_home(Path("/var/lib/dsec"))
    for home in ("/a,b", "/" + "x" * 180):
        with pytest.raises(InvalidInputError):
            targets.check_home(Path(home))


def test_extra_lowers_must_be_folders(tmp_path: Path) -> None:
    targets.check_lowers([tmp_path])
    with pytest.raises(InvalidInputError):
        targets.check_lowers([tmp_path / "absent"])
