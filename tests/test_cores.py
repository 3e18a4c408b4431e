"""How many cores there are, by files as the kernel writes them; and what bytes do here."""

import os
import platform
from pathlib import Path

import pytest

from secateur._core import byte_products_saturate
from secateur.embed import cores


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cores, "_CONTROL_GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(cores, "_OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)
    return tmp_path


def written(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("quota", "expected"),
    [("max 100000", 16), ("200000 100000", 2), ("250000 100000", 2), ("50000 100000", 1), ("nonsense", 16)],
)
def test_version_2(groups: Path, quota: str, expected: int) -> None:
    written(groups / "own", "0::/a/b\n")
    written(groups / "cgroup/a/cpu.max", f"{quota}\n")
    written(groups / "cgroup/a/b/cpu.max", "1000000 100000\n")
    assert cores.available() == min(expected, 10)


@pytest.mark.parametrize(("quota", "expected"), [("-1", 16), ("300000", 3)])
def test_version_1_in_a_container(groups: Path, quota: str, expected: int) -> None:
    written(groups / "own", "5:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n")
    written(groups / "cgroup/cpu,cpuacct/cpu.cfs_quota_us", f"{quota}\n")
    written(groups / "cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n")
    assert cores.available() == expected


def test_without_control_groups(groups: Path) -> None:
    assert cores.available() == 16
    assert not (groups / "own").exists()


def test_bytes_saturate_on_x86_without_vnni() -> None:
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else "vnni"
    assert byte_products_saturate() == (platform.machine() in ("x86_64", "AMD64") and "vnni" not in flags)
