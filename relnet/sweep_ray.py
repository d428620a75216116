"""A sweep on a Ray cluster: each run is a task that asks for the CPUs and GPUs of its recipe.

The run folders, and the data that runs learn, must lie where every machine sees them, under the same paths. A worker that dies is replaced
by Ray, and its run goes on after its last checkpoint: nothing is kept but what the run folders hold.
"""

import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

from relnet.report.reading import read_tail
from relnet.sweep import BusyError, Ends, Outcome, PlannedRun, check, do, in_one_line, in_rounds, is_finished

# How often Ray may begin a run anew whose worker has died.
RETRIES = 10
# Seconds between two looks at which runs have begun.
LOOKING = 2.0
# Seconds after the budget in which a run saves itself; then Ray ends it, as Ctrl-C does.
GRACE = 30.0
LEFT = "left"
BUSY = "busy"


def sweep_on_ray(
    runs: Sequence[PlannedRun],
    folder: str | Path,
    *,
    address: str | None = None,
    device: str = "auto",
    budget: float | None = None,
    lines: str | Path | None = None,
    command: str = "",
    on_begin: Callable[[PlannedRun], None] | None = None,
    on_look: Callable[[PlannedRun, int, float], None] | None = None,
    on_end: Callable[[PlannedRun, str], None] | None = None,
    on_wait: Callable[[Sequence[PlannedRun]], None] | None = None,
) -> Outcome:
    """Do the runs as tasks of a Ray cluster, as many at once as it has room for; what is finished is not done again.

    address: of a cluster ("auto": the one that this machine belongs to); None: one that is started here and ended, unless Ray runs already.
    device: as for `relnet.sweep.sweep`; with "cpu" no run asks for a GPU, with "cuda" each does.
    budget: seconds; when they are over, the runs that train are saved and left, and no other is begun.
    on_begin: called when a run has begun to train. on_look: called now and then for each that trains, with the number of its last update
    and the seconds that one took. The other arguments, and what is refused: as for `relnet.sweep.sweep`, but for a device that is not
    there: whether a worker has it is seen when a run begins, which fails.
    ValueError without Ray, which is the extra `ray`, without a cluster, and where no machine of it has what a run asks for.
    """
    end = None if budget is None else time.time() + budget
    try:
        import ray
    except ImportError:
        raise ValueError('Ray is not installed; install it with pip install "relnet[ray]"') from None
    check(runs, lines)
    ours = not ray.is_initialized()
    if ours:
        try:
            ray.init(address=address, include_dashboard=False, log_to_driver=False)
        except (RuntimeError, OSError) as error:
            raise ValueError(in_one_line(f"no Ray cluster at {address or 'this machine'}: {error}")) from None
    folder = Path(folder).resolve()
    try:
        with Ends(runs, folder, lines, command, on_end) as ends:
            todo = []
            for planned in runs:
                if is_finished(planned, folder / planned.name):
                    ends.over(planned, "")
                else:
                    todo.append(planned)
            _check_room(ray, todo, device)

            def attempt(waiting: Sequence[PlannedRun]) -> list[PlannedRun]:
                busy = []
                for planned, fault in _ended(ray, waiting, folder, device, end, on_begin, on_look):
                    if fault == BUSY:
                        busy.append(planned)
                    elif fault == LEFT:
                        ends.left(planned)
                    else:
                        ends.over(planned, fault)
                return [planned for planned in waiting if planned in busy]

            in_rounds(todo, attempt, on_wait)
            return ends.outcome
    finally:
        if ours:
            ray.shutdown()


def _gpus(planned: PlannedRun, device: str) -> int:
    """GPUs that a run asks for: its recipe's number, on the device that was named."""
    if device in ("cpu", "mps"):
        return 0
    return max(planned.gpus, int(device.startswith("cuda")))


def _check_room(ray: Any, runs: Sequence[PlannedRun], device: str) -> None:
    """Raise ValueError where no machine has what a run asks for: Ray would wait for one for ever."""
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for planned in runs:
        gpus = _gpus(planned, device)
        if not any(has.get("CPU", 0) >= planned.cpus and has.get("GPU", 0) >= gpus for has in machines):
            raise ValueError(
                f"{planned.name} asks for {planned.cpus} CPU and {gpus} GPU, which no machine of the Ray cluster has: add one"
                + (", or train without a GPU, --device cpu" if gpus else "")
            )


def _ended(
    ray: Any,
    runs: Sequence[PlannedRun],
    folder: Path,
    device: str,
    end: float | None,
    on_begin: Callable[[PlannedRun], None] | None,
    on_look: Callable[[PlannedRun, int, float], None] | None,
) -> Generator[tuple[PlannedRun, str]]:
    """Give the runs to Ray; yield each as it ends, with what `_task` said."""
    # A log that has changed since is how a run that trains is known here.
    before = {planned: _written(folder / planned.name) for planned in runs}
    tasks = {
        ray.remote(_task)
        .options(num_cpus=planned.cpus, num_gpus=_gpus(planned, device), max_retries=RETRIES, name=planned.name)
        .remote(planned, folder / planned.name, device, end): planned
        for planned in runs
    }
    cancelled = False
    while tasks:
        ready, _ = ray.wait(list(tasks), num_returns=1, timeout=LOOKING)
        for planned in [one for one in tasks.values() if one in before]:
            if _written(folder / planned.name) != before[planned]:
                del before[planned]
                if on_begin is not None:
                    on_begin(planned)
        for planned in [one for one in tasks.values() if one not in before]:
            if on_look is not None and (update := _last_update(folder / planned.name)):
                on_look(planned, update["step"], update["seconds"])
        for task in ready:
            yield tasks.pop(task), _said(ray, task)
        if end is not None and time.time() > end + GRACE and not cancelled:
            cancelled = True
            for task in tasks:
                ray.cancel(task)


def _written(place: Path) -> int | None:
    """When a run last logged an update, None where it has no log."""
    try:
        return (place / "log.jsonl").stat().st_mtime_ns
    except OSError:
        return None


def _last_update(place: Path) -> dict[str, Any] | None:
    """The last update that a run logged, None where its log has none."""
    updates = [line for line in read_tail(place / "log.jsonl") if "step" in line]
    return updates[-1] if updates else None


def _said(ray: Any, task: Any) -> str:
    try:
        return ray.get(task)
    except ray.exceptions.TaskCancelledError:
        return LEFT
    except ray.exceptions.RayError as error:
        return in_one_line(f"{type(error).__name__}: {error}")


def _task(planned: PlannedRun, place: Path, device: str, end: float | None) -> str:
    """Do a run in a worker; end: the time of day when the budget is used up."""
    left = float("inf") if end is None else end - time.time()
    if left <= 0:
        return LEFT
    try:
        return do(planned, place, device, time.monotonic() + left)
    except KeyboardInterrupt:
        return LEFT
    except BusyError:
        return BUSY
