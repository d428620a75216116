"""Train the tiny model in a process of its own, resuming where there is a run: python -m tests.train.script FOLDER."""

import argparse
import os
import signal
import time
from pathlib import Path

from relnet.train import StepRecord
from tests.train.fakes import EXACT, tiny_model, train_tiny


def main(*arguments: str) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--penalty", action="store_const", const=EXACT)
    parser.add_argument("--kill", type=int, help="SIGKILL itself after this update")
    parser.add_argument("--slow", type=float, default=0.0, help="seconds to wait after each update")
    options = parser.parse_args(arguments or None)

    def on_step(record: StepRecord) -> None:
        time.sleep(options.slow)
        if record.step == options.kill:
            os.kill(os.getpid(), signal.SIGKILL)

    model = tiny_model(dropout=options.dropout)
    settings = {"steps": options.steps, "accumulate": options.accumulate, "device": options.device}
    settings["penalty"] = options.penalty
    train_tiny(options.folder, model, **settings, on_step=on_step, resume=True)


if __name__ == "__main__":
    main()
