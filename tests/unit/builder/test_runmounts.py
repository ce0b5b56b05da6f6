from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_layers.builder.runmounts import make_mount, parse_mount
from dsec_layers.builder.scope import Scope
from dsec_layers.builder.steps import BindMount, CacheMount, SecretMount, StepMount, TmpfsMount
from dsec_layers.errors import InvalidInputError
from dsec_layers.model.runconfig import RunConfig

SCOPE = Scope(RunConfig(), RunConfig(workdir="/w"), {"name": "value"})


def made(text: str) -> StepMount:
    return make_mount(parse_mount(text), SCOPE, None)


def cache(**changes: object) -> CacheMount:
    values: dict[str, object] = {
        "target": "/c",
        "id": "/c",
        "sharing": "shared",
        "mode": 0o755,
        "owner": (0, 0),
        "origin": None,
        "source": "",
        "writable": True,
    }
    return CacheMount(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "mount"),
    [
        ("target=/a", BindMount("/a", "", None, writable=False)),
        ("type=bind,src=$name,dst=a/../b,rw", BindMount("/w/b", "value", None, writable=True)),
        ("source=s,destination=/a,ro=false", BindMount("/a", "s", None, writable=True)),
        ("target=/a,rw=false", BindMount("/a", "", None, writable=False)),
        ('"target=/a,b"', BindMount("/a,b", "", None, writable=False)),
        ("type=cache,target=/c", cache()),
        (
            "type=cache,id=i-$name,target=/c,sharing=locked,mode=0700,uid=1,gid=2,ro",
            cache(id="i-value", sharing="locked", mode=0o700, owner=(1, 2), writable=False),
        ),
        ("type=tmpfs,target=/t", TmpfsMount("/t", None)),
        ("type=tmpfs,target=/t,size=2m", TmpfsMount("/t", 2 << 20)),
        ("type=tmpfs,target=/t,size=4096", TmpfsMount("/t", 4096)),
        ("type=secret,id=s", SecretMount("s", "/run/secrets/s", None, False, 0o400, (0, 0))),
        ("type=secret,target=/x/s", SecretMount("s", "/x/s", None, False, 0o400, (0, 0))),
        (
            "type=secret,id=s,env=S,required,mode=444,uid=5,gid=6",
            SecretMount("s", None, "S", True, 0o444, (5, 6)),
        ),
        (
            "type=secret,id=s,env=S,target=/s",
            SecretMount("s", "/s", "S", False, 0o400, (0, 0)),
        ),
    ],
)
def test_what_options_mean(text: str, mount: StepMount) -> None:
    assert made(text) == mount


@given(
    st.lists(
        st.one_of(
            st.sampled_from(["type=cache", "type=secret", "type=tmpfs", "target=/a", "id=i", "rw"]),
            st.builds(
                "{}={}".format,
                st.sampled_from(["mode", "uid", "size", "from", "env", "target", "required", "ro"]),
                st.text(max_size=6),
            ),
            st.text(max_size=8),
        ),
        max_size=5,
    ).map(",".join)
)
def test_any_options_mean_something_or_are_refused(text: str) -> None:
    with contextlib.suppress(ValueError, InvalidInputError):
        made(text)


def test_an_origin_is_kept_by_name() -> None:
    assert parse_mount("type=cache,target=/c,from=stage").origin == "stage"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("target=/", "over the root"),
        ("target=/a,rw,ro", "exclude each other"),
        ("target=/a,rw=maybe", "not true or false"),
        ("type=cache,target=/a,sharing=all", "sharing is 'all'"),
        ("type=cache,target=/a,source=b", "of a stage or layer only"),
        ("type=cache,target=/a,mode=9", "no octal"),
        ("type=cache,target=/a,uid=me", "uid is 'me'"),
        ("type=cache,target=/a,gid=99999999999", "gid is"),
        ("type=cache,target=/a,uid=²", "uid is"),
        ("type=tmpfs,target=/a,size=0", "no number of bytes"),
        ("type=tmpfs,target=/a,size=1x", "no number of bytes"),
        ("type=secret,id=a,env=1", "no name of a variable"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(text)
