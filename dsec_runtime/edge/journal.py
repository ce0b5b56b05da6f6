"""What the edge knows of its sandboxes, in a database that outlives it.

One SQLite file in WAL mode: a transaction that was committed is there after `kill -9`. (After a
crash of the machine the last ones may not be, and neither are the sandboxes.) All calls are short
and are made from the loop's thread.

States change by compare-and-swap: `move` says from which state, `expire` and `renew` from which
version of the deadline. Whoever comes second is told so.
"""

# ruff: noqa: S608 - what is put into statements are names of columns and states, all our own

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from dsec_runtime.edge.transitions import FINAL, sources
from dsec_runtime.spec import SandboxSpec, State
from dsec_runtime.tiers.tier import Running

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS sandboxes (
    id TEXT PRIMARY KEY,
    principal TEXT NOT NULL,
    key TEXT,
    body_hash BLOB,
    spec BLOB NOT NULL,
    state TEXT NOT NULL,
    running BLOB,
    created_s REAL NOT NULL,
    changed_s REAL NOT NULL,
    used_s REAL NOT NULL,
    ends_s REAL,
    version INTEGER NOT NULL DEFAULT 0,
    reason TEXT,
    UNIQUE (principal, key)
) STRICT;
CREATE INDEX IF NOT EXISTS sandboxes_by_end ON sandboxes (ends_s) WHERE ends_s IS NOT NULL;
CREATE TABLE IF NOT EXISTS leases (
    principal TEXT NOT NULL,
    owner TEXT NOT NULL,
    ttl_s REAL NOT NULL,
    ends_s REAL NOT NULL,
    PRIMARY KEY (principal, owner)
) STRICT;
"""
_COLUMNS: Final = (
    "id, principal, key, body_hash, spec, state, running, created_s, changed_s, used_s, ends_s, "
    "version, reason"
)
_FINAL: Final = ", ".join(f"'{state.value}'" for state in sorted(FINAL))

_encode = msgspec.json.encode
_spec = msgspec.json.Decoder(SandboxSpec)
_running = msgspec.json.Decoder(Running)


class Row(msgspec.Struct, kw_only=True):
    """A sandbox. `key` and `body_hash` are of the request that made it, `version` of `ends_s`."""

    id: str
    principal: str
    spec: SandboxSpec
    created_s: float
    changed_s: float
    used_s: float
    state: State = State.CREATING
    key: str | None = None
    body_hash: bytes | None = None
    running: Running | None = None
    ends_s: float | None = None
    version: int = 0
    reason: str | None = None


class Lease(msgspec.Struct, frozen=True):
    """An owner of sandboxes, believed to live until `ends_s`."""

    principal: str
    owner: str
    ttl_s: float
    ends_s: float


class Journal:
    """The database at `path`; its folder exists."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.executescript(_SCHEMA)

    def close(self) -> None:
        """Close it; the last one folds the log into the file."""
        self._db.close()

    def insert(self, row: Row) -> None:
        """Add a sandbox. Raises sqlite3.IntegrityError when its id or key is taken."""
        self._db.execute(
            f"INSERT INTO sandboxes ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                row.id,
                row.principal,
                row.key,
                row.body_hash,
                _encode(row.spec),
                row.state.value,
                _encode(row.running) if row.running else None,
                row.created_s,
                row.changed_s,
                row.used_s,
                row.ends_s,
                row.version,
                row.reason,
            ),
        )

    def remove(self, sandbox: str) -> None:
        """Forget a sandbox of which nothing came."""
        self._db.execute("DELETE FROM sandboxes WHERE id = ?", (sandbox,))

    def rows(self) -> Iterator[Row]:
        """All, the oldest first."""
        for found in self._select("ORDER BY created_s, id"):
            yield _row(found)

    def by_key(self, principal: str, key: str) -> Row | None:
        """The sandbox that this idempotency key made."""
        for found in self._select("WHERE principal = ? AND key = ?", principal, key):
            return _row(found)
        return None

    def move(
        self,
        sandbox: str,
        state: State,
        now_s: float,
        *,
        running: Running | None = None,
        reason: str | None = None,
    ) -> bool:
        """Change the state if the table of transitions allows it from the present one."""
        allowed = [each.value for each in sources(state)]
        marks = ", ".join("?" * len(allowed))
        done = self._db.execute(
            "UPDATE sandboxes SET state = ?, changed_s = ?, reason = coalesce(?, reason),"
            f" running = coalesce(?, running) WHERE id = ? AND state IN ({marks})",
            (
                state.value,
                now_s,
                reason,
                _encode(running) if running else None,
                sandbox,
                *allowed,
            ),
        )
        return done.rowcount == 1

    def renew(self, sandbox: str, ends_s: float | None, version: int) -> bool:
        """Set the deadline, unless its version has become another or the sandbox is ending."""
        done = self._db.execute(
            "UPDATE sandboxes SET ends_s = ?, version = version + 1 WHERE id = ? AND version = ?"
            f" AND state NOT IN ('{State.STOPPING.value}', {_FINAL})",
            (ends_s, sandbox, version),
        )
        return done.rowcount == 1

    def expire(self, sandbox: str, version: int, now_s: float, reason: str) -> bool:
        """STOPPING, if this version of the deadline still holds and has passed."""
        allowed = ", ".join(f"'{each.value}'" for each in sources(State.STOPPING))
        done = self._db.execute(
            "UPDATE sandboxes SET state = ?, changed_s = ?, reason = ? WHERE id = ? AND version = ?"
            f" AND ends_s <= ? AND state IN ({allowed})",
            (State.STOPPING.value, now_s, reason, sandbox, version, now_s),
        )
        return done.rowcount == 1

    def due(self, now_s: float) -> list[str]:
        """Sandboxes whose deadline has passed and that are not ending."""
        found = self._db.execute(
            "SELECT id FROM sandboxes WHERE ends_s <= ?"
            f" AND state NOT IN ('{State.STOPPING.value}', {_FINAL})",
            (now_s,),
        )
        return [sandbox for (sandbox,) in found]

    def set_spec(self, sandbox: str, spec: SandboxSpec) -> None:
        """Change labels, limits of life or rules."""
        self._db.execute("UPDATE sandboxes SET spec = ? WHERE id = ?", (_encode(spec), sandbox))

    def set_used(self, used: Iterable[tuple[float, str]]) -> None:
        """Note when sandboxes were used last."""
        with self._db:  # one transaction
            self._db.execute("BEGIN")
            self._db.executemany("UPDATE sandboxes SET used_s = ? WHERE id = ?", used)

    def prune(self, before_s: float) -> list[str]:
        """Forget sandboxes that ended before `before_s`; which they were."""
        found = self._db.execute(
            f"DELETE FROM sandboxes WHERE state IN ({_FINAL}) AND changed_s < ? RETURNING id",
            (before_s,),
        )
        return [sandbox for (sandbox,) in found.fetchall()]

    def hold(self, principal: str, owner: str, ttl_s: float, now_s: float) -> Lease:
        """Begin or renew a lease."""
        self._db.execute(
            "INSERT INTO leases VALUES (?, ?, ?, ?)"
            " ON CONFLICT DO UPDATE SET ttl_s = excluded.ttl_s, ends_s = excluded.ends_s",
            (principal, owner, ttl_s, now_s + ttl_s),
        )
        return Lease(principal, owner, ttl_s, now_s + ttl_s)

    def lease(self, principal: str, owner: str) -> Lease | None:
        """The lease of an owner."""
        found = self._db.execute(
            "SELECT * FROM leases WHERE principal = ? AND owner = ?", (principal, owner)
        ).fetchone()
        return Lease(*found) if found else None

    def release(self, principal: str, owner: str) -> bool:
        """End a lease; whether there was one."""
        done = self._db.execute(
            "DELETE FROM leases WHERE principal = ? AND owner = ?", (principal, owner)
        )
        return done.rowcount == 1

    def overdue(self, now_s: float) -> list[Lease]:
        """Leases that have run out; they are gone from the journal."""
        found = self._db.execute("DELETE FROM leases WHERE ends_s <= ? RETURNING *", (now_s,))
        return [Lease(*each) for each in found.fetchall()]

    def extend_leases(self, now_s: float) -> None:
        """After a time in which nobody could renew: all owners get their time anew."""
        self._db.execute("UPDATE leases SET ends_s = max(ends_s, ? + ttl_s)", (now_s,))

    def _select(self, rest: str, *values: str) -> sqlite3.Cursor:
        return self._db.execute(f"SELECT {_COLUMNS} FROM sandboxes {rest}", values)


def _row(found: tuple[object, ...]) -> Row:
    values: Mapping[str, object] = dict(zip(_COLUMNS.split(", "), found, strict=True))
    spec, running = values["spec"], values["running"]
    assert isinstance(spec, bytes)
    return msgspec.convert(
        {
            **values,
            "spec": _spec.decode(spec),
            "running": _running.decode(running) if isinstance(running, bytes) else None,
        },
        Row,
        builtin_types=(bytes,),
        strict=False,
    )
