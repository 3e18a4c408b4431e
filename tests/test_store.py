"""Vectors on disk: what is kept and what is dropped, by many processes at once, through damage, kills and forks."""

import logging
import multiprocessing
import os
import random
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from samples import records
from secateur import OptionError
from secateur.embed.minilm import MiniLM
from secateur.embed.store import VectorStore, keyed, rounded

finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
matrices = arrays.arrays(np.float32, st.tuples(st.integers(0, 5), st.integers(1, 9)), elements=finite)
KEYS = [number.to_bytes(16, "little") for number in range(4_000)]


def made(numbers: list[int], dimension: int = 384) -> NDArray[np.float32]:
    """A vector for each number, always the same."""
    return np.stack([np.random.default_rng(number).standard_normal(dimension, np.float32) for number in numbers])


def fill(store: VectorStore, numbers: list[int]) -> None:
    store.put([KEYS[number] for number in numbers], made(numbers))


def check(store: VectorStore, numbers: list[int]) -> list[int]:
    """Which of them are there; what is there must be right."""
    positions, vectors = store.get([KEYS[number] for number in numbers])
    found = [numbers[position] for position in positions]
    if found:
        np.testing.assert_array_equal(vectors, rounded(made(found)))
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "vectors.sqlite"


class TestRounding:
    @given(matrices)
    def test_to_eleven_bits_and_only_once(self, vectors: NDArray[np.float32]) -> None:
        once = rounded(vectors)
        assert np.isfinite(once).all()
        np.testing.assert_array_equal(rounded(once), once)
        largest = np.abs(vectors).max(axis=1, keepdims=True)
        allowed = np.maximum(np.abs(vectors.astype(np.float64)) * 2.0**-11, largest.astype(np.float64) * 2.0**-38)
        assert (np.abs(once.astype(np.float64) - vectors) <= allowed).all()

    def test_cosines_of_real_vectors(self, minilm: MiniLM) -> None:
        texts = [message["content"] for record in records("meeting.jsonl") for message in record["messages"]]
        vectors = minilm.embed(list(dict.fromkeys(texts)))
        assert len(vectors) > 100
        exact, kept = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (vectors, rounded(vectors)))
        assert np.abs(exact @ exact.T - kept @ kept.T).max() < 1e-4
        assert (exact * kept).sum(axis=1).min() > 1 - 1e-6


class TestKeys:
    @given(st.lists(st.tuples(st.text(), st.text()), max_size=20))
    def test_differ_for_any_fingerprint_and_text(self, pairs: list[tuple[str, str]]) -> None:
        seen = {keyed(fingerprint, kind)(text) for fingerprint, text in pairs for kind in ("document", "query")}
        assert len(seen) == 2 * len(set(pairs))

    def test_of_surrogates_and_joined_strings(self) -> None:
        texts = ["\ud800", "\udc00", "\ud83d\ude00", "\U0001f600", "", "\0", "a\0"]
        seen = {keyed(fingerprint, "document")(text) for fingerprint in ("", "a", "a\0", "\ud800") for text in texts}
        assert len(seen) == 4 * len(texts)
        assert all(len(key) == 16 for key in seen)


operations = st.lists(
    st.tuples(
        st.booleans(), st.lists(st.tuples(st.integers(0, 30), finite), max_size=40, unique_by=lambda each: each[0])
    ),
    max_size=10,
)


@given(operations)
def test_remembers_like_a_dictionary(tmp_path_factory: pytest.TempPathFactory, steps: list) -> None:  # type: ignore[type-arg]
    oracle: dict[bytes, NDArray[np.float32]] = {}
    with VectorStore(tmp_path_factory.mktemp("oracle") / "vectors.sqlite") as store:
        for writes, pairs in steps:
            keys = [KEYS[number] for number, _ in pairs]
            if writes:
                vectors = np.array([[value, 1.0] for _, value in pairs], np.float32).reshape(-1, 2)
                store.put(keys, vectors)
                oracle.update(zip(keys, rounded(vectors), strict=True))
            positions, found = store.get(keys)
            assert positions == [position for position, key in enumerate(keys) if key in oracle]
            np.testing.assert_array_equal(found, [oracle[keys[position]] for position in positions] or found)
            assert found.dtype == np.float32


@pytest.mark.parametrize("size", [1, 2, 16, 17, 511, 512, 513, 1_300])
def test_any_number_of_keys(path: Path, size: int) -> None:
    numbers = list(range(size))
    random.Random(size).shuffle(numbers)
    with VectorStore(path) as store:
        fill(store, numbers)
        assert check(store, numbers[::-1]) == numbers[::-1]
        assert check(store, [size, numbers[0]]) == [numbers[0]]
    with VectorStore(path) as store:
        assert check(store, numbers) == numbers, "after it was closed"


