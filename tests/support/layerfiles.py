"""Layerfiles as nobody would write them: made of the words of the language, or of a real one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hypothesis import strategies as st

ROOT = Path(__file__).parents[2]

# Dockerfiles of the usual kinds, and our own Layerfiles.
REAL = [
    b"""# syntax=docker/dockerfile:1
ARG VERSION=3.11
FROM --platform=$BUILDPLATFORM base/python:${VERSION} AS build
WORKDIR /src
COPY --chown=1000:1000 --exclude=*.pyc requirements.txt ./
RUN --mount=type=cache,target=/root/.cache/pip,sharing=locked \\
    --mount=type=secret,id=token,env=TOKEN \\
    pip install -r requirements.txt
COPY <<-EOF /etc/app.conf
\t[app]
\tname=${VERSION:-none}
EOF
FROM base/python:${VERSION}
LABEL a=b "c d"="e f"
ENV PATH=/opt/bin:$PATH LANG=C.UTF-8
COPY --from=build --chmod=u+rwX,go=rX /src /opt
HEALTHCHECK --interval=5s --timeout=3s CMD ["curl", "-f", "http://localhost/"]
EXPOSE 80/tcp 8000-8010/udp
VOLUME ["/data"]
STOPSIGNAL SIGTERM
USER app:app
ENTRYPOINT ["/opt/entry"]
CMD ["serve", "--port=80"]
""",
    b"""# escape=`
FROM base/debian
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
ARG name
ENV old style value
RUN <<EOF cat >/x && cat /y
one
EOF
ADD --checksum=sha256:0000000000000000000000000000000000000000000000000000000000000000 `
    https://example.com/a.tar.gz /a/
ADD --unpack=true a.tar /
MAINTAINER someone
RUN echo ${name#*/} ${name%%.*} ${name/a/b} ${name:+x} ${name:?said}
""",
    *(path.read_bytes() for path in sorted(ROOT.glob("layerfiles/*/Layerfile"))),
]

_KEYWORDS = """
LAYER FROM ARG ENV LABEL RUN COPY ADD WORKDIR USER SHELL CMD EXPOSE VOLUME STOPSIGNAL
HEALTHCHECK MAINTAINER ENTRYPOINT ONBUILD from as Copy X
"""
_WORDS = """
a b x=1 x=$x $a ${a} ${a:-b} ${a#*} ${a%%?*} ${a/b/c} ${a//?/$a} ${ \\ ` ' " ''
base x scratch base/small base/small:1 AS as stage 0 1 -1 / . .. ./ /a ../../a a/../..
--from=stage --from=0 --from=base/small --chown=1:2 --chown=$a --chmod=0777 --chmod=u+x
--chmod=99999 --exclude=*.py --exclude=[ --link --parents=maybe --platform=linux/amd64
--mount=type=cache,target=/c --mount=type=bind,from=stage,source=/,target=/m,rw
--mount=type=tmpfs,target=/t,size=1g --mount=type=secret,id=s,env=S --mount=,= -- --
--mount=type=ssh --network=none --network=x --checksum=sha256:00 --unpack --interval=1s
https://example.com/a http:// https://[ 80/tcp 1-99999/udp 0/x SIGTERM 99 NONE CMD &&
<<EOF <<-EOF <<'EOF' 3<<"E" << <<EOF>x EOF [] ["a"] ["a","\\u0000"] ["\\ud800"] [1]
* ** [a- [^a] # = : @ \u00e9 \ufeff
"""
_words = [*_WORDS.split(), "\u2028", "\x1c", "\x85", "\t", '<<"a b"']
_ENDS = ["\n", "\n", "\n", " \\\n", "`\n", "\r\n", "\n\n", "\n#c\n", "\nEOF\n", ""]
_TOPS = ["", "", "# escape=`\n", "# check=skip=all;error=true\n", "# syntax=x\n", "\ufeff"]

_lines = st.builds(
    lambda keyword, words, end: f"{keyword} {' '.join(words)}{end}",
    st.sampled_from(_KEYWORDS.split()),
    st.lists(st.sampled_from(_words), max_size=5),
    st.sampled_from(_ENDS),
)
structured = st.builds(
    lambda top, first, lines: f"{top}{first}{''.join(lines)}".encode(),
    st.sampled_from(_TOPS),
    st.sampled_from(["", "LAYER base x\nFROM scratch AS stage\n", "ARG a=b\nFROM base/small\n"]),
    st.lists(_lines, max_size=8),
)


def _change(at: int, kind: str, length: int, more: bytes) -> Callable[[bytes], bytes]:
    """One change somewhere in some bytes."""

    def changed(data: bytes) -> bytes:
        place = at % (len(data) + 1)
        before, after = data[:place], data[place:]
        match kind:
            case "remove":
                return before + after[length:]
            case "insert":
                return before + more + after
            case "repeat":
                return before + after[:length] + after
            case "cut short":
                return before
            case _:
                return before + more + after[len(more) :]

    return changed


def mutated(originals: list[bytes], most: int = 5) -> st.SearchStrategy[bytes]:
    """One of the originals with up to so many changes."""
    change = st.builds(
        _change,
        st.integers(0, 1 << 20),
        st.sampled_from(["remove", "insert", "repeat", "cut short", "replace"]),
        st.integers(1, 600),
        st.binary(min_size=1, max_size=4) | st.sampled_from(_words).map(str.encode),
    )

    def apply(data: bytes, changes: list[Callable[[bytes], bytes]]) -> bytes:
        for each in changes:
            data = each(data)
        return data

    return st.builds(apply, st.sampled_from(originals), st.lists(change, min_size=1, max_size=most))
