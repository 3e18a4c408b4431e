"""How many cores this process may use."""

from __future__ import annotations

import os
from pathlib import Path

_CONTROL_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")


def available() -> int:
    """Cores that the process may run on: those it is bound to, within the quota of its control groups (v1 and v2)."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([bound, *map(int, _quotas())]))


def _quotas() -> list[float]:
    """The quotas, in cores, of the process's control groups and all groups around them."""
    try:
        lines = _OWN_GROUPS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    quotas = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = _CONTROL_GROUPS / controllers
        group = root / path.lstrip("/")
        # In a container the path may be the host's: then the root is the group.
        for folder in (group, *group.parents):
            quotas += _quota(folder)
            if folder == root:
                break
    return quotas


def _quota(folder: Path) -> list[float]:
    try:
        if (unified := folder / "cpu.max").is_file():
            quota, period = unified.read_text(encoding="utf-8").split()
        else:
            quota, period = (
                (folder / f"cpu.cfs_{name}_us").read_text(encoding="utf-8") for name in ("quota", "period")
            )
        # "max" in version 2 and -1 in version 1 mean that there is none.
        return [int(quota) / int(period)] if quota.strip() not in ("max", "-1") else []
    except (OSError, ValueError):
        return []
