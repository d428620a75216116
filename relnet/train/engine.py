"""Where a run computes: device, processes, precision, trackers. The only file that names accelerate.

One process needs nothing. Several are started with `accelerate launch --multi_gpu --num_processes 2 script.py`, on a
machine without GPUs too (`--cpu --num_processes 2` starts a single one unless MPI is there); each then runs the same
script and trains on its own share of every batch.
"""

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.tracking import GeneralTracker, get_available_trackers
from accelerate.utils import patch_environment
from torch import Tensor, nn

from relnet.train.config import Precision


class Engine:
    """Device and processes of one run.

    device: "auto" (a GPU where there is one), "cpu", "cuda", "mps", or one GPU such as "cuda:1".
    trackers: names that accelerate knows ("tensorboard", "wandb", ...) or its `GeneralTracker` objects; those that
        write files do so in `folder`.

    ValueError for a device or a tracker that this machine does not have.
    """

    def __init__(
        self,
        device: str = "auto",
        trackers: Sequence[str | GeneralTracker] = (),
        folder: Path | None = None,
    ):
        distributed = num_processes() > 1
        _check_device(device, distributed)
        _check_trackers(trackers)
        if not distributed:
            # accelerate keeps one state a process, and this run may have chosen another device than the last one.
            AcceleratorState._reset_state(reset_partial_state=True)
        # Left to itself, accelerate takes processes without GPUs for separate runs.
        on_cpu = device == "cpu" or (distributed and not torch.cuda.is_available())
        chosen = {} if device == "auto" or distributed else {"ACCELERATE_TORCH_DEVICE": device}
        with patch_environment(**chosen):
            # "no": autocast is this class's own, so that the caller's model is not patched.
            self._accelerator = Accelerator(
                cpu=on_cpu, mixed_precision="no", log_with=list(trackers) or None, project_dir=folder
            )
        self.device: torch.device = self._accelerator.device
        self.process: int = self._accelerator.process_index
        self.num_processes: int = self._accelerator.num_processes
        self.is_main = self.process == 0

    def share(self, batch_size: int, accumulate: int) -> int:
        """Strings of a batch that each process trains on; ValueError if they cannot be shared out evenly."""
        parts = self.num_processes * accumulate
        if batch_size % parts:
            raise ValueError(
                f"batch_size={batch_size}: must be a multiple of processes x accumulate = "
                f"{self.num_processes} x {accumulate} = {parts}"
            )
        return batch_size // self.num_processes

    def prepare(self, model: nn.Module) -> nn.Module:
        """Move `model` to the device and return what to call in its place; its gradients are means over processes."""
        model.to(self.device)
        return model if self.num_processes == 1 else self._accelerator.prepare_model(model)

    def accumulating(self, prepared: nn.Module, last: bool) -> AbstractContextManager[Any]:
        """Context of a micro-batch: the processes exchange gradients in the last one of an update only."""
        return nullcontext() if last or self.num_processes == 1 else self._accelerator.no_sync(prepared)

    def sum(self, number: int) -> Tensor:
        """Sum of `number` over the processes, () on the device."""
        total = torch.full((), number, device=self.device)
        return total if self.num_processes == 1 else self._accelerator.reduce(total, "sum")

    def gather(self, values: Tensor) -> Tensor:
        """Stack `values`, of one shape on every process, by process: (processes, ...), on the CPU."""
        if self.num_processes == 1:
            return values.cpu()[None]
        return self._accelerator.gather(values[None].to(self.device)).cpu()

    def wait(self) -> None:
        """Return once every process has come here."""
        self._accelerator.wait_for_everyone()

    @contextmanager
    def seeded(self, seed: int) -> Generator[None]:
        """Seed torch's generators, each process its own; at the end they are as they were before."""
        before = self._generators()
        torch.manual_seed(seed + self.process)
        try:
            yield
        finally:
            self._set_generators(before)

    def rng_states(self) -> dict[str, Tensor]:
        """States of torch's generators by device type, one row a process; all processes must call it together."""
        return {kind: self.gather(state) for kind, state in self._generators().items()}

    def restore_rng(self, states: Mapping[str, Tensor]) -> None:
        """Go on from `rng_states`; left as they are where the run has other devices or another number of processes."""
        ours = [kind for kind, rows in states.items() if len(rows) == self.num_processes]
        # A clone: torch 2.13 crashes on a state that is a view with an offset.
        self._set_generators({kind: states[kind][self.process].clone() for kind in ours})

    def _generators(self) -> dict[str, Tensor]:
        states = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            states["cuda"] = torch.cuda.get_rng_state(self.device)
        if self.device.type == "mps":
            states["mps"] = torch.mps.get_rng_state()
        return states

    def _set_generators(self, states: Mapping[str, Tensor]) -> None:
        if "cpu" in states:
            torch.set_rng_state(states["cpu"])
        if "cuda" in states and self.device.type == "cuda":
            torch.cuda.set_rng_state(states["cuda"], self.device)
        if "mps" in states and self.device.type == "mps":
            torch.mps.set_rng_state(states["mps"])

    def surroundings(self) -> dict[str, Any]:
        """What, besides the run's own content, the bits of its result depend on."""
        return {
            "device": self.device.type,
            "processes": self.num_processes,
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
        }

    @contextmanager
    def tracking(self, settings: Mapping[str, Any]) -> Generator[None]:
        """Start the trackers with `settings` of the run; finish them at the end, whatever happens."""
        known = {name: value for name, value in settings.items() if value is not None}
        self._accelerator.init_trackers("relnet", config=known)
        try:
            yield
        finally:
            for tracker in self._accelerator.trackers:
                tracker.finish()

    def track(self, values: Mapping[str, float], step: int) -> None:
        """Give `values` of one update to the trackers."""
        self._accelerator.log(dict(values), step=step)