def test_for_the_owner_only(path: Path) -> None:
    with VectorStore(path) as store:
        fill(store, [1])
        files = sorted(path.parent.iterdir())
        assert [each.name for each in files] == ["vectors.sqlite", "vectors.sqlite-shm", "vectors.sqlite-wal"]
        assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o600}
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_by_default_in_the_cache_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SECATEUR_CACHE", str(tmp_path))
    assert VectorStore().path == tmp_path / "vectors.sqlite"
    assert list(tmp_path.iterdir()) == [], "nothing is written before there is something to keep"


def test_limits_are_checked(path: Path) -> None:
    with pytest.raises(OptionError, match="limit_bytes is -1, it must be a whole number, 0 or more"):
        VectorStore(path, limit_bytes=-1)
    with pytest.raises(OptionError, match="timeout is nan, it must be seconds, 0 or more"):
        VectorStore(path, timeout=float("nan"))


class TestBound:
    def test_the_oldest_go_first_and_the_used_stay(self, path: Path) -> None:
        limit = 400_000
        with VectorStore(path, limit_bytes=limit) as store:
            for start in range(0, 3_000, 50):
                fill(store, list(range(start, start + 50)))
                if start:
                    assert check(store, list(range(10))) == list(range(10)), start
            kept = check(store, list(range(10, 3_000)))
            assert kept == list(range(kept[0], 3_000)), "what was not used is dropped by age"
            assert len(kept) > limit * 0.6 / 800
        assert path.stat().st_size <= limit

    def test_a_look_up_of_the_new_writes_nothing(self, path: Path) -> None:
        with VectorStore(path, limit_bytes=1_000_000) as store:
            fill(store, list(range(300)))
        before = path.read_bytes()
        with VectorStore(path, limit_bytes=1_000_000) as store:
            for _ in range(5):
                assert len(check(store, list(range(300)))) == 300
        assert path.read_bytes() == before

    def test_a_smaller_limit_shrinks_the_file(self, path: Path) -> None:
        with VectorStore(path) as store:
            fill(store, list(range(2_000)))
        assert path.stat().st_size > 1_500_000
        with VectorStore(path, limit_bytes=500_000) as store:
            fill(store, [2_000])
            assert check(store, list(range(2_001)))[-1] == 2_000
        assert path.stat().st_size <= 500_000

    @pytest.mark.parametrize("limit", [0, 1, 5_000, 20_000])
    def test_a_limit_below_all_use(self, path: Path, limit: int) -> None:
        with VectorStore(path, limit_bytes=limit) as store:
            for start in range(0, 300, 100):
                fill(store, list(range(start, start + 100)))
                check(store, list(range(300)))
        assert path.stat().st_size <= max(limit, 20_480)


