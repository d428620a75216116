"""A sweep on a Ray cluster: each run is a task that asks for the CPUs and GPUs of its recipe.

The run folders must lie where every machine sees them. A worker that dies is replaced by Ray, and its run goes on after its last
checkpoint: nothing is kept but what the run folders hold.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from relnet.sweep import Outcome, PlannedRun, check, do

# How often Ray may begin a run anew whose worker has died.
RETRIES = 10
LEFT = "left"


def sweep_on_ray(
    runs: Sequence[PlannedRun],
    folder: str | Path,
    *,
    address: str | None = None,
    device: str = "auto",
    budget: float | None = None,
    lines: str | Path | None = None,
    command: str = "",
    on_end: Callable[[PlannedRun, str], None] | None = None,
) -> Outcome:
    """Do the runs as tasks of a Ray cluster, as many at once as it has room for; what is finished is not done again.

    address: of a cluster ("auto": the one that this machine belongs to); None: one that is started here and ended, unless Ray runs already.
    The other arguments, and what is refused: as for `relnet.sweep.sweep`. ImportError without Ray: it is the extra `ray`.
    """
    check(runs, lines)
    try:
        import ray
    except ImportError:
        raise ImportError('a sweep on Ray needs the extra ray: pip install "relnet[ray]"') from None
    ours = not ray.is_initialized()
    if ours:
        ray.init(address=address, include_dashboard=False, log_to_driver=False)
    try:
        return _gathered(ray, runs, Path(folder).resolve(), device, budget, lines, command, on_end)
    finally:
        if ours:
            ray.shutdown()


def _gathered(
    ray: Any,
    runs: Sequence[PlannedRun],
    folder: Path,
    device: str,
    budget: float | None,
    lines: str | Path | None,
    command: str,
    on_end: Callable[[PlannedRun, str], None] | None,
) -> Outcome:
    end = None if budget is None else time.time() + budget
    waiting = {
        ray.remote(_task)
        .options(num_cpus=planned.cpus, num_gpus=planned.gpus, max_retries=RETRIES, name=planned.name)
        .remote(planned, folder / planned.name, device, end): planned
        for planned in runs
    }
    outcome = Outcome()
    while waiting:
        (ready,), _ = ray.wait(list(waiting), num_returns=1)
        planned = waiting.pop(ready)
        place = folder / planned.name
        try:
            fault = ray.get(ready)
        except ray.exceptions.RayError as error:
            fault = f"{type(error).__name__}: {error}"
        if fault == LEFT:
            outcome.left.append(place)
            continue
        outcome.ended(place, fault, lines, command)
        if on_end is not None:
            on_end(planned, fault)
    return outcome


def _task(planned: PlannedRun, place: Path, device: str, end: float | None) -> str:
    """Do a run in a worker; end: the time of day when the budget is used up."""
    left = float("inf") if end is None else end - time.time()
    if left <= 0:
        return LEFT
    try:
        return do(planned, place, device, time.monotonic() + left)
    except KeyboardInterrupt:
        return LEFT
