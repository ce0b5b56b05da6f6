from __future__ import annotations

import pytest

from dsec_layers import errors
from dsec_layers.errors import CorruptError, DaemonError, DsecError, NotFoundError
from dsec_layers.lazyfs import protocol
from dsec_layers.model import canonical
from dsec_layers.model.manifest import OCI_MANIFEST, Descriptor

LAYER = Descriptor.of(b"manifest", OCI_MANIFEST)
REQUESTS = [
    protocol.Attach((protocol.Wanted(LAYER, ("dir:///a", "threefs:///b\n")),) * 2),
    protocol.Detach((LAYER.digest,)),
    protocol.Ping(),
    protocol.GetStatus(),
    protocol.GetStats(),
    protocol.Evict(),
    protocol.Stop(handover=True),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: type(each).__name__)
def test_a_request_is_one_line(request_: protocol.Request) -> None:
    line = protocol.encode_request(request_)
    assert line.index(b"\n") == len(line) - 1
    assert protocol.decode_request(line) == request_


@pytest.mark.parametrize(
    "line", [b"", b"{}\n", b'{"op":"format"}\n', b'{"op":"detach"}\n', b"\xff"]
)
def test_what_is_not_a_request(line: bytes) -> None:
    with pytest.raises(DaemonError):
        protocol.decode_request(line)


def test_results_come_back() -> None:
    stats = protocol.Stats(
        (protocol.LayerStats(LAYER.digest, 4096, 1, protocol.Counts(kernel_reads=3)),),
        protocol.Counts(kernel_reads=3),
        protocol.CacheStats(None, 1, 2, 3, 4),
    )
    assert protocol.decode_answer(protocol.encode_answer(stats), protocol.Stats) == stats


def test_every_error_comes_back_as_itself() -> None:
    kinds = [each for each in vars(errors).values() if isinstance(each, type)]
    assert NotFoundError in kinds
    for kind in kinds:
        line = protocol.encode_answer(kind("what happened", hint="how to mend it"))
        with pytest.raises(DsecError, match="what happened") as caught:
            protocol.decode_answer(line, protocol.Done)
        assert type(caught.value) is kind
        assert caught.value.hint == "how to mend it"


def test_other_errors_come_back_as_the_daemons() -> None:
    with pytest.raises(DaemonError, match="KeyError"):
        protocol.decode_answer(protocol.encode_answer(KeyError("x")), protocol.Done)
    for kind in ("DsecErrorx", "annotations", "__doc__"):
        failure = protocol.Failure(kind, "odd")
        line = b'{"error":' + canonical.encode(failure) + b"}\n"
        with pytest.raises(DaemonError, match="odd"):
            protocol.decode_answer(line, protocol.Done)


def test_a_malformed_answer() -> None:
    for line in (b"", b"{}\n", b'{"ok":{"changed":4}}\n'):
        with pytest.raises(CorruptError):
            protocol.decode_answer(line, protocol.Done)
