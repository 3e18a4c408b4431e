"""Vectors remembered on disk, in an SQLite file that processes share.

A row's place tells its age: new rows get the highest, and what is asked for again when a quarter of the limit has been
written since moves there, with the next transaction that writes. So the rows written or used last lie together, a hit
costs no writing, what was used within half of the limit stays, and evicting the lowest places frees whole pages.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import count
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Self, TypeVar
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from secateur.embed.forks import Forkable
from secateur.errors import OptionError, whole_number

Vectors = NDArray[np.float32]
T = TypeVar("T")

_log = logging.getLogger(__name__)

_APPLICATION = 0x5EC47E0A
"""Marks the file as ours, in SQLite's header."""
_VERSION = 1
_LIMIT_BYTES = 1 << 30
_REST_SECONDS = 60.0
_CHUNKS = (1, 16, 512)
"""Keys in one statement; few sizes, so that the statements stay prepared."""
_MOST_USED = 4_096
_JOURNAL_BYTES = 4 << 20
_MOST = float(2047 * 2.0**117)
"""The largest float32 of 11 bits, as fp16 has."""
_LEAST_EXPONENT = -110
"""From here on fp16 has the steps of the smallest float32."""
_SCHEMA = (
    "CREATE TABLE vectors"
    " (place INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, crc INTEGER NOT NULL, value BLOB NOT NULL)",
    f"PRAGMA application_id = {_APPLICATION}",
    f"PRAGMA user_version = {_VERSION}",
)
# Anything else that SQLite says is about what is in the file.
_CIRCUMSTANCES = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOLFS,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_READONLY,
}


def keyed(fingerprint: str, kind: str) -> Callable[[str], bytes]:
    """What gives each text its key of 128 bits.

    The fingerprint is hashed by itself and keys the hash of the text: no other pair joins to the same bytes.

    Args:
        fingerprint: Names the embedder and its settings.
        kind: What the texts are embedded as, at most 16 ASCII characters.

    >>> documents, queries = keyed("a model", "document"), keyed("a model", "query")
    >>> len(documents("text")), documents("text") == queries("text")
    (16, False)
    """
    key = blake2b(_bytes(fingerprint)).digest()
    begun = blake2b(digest_size=16, key=key, person=kind.encode("ascii"))

    def key_of(text: str) -> bytes:
        # A copy saves hashing the block that holds the key.
        hashed = begun.copy()
        hashed.update(_bytes(text))
        return hashed.digest()

    return key_of


def rounded(vectors: Vectors) -> Vectors:
    """Vectors as a store gives them back: 11 bits a value, relative to a power of two that fits the largest.

    >>> rounded(np.array([[0.1, 1e30, 0.0], [0.1, 0.2, 0.3]], np.float32)).tolist()[1]
    [0.0999755859375, 0.199951171875, 0.300048828125]
    """
    return _floats(*_halves(vectors))


