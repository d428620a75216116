"""What has to be done once before the workers begin."""

import importlib.util
import subprocess
import sys
from pathlib import Path


def pytest_configure(config):
    """The attack toolbox writes a file of its own when it is first imported on a machine; of two workers at once one would fail there."""
    worker = hasattr(config, "workerinput")
    if worker or importlib.util.find_spec("art") is None or (Path.home() / ".art" / "config.json").exists():
        return
    subprocess.run([sys.executable, "-c", "import art"], check=False, capture_output=True)