class TestDamage:
    def test_flipped_bytes(self, path: Path, caplog: pytest.LogCaptureFixture) -> None:
        numbers = list(range(200))
        generator = random.Random(7)
        lost = 0
        for turn in range(30):
            with VectorStore(path) as store:
                fill(store, numbers)
            content = bytearray(path.read_bytes())
            for _ in range(1 + turn % 5):
                content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
            path.write_bytes(content)
            with VectorStore(path) as store:
                lost += len(numbers) - len(check(store, numbers))
                fill(store, numbers)
                fill(store, numbers)  # the first may be what finds the damage
                assert check(store, numbers) == numbers
        assert lost > 0
        assert caplog.records

    def test_of_a_value_is_told(self, path: Path, caplog: pytest.LogCaptureFixture) -> None:
        with VectorStore(path) as store:
            fill(store, [1, 2, 3, 4, 5, 6])
        with sqlite3.connect(path) as connection:
            spoil = [("zeroblob(770)", 1), ("zeroblob(3)", 2), ("NULL || 'text'", 3), ("x'0000007c'", 4)]
            for value, number in spoil[:2] + spoil[3:]:
                connection.execute(f"UPDATE vectors SET value = {value} WHERE key = ?", (KEYS[number],))
            connection.execute("UPDATE vectors SET crc = 'text' WHERE key = ?", (KEYS[3],))
        connection.close()
        with VectorStore(path) as store:
            assert check(store, [1, 2, 3, 4, 5, 6]) == [5, 6]
            assert "4 damaged vectors are computed anew" in caplog.text
            fill(store, [1, 2, 3, 4])
            assert check(store, [1, 2, 3, 4, 5, 6]) == [1, 2, 3, 4, 5, 6]

    def test_what_is_not_finite_or_of_another_dimension(self, path: Path, caplog: pytest.LogCaptureFixture) -> None:
        with VectorStore(path) as store, np.errstate(invalid="ignore"):
            store.put(KEYS[:1], np.array([[1.0, 2.0]], np.float32))
            store.put(KEYS[1:2], np.array([[1.0, np.nan]], np.float32))
            store.put(KEYS[2:3], np.array([[1.0, 2.0, 3.0]], np.float32))
            assert store.get(KEYS[:3])[0] == [0]
            assert store.get(KEYS[:3], 3)[0] == [2]
            assert store.get(KEYS[:3], 4)[0] == []
        assert len(caplog.records) == 3

    @pytest.mark.parametrize("content", [b"no database" * 999, os.urandom(20_000), b"SQLite format 3\0" + bytes(5_000)])
    def test_a_file_that_is_no_database(self, path: Path, caplog: pytest.LogCaptureFixture, content: bytes) -> None:
        path.parent.mkdir()
        path.write_bytes(content)
        with VectorStore(path) as store:
            assert check(store, [1]) == []
            fill(store, [1])
            assert check(store, [1]) == [1]
        assert path.with_name("vectors.sqlite.broken").read_bytes() == content
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "is damaged and begun anew" in caplog.text

    @pytest.mark.parametrize("share", [0.0, 0.001, 0.01, 0.3, 0.9])
    def test_a_file_cut_off(self, path: Path, share: float) -> None:
        numbers = list(range(500))
        with VectorStore(path) as store:
            fill(store, numbers)
        os.truncate(path, int(path.stat().st_size * share))
        with VectorStore(path) as store:
            check(store, numbers)
            fill(store, numbers)
            fill(store, numbers)
            assert check(store, numbers) == numbers

    def test_a_file_that_is_cut_off_while_it_is_open(self, path: Path) -> None:
        numbers = list(range(500))
        with VectorStore(path) as store:
            fill(store, numbers)
            os.truncate(path, 5_000)
            check(store, numbers)
            fill(store, numbers)
            fill(store, numbers)
            assert check(store, numbers) == numbers

    @pytest.mark.parametrize(
        "change", ["DROP TABLE vectors", "PRAGMA user_version = 2", "ALTER TABLE vectors DROP crc"]
    )
    def test_another_schema_or_version(self, path: Path, change: str, caplog: pytest.LogCaptureFixture) -> None:
        with VectorStore(path) as store:
            fill(store, [1])
        with sqlite3.connect(path) as connection:
            connection.execute(change)
        connection.close()
        with VectorStore(path) as store:
            check(store, [1])
            fill(store, [1])
            assert check(store, [1]) == [1]
        assert "begun anew" in caplog.text

    def test_a_database_of_something_else_is_left_alone(self, path: Path, caplog: pytest.LogCaptureFixture) -> None:
        path.parent.mkdir()
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE people (name TEXT)")
        connection.close()
        content = path.read_bytes()
        with VectorStore(path) as store:
            for _ in range(3):
                fill(store, [1])
                assert check(store, [1]) == []
        assert path.read_bytes() == content
        assert [each.name for each in path.parent.iterdir()] == [path.name]
        assert len(caplog.records) == 1
        assert "is a database of something else" in caplog.text

    def test_a_file_that_is_removed_or_replaced(self, path: Path) -> None:
        """As another process does that sets it aside."""
        with VectorStore(path) as store:
            fill(store, [1])
            for each in path.parent.iterdir():
                each.unlink()
            assert check(store, [1]) == []
            fill(store, [2])
            with VectorStore(path) as other:
                assert check(other, [1, 2]) == [2]


