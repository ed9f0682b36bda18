"""What this machine remembers of contents, for its owner alone: which entry belongs to a digest."""

import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpnlp.checks import BadInput
from dpnlp.home import home, home_place

_TABLES = """
create table if not exists entries (id integer primary key, entry text unique not null);
create table if not exists digests (digest blob, entry integer references entries, primary key (digest, entry))
without rowid;
"""
_AT_ONCE = 500
"""Digests that are asked for in one query."""


@dataclass(frozen=True)
class Memory:
    """The memory of one name, in the owner's folder."""

    name: str

    @property
    def path(self) -> Path:
        """Where it lies."""
        return home_place() / f"{self.name}.sqlite"

    def remember(self, digests: Iterable[bytes], entry: Mapping[str, Any]) -> None:
        """From now on the entry belongs to each of these digests, beside what else does."""
        text = json.dumps(entry, sort_keys=True)
        home()
        with self._opened() as database, database:
            database.execute("insert or ignore into entries (entry) values (?)", (text,))
            (number,) = database.execute("select id from entries where entry = ?", (text,)).fetchone()
            database.executemany("insert or ignore into digests values (?, ?)", ((one, number) for one in digests))

    def keep_only(self, digest: bytes, entry: Mapping[str, Any]) -> None:
        """From now on no other entry belongs to this digest."""
        text = json.dumps(entry, sort_keys=True)
        with self._opened() as database, database:
            others = "select id from entries where entry != ?"
            database.execute(f"delete from digests where digest = ? and entry in ({others})", (digest, text))

    def forget(self, digest: bytes) -> None:
        """Nothing belongs to this digest any more."""
        with self._opened() as database, database:
            database.execute("delete from digests where digest = ?", (digest,))
            database.execute("delete from entries where id not in (select entry from digests)")

    def of(self, digests: Iterable[bytes]) -> dict[bytes, list[dict[str, Any]]]:
        """For each of these digests that is remembered the entries that belong to it, earliest first."""
        wanted, found = list(digests), dict[bytes, list[dict[str, Any]]]()
        if not self.path.exists():
            return found
        with self._opened() as database:
            for start in range(0, len(wanted), _AT_ONCE):
                some = wanted[start : start + _AT_ONCE]
                places = ",".join("?" * len(some))
                joined = "digests join entries on id = digests.entry"
                query = f"select digest, entries.entry from {joined} where digest in ({places}) order by id"
                for digest, text in database.execute(query, some):
                    found.setdefault(digest, []).append(json.loads(text))
        return found

    def _opened(self) -> "closing[sqlite3.Connection]":
        try:
            if not self.path.exists():
                self.path.touch(mode=0o600)
            database = sqlite3.connect(self.path, timeout=60)
            database.executescript(_TABLES)
        except (sqlite3.Error, OSError) as error:
            raise BadInput(
                f"{self.path}: it cannot be used ({error}); restore it from a copy, or delete it, after which copies "
                "of earlier models are no longer recognised."
            ) from None
        return closing(database)
