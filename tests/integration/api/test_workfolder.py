"""A killed process leaves what it mounted in its work folder: whoever works next takes it away."""

from pathlib import Path

import pytest

from dsec_layers.api.workfolder import VIEW, work_folder
from dsec_layers.linux import mount


@pytest.mark.root
def test_what_was_mounted_goes_with_its_folder(tmp_path: Path) -> None:
    left = tmp_path / "making/commit-left"
    (left / VIEW).mkdir(parents=True)
    mount.mount_tmpfs(left / VIEW)
    (left / VIEW / "file").write_text("not ours to remove")
    with work_folder(tmp_path, "commit") as folder:
        (folder / VIEW).mkdir()
        mount.mount_tmpfs(folder / VIEW)
        assert list((tmp_path / "making").iterdir()) == [folder]
        assert mount.mounted_at(left / VIEW) is None
    assert not folder.exists()
    assert mount.mounted_at(folder / VIEW) is None