class TestCircumstances:
    def test_a_lock_that_lasts(self, path: Path, caplog: pytest.LogCaptureFixture) -> None:
        with VectorStore(path, timeout=0.05) as store:
            fill(store, [1])
            holder = sqlite3.connect(path, isolation_level=None)
            holder.execute("BEGIN IMMEDIATE")
            fill(store, [2])
            fill(store, [3])
            assert check(store, [1]) == [], "at rest"
            holder.close()
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "cannot be used, vectors are remembered in the process only: database is locked" in caplog.text
        with VectorStore(path) as store:
            assert check(store, [1, 2, 3]) == [1]

    def test_a_folder_that_cannot_be(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        (tmp_path / "file").touch()
        for place in (tmp_path / "file" / "vectors.sqlite", tmp_path):
            caplog.clear()
            with VectorStore(place) as store:
                fill(store, [1])
                assert check(store, [1]) == []
            assert len(caplog.records) == 1
            assert "cannot be used" in caplog.text

    def test_rights_that_are_missing_and_a_full_disk(self, tmp_path: Path) -> None:
        script = """
import os, resource, sys
from pathlib import Path
from test_store import VectorStore, check, fill
folder = Path(sys.argv[1])
with VectorStore(folder / "full.sqlite") as store:
    fill(store, [1])
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, -1))
    fill(store, list(range(2, 1000)))
    assert check(store, [1, 2]) == []
resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
with VectorStore(folder / "full.sqlite") as store:
    assert check(store, [1, 2]) == [1]
    fill(store, [2])
    assert check(store, [1, 2]) == [1, 2]
for each in folder.iterdir():
    each.chmod(0o444)
folder.chmod(0o555)
if os.geteuid() == 0:
    os.seteuid(65534)
for name in ("full.sqlite", "new.sqlite"):
    with VectorStore(folder / name) as store:
        fill(store, [3])
        assert check(store, [3]) == []
"""
        told = run(script, str(tmp_path)).stderr.splitlines()
        assert len([line for line in told if "cannot be used" in line]) == 3, told


def run(script: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent)


def work(path: Path, seed: int) -> int:
    """Write and read at random with others; how many were found."""
    generator = random.Random(seed)
    found = 0
    with VectorStore(path, limit_bytes=600_000, timeout=20) as store:
        for _ in range(25):
            fill(store, generator.sample(range(1_000), 40))
            found += len(check(store, generator.sample(range(1_000), 200)))
    return found


class TestTogether:
    @pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
    def test_processes(self, path: Path, method: str) -> None:
        with VectorStore(path) as store:
            if method == "fork":
                fill(store, [1])
            with multiprocessing.get_context(method).Pool(4) as pool:
                assert all(pool.starmap(work, [(path, seed) for seed in range(4)]))
            fill(store, [1])
            assert check(store, [1]) == [1]
        assert sound(path)
        assert not path.with_name("vectors.sqlite.broken").exists()

    def test_threads(self, path: Path) -> None:
        with VectorStore(path) as store, ThreadPoolExecutor(8) as pool:

            def each(seed: int) -> list[int]:
                generator = random.Random(seed)
                fill(store, generator.sample(range(1_000), 20))
                return check(store, generator.sample(range(1_000), 100))

            assert any(pool.map(each, range(100)))
        assert sound(path)

    def test_forks_while_threads_are_at_work(self, path: Path) -> None:
        ended = threading.Event()
        with VectorStore(path, timeout=20) as store, ThreadPoolExecutor(3) as pool:

            def busy(seed: int) -> None:
                while not ended.is_set():
                    fill(store, [seed, seed + 10])
                    check(store, list(range(100)))

            tasks = [pool.submit(busy, seed) for seed in range(3)]
            for turn in range(20):
                child = os.fork()
                if child == 0:
                    fill(store, [100 + turn])
                    os._exit(check(store, [100 + turn]) != [100 + turn])
                assert os.waitpid(child, 0)[1] == 0
            ended.set()
            for task in tasks:
                task.result()
            assert check(store, list(range(100, 120))) == list(range(100, 120))
        assert sound(path)

    def test_killed_at_any_moment(self, path: Path) -> None:
        script = """
import sys
from pathlib import Path
from test_store import VectorStore, fill
store = VectorStore(Path(sys.argv[1]), limit_bytes=2_000_000)
for start in range(0, 4_000, 20):
    fill(store, list(range(start, start + 20)))
    print(start, flush=True)
"""
        for turn in range(6):
            command = [sys.executable, "-c", script, str(path)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parent) as writer:
                assert writer.stdout is not None
                for _ in range(3 + 7 * turn):
                    written = int(writer.stdout.readline())
                writer.send_signal(signal.SIGKILL)
            with VectorStore(path) as store:
                assert check(store, list(range(written, written + 20))) == list(range(written, written + 20))
            assert sound(path)
        assert not path.with_name("vectors.sqlite.broken").exists()


def sound(path: Path) -> bool:
    connection = sqlite3.connect(path)
    found: list[tuple[str]] = connection.execute("PRAGMA integrity_check").fetchall()
    connection.close()
    return found == [("ok",)]


def test_is_closed_and_opened_again(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    store = VectorStore(path)
    store.close()
    assert not path.exists()
    fill(store, [1])
    store.close()
    store.close()
    assert [each.name for each in path.parent.iterdir()] == ["vectors.sqlite"]
    assert check(store, [1]) == [1]
    assert repr(store) == f"VectorStore({str(path)!r})"
    del store
    assert [each.name for each in path.parent.iterdir()] == ["vectors.sqlite"]
    assert not caplog.records


def test_least_recently_used_like_an_ordered_dictionary_within_a_half(path: Path) -> None:
    """What was written or used within the last half of the limit is never dropped."""
    limit, generator = 400_000, random.Random(1)
    recent: OrderedDict[int, None] = OrderedDict()
    most = limit // 2 // 1_000
    with VectorStore(path, limit_bytes=limit) as store:
        for _ in range(300):
            numbers = generator.sample(range(1_500), 10)
            missing = [number for number in numbers if number not in check(store, numbers)]
            assert not set(missing) & set(list(recent)[-most:])
            fill(store, missing)
            for number in numbers:
                recent[number] = None
                recent.move_to_end(number)
