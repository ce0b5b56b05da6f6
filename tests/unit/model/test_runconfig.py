from dsec_layers.model import canonical
from dsec_layers.model.runconfig import Healthcheck, RunConfig, merge


def test_nothing_merges_to_nothing() -> None:
    assert merge([]) == RunConfig()


def test_higher_values_win_and_missing_ones_do_not() -> None:
    low = RunConfig(env={"A": "1", "B": "1"}, workdir="/low", user="low", labels={"x": "1"})
    high = RunConfig(env={"B": "2"}, workdir="/high", labels={"y": "2"})
    assert merge([low, high]) == RunConfig(
        env={"A": "1", "B": "2"}, workdir="/high", user="low", labels={"x": "1", "y": "2"}
    )


def test_paths_prepend_without_repeating() -> None:
    low = RunConfig(env={"PATH": "/usr/bin:/bin"})
    high = RunConfig(env={"PATH": "/opt/tool/bin:/usr/bin"})
    assert merge([low, high]).env == {"PATH": "/opt/tool/bin:/usr/bin:/bin"}


def test_a_new_entrypoint_drops_the_lower_command() -> None:
    low = RunConfig(entrypoint=("low",), cmd=("serve",))
    assert merge([low, RunConfig(entrypoint=("high",))]).cmd is None
    assert merge([low, RunConfig(entrypoint=("high",), cmd=("x",))]).cmd == ("x",)
    assert merge([low, RunConfig(cmd=("x",))]) == RunConfig(entrypoint=("low",), cmd=("x",))


def test_an_empty_command_is_a_wish() -> None:
    assert merge([RunConfig(cmd=("serve",)), RunConfig(cmd=())]).cmd == ()


def test_ports_and_volumes_add_up() -> None:
    low = RunConfig(ports=("9/tcp", "80/tcp"), volumes=("/b",))
    merged = merge([low, RunConfig(ports=("80/tcp", "1/udp"), volumes=("/a",))])
    assert (merged.ports, merged.volumes) == (("1/udp", "80/tcp", "9/tcp"), ("/a", "/b"))


def test_the_highest_signal_and_health_check_count() -> None:
    check, none = Healthcheck(test=("CMD", "a")), Healthcheck(test=("NONE",))
    low = RunConfig(stop_signal="1", healthcheck=check)
    assert merge([low, RunConfig()]) == low
    high = RunConfig(stop_signal="2", healthcheck=none)
    assert merge([low, high]) == high


def test_defaults_are_left_out_of_the_canonical_form() -> None:
    assert canonical.encode(RunConfig()) == b"{}"
    config = RunConfig(env={"B": "2", "A": "1"}, cmd=("x",))
    assert canonical.encode(config) == b'{"cmd":["x"],"env":{"A":"1","B":"2"}}'
    assert canonical.decode(canonical.encode(config), RunConfig, what="run") == config