def num_processes() -> int:
    """Return how many processes train together: those that `accelerate launch` started, else 1."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_main_process() -> bool:
    """Return whether this is the first of them, the one that writes, examines and prints."""
    return num_processes() == 1 or os.environ.get("RANK") == "0"


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[Any]:
    """Return the context of a forward pass: bfloat16 autocast where the precision says so."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bfloat16")


def choose_device(device: str = "auto") -> torch.device:
    """The device that a run told `device` uses; ValueError for one that this machine does not have."""
    _check_device(device, distributed=False)
    if device != "auto":
        return torch.device(device)
    return torch.device("cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu")


def _check_device(device: str, distributed: bool) -> None:
    kind, _, index = device.partition(":")
    if kind not in ("auto", "cpu", "cuda", "mps") or (":" in device and not (kind == "cuda" and index.isdecimal())):
        raise ValueError(f"device {device!r}: must be auto, cpu, cuda, mps or one GPU such as cuda:1")
    if distributed and index:
        raise ValueError(f"device {device!r}: with several processes each takes its own GPU, say cuda or auto")
    if kind == "cuda" and torch.cuda.device_count() <= int(index or 0):
        raise ValueError(f"device {device!r}: torch sees {torch.cuda.device_count()} CUDA GPUs here; say auto or cpu")
    if kind == "mps" and not torch.backends.mps.is_available():
        raise ValueError(f"device {device!r}: torch finds no Apple GPU here; say auto or cpu")


def _check_trackers(trackers: Sequence[str | GeneralTracker]) -> None:
    # accelerate leaves out a tracker that is not installed without a word.
    available = [str(name) for name in get_available_trackers()]
    for tracker in trackers:
        if not isinstance(tracker, GeneralTracker) and tracker not in available:
            raise ValueError(
                f"tracker {tracker!r}: not installed or unknown to accelerate; "
                f"available here: {', '.join(available) or 'none'}"
            )
