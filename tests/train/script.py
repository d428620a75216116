"""Train the tiny model in a process of its own: python -m tests.train.script FOLDER STEPS [kill N | slow SECONDS]."""

import os
import signal
import sys
import time
from pathlib import Path

from relnet.train import StepRecord
from tests.train.fakes import train_tiny


def main(folder: str, steps: str, action: str = "", amount: str = "0") -> None:
    def on_step(record: StepRecord) -> None:
        if action == "slow":
            time.sleep(float(amount))
        if action == "kill" and record.step == int(amount):
            os.kill(os.getpid(), signal.SIGKILL)

    train_tiny(Path(folder), steps=int(steps), on_step=on_step, resume=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
