"""Start two processes that train together, as `accelerate launch` does."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def launch_two(module: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a module in two processes, which talk over the loopback interface."""
    launcher = "--multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no"
    command = [sys.executable, "-m", "accelerate.commands.launch", *launcher.split(), "--main_process_port", "0"]
    command += ["-m", module, *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    if sys.platform == "linux":
        environment["GLOO_SOCKET_IFNAME"] = "lo"
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
