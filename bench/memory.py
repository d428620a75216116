"""How far a call raises this process's resident memory."""

from collections.abc import Callable
from pathlib import Path

RESET = Path("/proc/self/clear_refs")


def status(field: str) -> int:
    """Return a field of /proc/self/status in bytes: VmRSS, resident now; VmHWM, its peak. Linux only."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024


def peak_growth(call: Callable[[], object]) -> int | None:
    """Return the bytes between resident memory before the call and its peak during it; None where the system does not tell (not Linux)."""
    if not RESET.exists():
        return None
    # The mark of the highest resident memory starts again from here.
    RESET.write_text("5")
    before = status("VmRSS")
    call()
    return max(0, status("VmHWM") - before)
