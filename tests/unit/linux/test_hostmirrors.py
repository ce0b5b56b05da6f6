"""What is found on a machine and how it is named in a container; the machine is made up."""

from __future__ import annotations

import configparser
from pathlib import Path

import pytest

from dsec_layers.linux import hostapt, hostmirrors, hostnpm, hostpip
from dsec_layers.linux.hostloan import PLACE, Host, Loan


def write(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def loan(tmp_path: Path) -> Loan:
    return Loan(tmp_path / "loan")


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    (tmp_path / "machine").mkdir()
    return tmp_path / "machine"


def lent_file(loan: Loan, path: str) -> str:
    """The content that a command would see at `path`."""
    for bind in reversed(loan.binds):
        if path == bind.target or path.startswith(f"{bind.target}/"):
            return (bind.source / path.removeprefix(bind.target).lstrip("/")).read_text()
    raise AssertionError(f"{path} is not lent")


class TestLoan:
    def test_files_and_folders_lie_in_one_place_each_once(self, loan: Loan, machine: Path) -> None:
        file, folder = write(machine / "a/x", "X"), machine / "a"
        assert loan.path(file) == loan.path(file) == f"{PLACE}/0-x"
        assert loan.path(folder) == f"{PLACE}/1-a"
        assert lent_file(loan, f"{PLACE}/0-x") == lent_file(loan, f"{PLACE}/1-a/x") == "X"
        assert all(bind.read_only for bind in loan.binds)
        # mount points for the binds below the first one, which is read-only
        assert (loan.folder / "0-x").is_file()
        assert (loan.folder / "1-a").is_dir()

    def test_words_that_are_no_local_paths_stay(self, loan: Loan) -> None:
        value = "https://mirror/simple /no/such/folder file:///no/such ./relative -x"
        assert loan.words(value) == value
        assert loan.binds[1:] == []

    def test_an_index_is_lent_with_the_files_that_it_links_to(
        self, loan: Loan, machine: Path
    ) -> None:
        write(machine / "py pi/simple/x/index.html")
        write(machine / "py pi/files/x.whl", "wheel")
        value = f"file://{machine}/py%20pi/simple https://mirror/simple"
        assert loan.words(value) == f"file://{PLACE}/0-py%20pi/simple https://mirror/simple"
        assert lent_file(loan, f"{PLACE}/0-py pi/files/x.whl") == "wheel"


class TestPip:
    def lend(self, loan: Loan, machine: Path, **environ: str) -> dict[str, dict[str, str]]:
        hostpip.lend(loan, Host(machine, home=Path("/home/me"), environ=environ))
        parser = configparser.RawConfigParser()
        if "PIP_CONFIG_FILE" in loan.env:
            parser.read_string(lent_file(loan, loan.env["PIP_CONFIG_FILE"]))
        return {section: dict(parser.items(section)) for section in parser.sections()}

    def test_nothing_gives_nothing(self, loan: Loan, machine: Path) -> None:
        assert self.lend(loan, machine) == {}
        assert loan.env == {}

    def test_files_are_merged_as_pip_does(self, loan: Loan, machine: Path) -> None:
        write(machine / "etc/xdg/pip/pip.conf", "[global]\nindex-url=http://xdg\ntimeout=1\n")
        write(machine / "etc/pip.conf", "[global]\nindex_url=http://etc\n[install]\nretries=9\n")
        write(machine / "home/me/.config/pip/pip.conf", "[global]\ntrusted-host=me\n")
        assert self.lend(loan, machine) == {
            "global": {"index-url": "http://etc", "timeout": "1", "trusted-host": "me"},
            "install": {"retries": "9"},
        }

    def test_the_file_that_a_variable_names_wins(self, loan: Loan, machine: Path) -> None:
        write(machine / "etc/pip.conf", "[global]\nindex-url=http://etc\n")
        write(machine / "own.conf", "[global]\nindex-url=http://own\n")
        found = self.lend(loan, machine, PIP_CONFIG_FILE="/own.conf")
        assert found["global"]["index-url"] == "http://own"

    def test_settings_that_change_a_build_are_not_lent(self, loan: Loan, machine: Path) -> None:
        write(machine / "etc/pip.conf", "[global]\ntarget=/t\nno-binary=:all:\nuser=yes\n")
        assert self.lend(loan, machine, PIP_TARGET="/t", PIP_CACHE_DIR="/c") == {}
        assert loan.env == {}

    def test_local_folders_and_files_are_lent(self, loan: Loan, machine: Path) -> None:
        wheels, limits = machine / "wheels", write(machine / "limits.txt", "x<2")
        write(wheels / "x.whl", "wheel")
        text = f"[global]\nconstraint={limits}\nfind-links=\n  {wheels}\n  http://mirror/wheels\n"
        write(machine / "etc/pip.conf", text)
        found = self.lend(loan, machine, PIP_FIND_LINKS=str(wheels))["global"]
        assert lent_file(loan, found["constraint"]) == "x<2"
        folder, other = found["find-links"].split()
        assert (folder, other) == (loan.env["PIP_FIND_LINKS"], "http://mirror/wheels")
        assert lent_file(loan, f"{folder}/x.whl") == "wheel"

    def test_a_broken_file_is_skipped(self, loan: Loan, machine: Path) -> None:
        write(machine / "etc/xdg/pip/pip.conf", "index-url = no section\n")
        write(machine / "etc/pip.conf", "[global]\nproxy=http://p%q\n")
        assert self.lend(loan, machine) == {"global": {"proxy": "http://p%q"}}


class TestNpm:
    def lend(self, loan: Loan, machine: Path, **environ: str) -> list[str]:
        hostnpm.lend(loan, Host(machine, home=Path("/home/me"), environ=environ))
        path = loan.env.get("NPM_CONFIG_GLOBALCONFIG")
        return lent_file(loan, path).splitlines() if path else []

    def test_nothing_gives_nothing(self, loan: Loan, machine: Path) -> None:
        assert self.lend(loan, machine) == []

    def test_registries_credentials_and_certificates(self, loan: Loan, machine: Path) -> None:
        bundle = write(machine / "ca.crt", "CA")
        write(machine / "etc/npmrc", f'registry=http://etc/\n# x\n;y=z\ncafile = "{bundle}"\n')
        write(
            machine / "home/me/.npmrc",
            "registry=http://me/\n@scope:registry=http://s/\n//s/:_authToken=a=b\nprefix=/x\n",
        )
        lines = self.lend(loan, machine, npm_config_proxy="http://p", npm_config_user_agent="x")
        assert lines == [
            "registry=http://me/",
            f"cafile={loan.path(bundle)}",
            "@scope:registry=http://s/",
            "//s/:_authToken=a=b",
        ]
        assert loan.env["npm_config_proxy"] == "http://p"
        assert "npm_config_user_agent" not in loan.env


class TestApt:
    RELEASE = 'ID=debian\nVERSION_CODENAME=bookworm\nPRETTY_NAME="x"\n'

    @pytest.fixture
    def rootfs(self, tmp_path: Path) -> Path:
        write(tmp_path / "rootfs/usr/lib/os-release", self.RELEASE)
        (tmp_path / "rootfs/etc").mkdir()
        (tmp_path / "rootfs/etc/os-release").symlink_to("../usr/lib/os-release")
        return tmp_path / "rootfs"

    @pytest.fixture
    def debian(self, machine: Path) -> Path:
        write(machine / "etc/os-release", self.RELEASE)
        key = write(machine / "keys/debian.gpg", "KEY")
        write(
            machine / "etc/apt/sources.list.d/debian.sources",
            f"Types: deb\nURIs: http://m/os\nSuites: bookworm\nComponents: main\n"
            f"Signed-By: {key}\n",
        )
        write(machine / "etc/apt/sources.list.d/node.list", "deb http://m/node nodistro main\n")
        return machine

    def lend(self, loan: Loan, machine: Path, rootfs: Path, *settings: tuple[str, str]) -> str:
        hostapt.lend(loan, Host(machine, environ={}), rootfs, settings, None)
        path = loan.env.get("APT_CONFIG")
        return lent_file(loan, path) if path else ""

    def test_the_own_sources_are_lent_with_their_keys(
        self, loan: Loan, debian: Path, rootfs: Path
    ) -> None:
        config = self.lend(loan, debian, rootfs)
        assert config == f'Dir::Etc::sourcelist "{PLACE}/apt.sources";\n'
        sources = lent_file(loan, f"{PLACE}/apt.sources")
        assert "http://m/os" in sources
        assert "http://m/node" not in sources
        assert lent_file(loan, sources.partition("Signed-By: ")[2].split()[0]) == "KEY"

    @pytest.mark.parametrize(
        "release", ["ID=debian\nVERSION_CODENAME=trixie\n", "ID=alpine\n", "", None]
    )
    def test_another_release_gets_no_sources(
        self, loan: Loan, debian: Path, rootfs: Path, release: str | None
    ) -> None:
        (rootfs / "usr/lib/os-release").unlink()
        if release is not None:
            write(rootfs / "usr/lib/os-release", release)
        assert self.lend(loan, debian, rootfs, ("Acquire::Retries", "3")) == (
            'Acquire::Retries "3";\n'
        )

    def test_sources_without_keys_are_checked_with_the_trusted_ones(
        self, loan: Loan, debian: Path, rootfs: Path
    ) -> None:
        (debian / "etc/apt/sources.list.d/debian.sources").unlink()
        write(debian / "etc/apt/sources.list", "deb http://m/os bookworm main\n")
        write(debian / "etc/apt/trusted.gpg.d/a.asc", "A")
        write(debian / "etc/apt/trusted.gpg.d/b.asc", "B")
        self.lend(loan, debian, rootfs)
        keys = lent_file(loan, f"{PLACE}/apt.sources").partition("Signed-By: ")[2].split()[:2]
        assert [lent_file(loan, key) for key in keys] == ["A", "B"]

    def test_a_local_archive_is_lent(self, loan: Loan, debian: Path, rootfs: Path) -> None:
        archive = write(debian / "archive/dists/x").parents[1]
        line = f"deb [trusted=yes] file:{archive} bookworm main\n"
        write(debian / "etc/apt/sources.list", line)
        self.lend(loan, debian, rootfs)
        assert f"URIs: file://{loan.path(archive)}\n" in lent_file(loan, f"{PLACE}/apt.sources")

    def test_the_root_s_own_archive_is_hidden_and_others_stay(
        self, loan: Loan, debian: Path, rootfs: Path
    ) -> None:
        parts = rootfs / "etc/apt/sources.list.d"
        write(parts / "debian.sources", "Types: deb\nURIs: u\nSuites: bookworm\nComponents: main\n")
        write(parts / "docker.list", "deb https://docker bookworm stable\n")
        write(parts / "off.list", "# nothing\n")
        self.lend(loan, debian, rootfs)
        assert lent_file(loan, "/etc/apt/sources.list.d/debian.sources") == ""
        assert [it.target for it in loan.binds if not it.target.startswith(PLACE)] == [
            "/etc/apt/sources.list.d/debian.sources"
        ]

    def test_only_settings_about_reaching_a_mirror_are_lent(
        self, loan: Loan, machine: Path, rootfs: Path
    ) -> None:
        bundle = write(machine / "ca.crt", "CA")
        config = self.lend(
            loan,
            machine,
            rootfs,
            ("Acquire::http::Proxy", "http://p:1"),
            ("acquire::https::cainfo", str(bundle)),
            ("Acquire::http", ""),
            ("Acquire::GzipIndexes", "true"),
            ("DPkg::Post-Invoke::", "rm -rf /"),
        )
        assert config == (
            f'Acquire::http::Proxy "http://p:1";\nacquire::https::cainfo "{PLACE}/0-ca.crt";\n'
        )

    def test_credentials_are_lent(self, loan: Loan, machine: Path, rootfs: Path) -> None:
        write(machine / "etc/apt/auth.conf.d/m.conf", "machine m login l password p\n")
        assert "Dir::Etc::netrc" in self.lend(loan, machine, rootfs)
        assert "password p" in lent_file(loan, f"{PLACE}/apt-auth.conf")


class TestCertificatesAndProxies:
    def test_variables_name_the_lent_bundles(self, tmp_path: Path) -> None:
        bundle = write(tmp_path / "ca.crt", "CA")
        environ = {
            "SSL_CERT_FILE": str(bundle),
            "NODE_EXTRA_CA_CERTS": str(bundle),
            "GIT_SSL_CAINFO": "/no/such",
            "https_proxy": "http://p:1",
            "NO_PROXY": "local",
            "HOME": "/root",
        }
        loan = hostmirrors.lend(tmp_path, tmp_path / "loan", Host(tmp_path, tmp_path, environ))
        assert lent_file(loan, loan.env["SSL_CERT_FILE"]) == "CA"
        assert loan.env["NODE_EXTRA_CA_CERTS"] == loan.env["SSL_CERT_FILE"]
        assert loan.env["https_proxy"] == "http://p:1"
        assert loan.env["NO_PROXY"] == "local"
        assert not {"GIT_SSL_CAINFO", "HOME", "PIP_CONFIG_FILE"} & set(loan.env)