class VectorStore(Forkable):
    """Vectors by key, in a file that threads and processes use at once; safe to fork and to kill.

    Nothing here raises for what is on disk. Damaged vectors are as good as absent; a damaged file is set aside (renamed
    to `….broken`) and begun anew. Where the file cannot be used (a folder that cannot be written, a full disk, a lock
    that lasts), the store is as good as empty for a minute, then tries again. Either is logged as a warning, the latter
    once. A database of something else is left alone. The file is readable by its owner only: vectors tell much of
    their texts.

    Args:
        path: The file; None for `vectors.sqlite` in the user's cache directory, or in SECATEUR_CACHE.
        limit_bytes: Size that the file is kept within, least recently used vectors dropped first. It may pass it for
            the length of a call, and SQLite's journal lies beside it.
        timeout: Seconds to wait for another process.

    Raises:
        OptionError: If the limit is no whole number from 0 on, or the timeout is negative.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, VectorStore(f"{folder}/vectors.sqlite") as store:
    ...     store.put([b"first key"], np.array([[0.5, 0.25]], np.float32))
    ...     store.get([b"another", b"first key"])
    ([1], array([[0.5 , 0.25]], dtype=float32))
    """

    def __init__(
        self, path: str | os.PathLike[str] | None = None, *, limit_bytes: int = _LIMIT_BYTES, timeout: float = 2.0
    ) -> None:
        self._connected: sqlite3.Connection | None = None
        if path is None:
            from secateur.embed import model

            path = model.directory().parent / "vectors.sqlite"
        # Absolute, since the process may change its folder before the file is opened again.
        self.path = Path(path).absolute()
        self._limit_bytes = whole_number("limit_bytes", limit_bytes, 0)
        if not timeout >= 0:
            raise OptionError("timeout", timeout, "seconds, 0 or more")
        self._timeout = timeout
        self._opened: tuple[int, int] | None = None
        self._used: set[int] = set()
        self._rests_until = 0.0
        self._told: set[str] = set()
        super().__init__()

    def get(self, keys: Sequence[bytes], dimension: int | None = None) -> tuple[list[int], Vectors]:
        """Look up vectors.

        Args:
            keys: Distinct keys.
            dimension: Values a vector; vectors with another number are as good as absent. None takes the first that
                is found.

        Returns:
            Positions of the keys that are there, ascending, and their vectors, float32, of shape (found, dimension).
        """
        nothing: list[_Row] = []
        rows = self._attempt(lambda connection: self._read(connection, keys), nothing)
        positions, vectors, refused = _decoded(rows, {key: position for position, key in enumerate(keys)}, dimension)
        if refused:
            _log.warning("%s: %d damaged vectors are computed anew", self.path, refused)
        return positions, vectors

    def put(self, keys: Sequence[bytes], vectors: Vectors) -> None:
        """Remember vectors, in one transaction; in place of those that the keys had.

        Args:
            keys: Distinct keys.
            vectors: Finite, of shape (len(keys), d); kept as `rounded` gives them.
        """
        rows = _encoded(keys, vectors)
        self._attempt(lambda connection: self._write(connection, rows), None)

    def close(self) -> None:
        """Write down what was used last, and close the file; it is opened again when it is used again."""
        with self._lock:
            connection = self._connected
        if connection is not None and self._used:
            self._attempt(lambda connection: self._write(connection, []), None)
        with self._lock:
            self._disconnect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self._disconnect()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    # SQLite's connections must not pass into a child, not even to be closed there.
    def _before_fork(self) -> None:
        self._disconnect()

    def _attempt(self, work: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        with self._lock:
            if monotonic() < self._rests_until:
                return otherwise
            try:
                return work(self._connection())
            except sqlite3.Error as error:
                self._disconnect()
                # Extended codes have the code in their lowest byte.
                if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF in _CIRCUMSTANCES:
                    self._rest(error)
                else:
                    self._set_aside(error)
            except OSError as error:
                self._disconnect()
                self._rest(error)
            except BaseException:
                self._disconnect()
                raise
            return otherwise

    def _connection(self) -> sqlite3.Connection:
        """The open connection to the file that has the path now."""
        if self._connected is not None and self._identity() == self._opened:
            return self._connected
        self._disconnect()
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Created only if new: closing a file that is there would release the locks that the process has on it.
        with suppress(FileExistsError):
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        self._opened = self._identity()
        self._connected = sqlite3.connect(
            self.path, timeout=self._timeout, isolation_level=None, check_same_thread=False
        )
        self._prepare(self._connected)
        return self._connected

    def _identity(self) -> tuple[int, int] | None:
        """Which file has the path: another process may have set aside the one that was opened."""
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def _prepare(self, connection: sqlite3.Connection) -> None:
        if _state(connection) == (0, 0, 0):
            connection.execute("PRAGMA page_size = 4096")
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("BEGIN EXCLUSIVE")
            if _state(connection) == (0, 0, 0):
                for statement in _SCHEMA:
                    connection.execute(statement)
            connection.execute("COMMIT")
        application, version, _ = _state(connection)
        if application != _APPLICATION:
            raise OSError(f"{self.path} is a database of something else")
        if version != _VERSION:
            raise sqlite3.DatabaseError(f"version {version}, expected {_VERSION}")
        self._use_wal(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA journal_size_limit = {_JOURNAL_BYTES}")

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        # Processes that begin a file together lock each other out, and here SQLite does not wait by itself.
        until = monotonic() + self._timeout
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError:
                if monotonic() > until:
                    raise
                sleep(0.01)
            else:
                return

    def _read(self, connection: sqlite3.Connection, keys: Sequence[bytes]) -> list[_Row]:
        rows: list[_Row] = []
        for start in range(0, len(keys), _CHUNKS[-1]):
            chunk = list(keys[start : start + _CHUNKS[-1]])
            size = next(size for size in _CHUNKS if size >= len(chunk))
            chunk += chunk[:1] * (size - len(chunk))
            rows += connection.execute(_SELECT[size], chunk).fetchall()
        newest = _newest(connection)
        quarter = self._limit_bytes // 4
        self._used.update(place for place, _, _, value in rows if (newest - place) * len(value) > quarter)
        if len(self._used) >= _MOST_USED:
            self._write(connection, [])
        return rows

    def _write(self, connection: sqlite3.Connection, rows: list[tuple[bytes, int, bytes]]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        used, self._used = self._used, set()
        moves = zip(count(_newest(connection) + 1), sorted(used), strict=False)
        connection.executemany("UPDATE vectors SET place = ? WHERE place = ?", moves)
        connection.executemany("INSERT OR REPLACE INTO vectors (key, crc, value) VALUES (?, ?, ?)", rows)
        excess = self._evict(connection)
        connection.execute("COMMIT")
        if excess > 0:
            # As a script, since `execute` would take the first step only, which frees one page.
            connection.executescript(f"PRAGMA incremental_vacuum({excess})")

    def _evict(self, connection: sqlite3.Connection) -> int:
        """Delete the oldest rows if there are too many; by how many pages the file is too long."""
        page, pages = _number(connection, "PRAGMA page_size"), _number(connection, "PRAGMA page_count")
        most = self._limit_bytes // page
        if pages - _number(connection, "PRAGMA freelist_count") > most:
            # Down to 7/8, so that it is seldom.
            while (excess := pages - _number(connection, "PRAGMA freelist_count") - most * 7 // 8) > 0:
                length = _number(connection, "SELECT length(value) FROM vectors ORDER BY place LIMIT 1")
                # Each row has its key twice.
                if connection.execute(_DELETE, (1 + excess * page // (length + 48),)).rowcount == 0:
                    break
        return pages - most

    def _rest(self, error: Exception) -> None:
        self._rests_until = monotonic() + _REST_SECONDS
        self._used.clear()
        if str(error) not in self._told:
            self._told.add(str(error))
            _log.warning("%s cannot be used, vectors are remembered in the process only: %s", self.path, error)

    def _set_aside(self, error: Exception) -> None:
        self._used.clear()
        if self._identity() != self._opened:
            return  # another process has done it
        aside = self.path.with_name(f"{self.path.name}.broken")
        _log.warning("%s is damaged and begun anew, the old file is kept as %s: %s", self.path, aside.name, error)
        try:
            # The journal first: SQLite would replay it into a new file of that name.
            for suffix in ("-wal", "-shm"):
                self.path.with_name(f"{self.path.name}{suffix}").unlink(missing_ok=True)
            self.path.replace(aside)
        except OSError as failure:
            self._rest(failure)

    def _disconnect(self) -> None:
        connection, self._connected = self._connected, None
        if connection is not None:
            # A damaged file may refuse even that.
            with suppress(sqlite3.Error):
                connection.close()


_Row = tuple[int, Any, Any, Any]
_SELECT = {
    size: f"SELECT place, key, crc, value FROM vectors WHERE key IN ({', '.join('?' * size)})"  # noqa: S608
    for size in _CHUNKS
}
_DELETE = "DELETE FROM vectors WHERE place IN (SELECT place FROM vectors ORDER BY place LIMIT ?)"


def _state(connection: sqlite3.Connection) -> tuple[int, int, int]:
    """Whose file it is, of which version, and how many tables it has; zeros for a new one."""
    application, version = _number(connection, "PRAGMA application_id"), _number(connection, "PRAGMA user_version")
    return application, version, _number(connection, "SELECT count(*) FROM sqlite_master")


def _newest(connection: sqlite3.Connection) -> int:
    return _number(connection, "SELECT max(place) FROM vectors")


def _number(connection: sqlite3.Connection, statement: str) -> int:
    """The only value that a statement gives; 0 for none."""
    row = connection.execute(statement).fetchone()
    return int(row[0] or 0) if row else 0


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _halves(vectors: Vectors) -> tuple[NDArray[np.int16], NDArray[np.float16]]:
    """The exponent of each vector's largest value, and the values in fp16 after multiplying by a power of two."""
    vectors = vectors.clip(-_MOST, _MOST)
    mantissas, exponents = np.frexp(np.abs(vectors).max(axis=1))
    # What is rounded up to the next power of two counts as such, so that rounding a second time changes nothing.
    exponents += mantissas >= 1 - 2.0**-12
    exponents = exponents.clip(_LEAST_EXPONENT, None).astype("<i2")
    return exponents, (vectors * _powers(15 - exponents)).astype("<f2")


def _floats(exponents: NDArray[np.int16], halves: NDArray[np.float16]) -> Vectors:
    vectors = halves.astype(np.float32)
    vectors *= _powers(exponents - 15)
    return vectors


def _powers(exponents: NDArray[np.int16]) -> Vectors:
    return np.ldexp(np.float32(1), exponents)[:, None]


def _encoded(keys: Sequence[bytes], vectors: Vectors) -> list[tuple[bytes, int, bytes]]:
    """Keys, checksums over key and value, and values."""
    exponents, halves = _halves(vectors)
    # The exponent stands before the values, as two more bytes.
    values = np.hstack((exponents[:, None].view("<f2"), halves))
    size, joined = values.shape[1] * 2, values.tobytes()
    cut = [joined[start : start + size] for start in range(0, len(joined), size)]
    return [(key, crc32(value, crc32(key)), value) for key, value in zip(keys, cut, strict=True)]


def _decoded(rows: list[_Row], positions: dict[bytes, int], dimension: int | None) -> tuple[list[int], Vectors, int]:
    """Positions and vectors of the sound rows, and how many are not."""
    sound: dict[int, bytes] = {}
    refused = 0
    size = None if dimension is None else 2 + 2 * dimension
    for _, key, crc, value in rows:
        # A damaged index may lead to the row of another key.
        known = isinstance(key, bytes) and key in positions and isinstance(value, bytes)
        if known and crc32(value, crc32(key)) == crc and len(value) == (size or len(value)):
            size = len(value)
            sound[positions[key]] = value
        else:
            refused += 1
    if not size or size < 4 or size % 2:
        return [], np.empty((0, dimension or 0), np.float32), len(rows)
    found = sorted(sound)
    values = np.frombuffer(b"".join([sound[position] for position in found]), "<f2").reshape(len(found), size // 2)
    with np.errstate(over="ignore", invalid="ignore"):
        vectors = _floats(values[:, 0].view("<i2"), values[:, 1:])
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        refused += int(np.count_nonzero(~finite))
        found, vectors = [found[row] for row in np.flatnonzero(finite)], vectors[finite]
    return found, vectors, refused
