"""The time that the exps of the relation op take alone, measured on the spot: its cost can be that at best, unless exps are saved."""

import ctypes
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import torch

from relnet.ops import cpu_library

FLAGS = {
    "avx512": ("-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mavx2", "-mfma", "-DRELNET_AVX512"),
    "avx2": ("-mavx2", "-mfma", "-DRELNET_AVX2"),
    "baseline": (),
}


def exp_floor(num_exps: int) -> float | None:
    """Return the least milliseconds in which torch.get_num_threads() threads do so many exps; None without a compiler or kernels."""
    compiler = shutil.which("c++")
    if compiler is None or cpu_library.missing():
        return None
    here, isa = Path(__file__).parent, cpu_library.isa()
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "exp_floor.so")
        include = here.parent / "relnet" / "ops" / "kernels"
        command = [
            compiler,
            "-O3",
            "-std=gnu++17",
            "-fPIC",
            "-shared",
            f"-DRELNET_ISA={isa}",
            *FLAGS[isa],
            f"-I{include}",
        ]
        subprocess.run([*command, str(here / "exp_floor.cpp"), "-o", str(library)], check=True)
        function = ctypes.CDLL(str(library)).exp_floor
    function.restype = ctypes.c_float
    num_threads = torch.get_num_threads()
    share = ctypes.c_int64(num_exps // num_threads)

    def once() -> float:
        # ctypes lets go of Python's lock, so these run side by side.
        threads = [threading.Thread(target=function, args=(share,)) for _ in range(num_threads)]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return 1e3 * (time.perf_counter() - start)

    return min(once() for _ in range(9))
