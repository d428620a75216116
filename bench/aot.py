"""Compile the Triton kernels for GPUs that need not be here, and print what each tile takes.

Registers and spills are those that ptxas reports, shared memory is Triton's. Instructions are those of the loop over columns, a pair and
channel that counts (idle lanes are paid for by the others); of them MUFU run on the special-function unit, a quarter of a lane a cycle.

    python bench/aot.py
    python bench/aot.py --arch 90 --width 64 192 --activation exp gelu --json runs/aot.jsonl
"""

import argparse
import json
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas
from triton.compiler import ASTSource

from relnet.ops import relation_triton_kernels as kernels

ACTIVATIONS = ("exp", "relu", "elu", "gelu")


class Case(NamedTuple):
    """One kernel, what it computes, and its tile."""

    kernel: str
    of_targets: bool
    D: int
    activation: str
    normed: bool
    exp_on_fma: bool
    config: triton.Config

    def choices(self) -> dict[str, object]:
        choices = {"D": self.D, "ACTIVATION": self.activation, "NORMED": self.normed, "EXP_ON_FMA": self.exp_on_fma}
        if self.kernel == "gradient_over_pairs":
            choices["OF_TARGETS"] = self.of_targets
        return choices | self.config.kwargs


def cases(widths: list[int], activations: list[str], norms: list[bool], exp_on_fma: bool) -> Iterator[Case]:
    """Yield every kernel with every tile that it is tried with."""
    for kernel, of_targets in (("sum_over_pairs", True), ("gradient_over_pairs", True), ("gradient_over_pairs", False)):
        values = kernels.VALUES_A_LANE[getattr(kernels, kernel)]
        for width in widths:
            for config in kernels.tiles(width, values):
                for activation in activations:
                    for normed in norms:
                        yield Case(kernel, of_targets, width, activation, normed, exp_on_fma, config)


def run(path: str, *arguments: str) -> str:
    """Run a program and return what it says."""
    done = subprocess.run([path, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{path} failed: {done.stderr}")
    return done.stdout + done.stderr


def loop(assembly: str) -> list[str]:
    """Return the operations of the longest loop: from where a branch goes back to, to that branch."""
    lines = re.findall(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)([^;]*);", assembly)
    at = {int(address, 16): index for index, (address, _, _) in enumerate(lines)}
    longest: list[str] = []
    for index, (_, operation, rest) in enumerate(lines):
        aim = re.search(r"0x([0-9a-f]+)", rest)
        if operation == "BRA" and aim and (start := at.get(int(aim[1], 16), index)) < index - len(longest):
            longest = [operation for _, operation, _ in lines[start : index + 1]]
    return longest


def compile_case(case: Case, arch: int) -> dict[str, object]:
    """Compile one case and return what it takes."""
    kernel = getattr(kernels, case.kernel)
    constants = case.choices()
    signature = {
        name: "constexpr"
        if name in constants
        else "*i32"
        if name in ("first_pointer", "end_pointer")
        else "*fp32"
        if name.endswith("_pointer")
        else "i32"
        for name in kernel.arg_names
    }
    aligned = {
        (index,): [["tt.divisibility", 16]] for index, name in enumerate(kernel.arg_names) if name.endswith("_pointer")
    }
    compiled = triton.compile(
        ASTSource(kernel, signature, constants, aligned),
        target=GPUTarget("cuda", arch, 32),
        options={"num_warps": case.config.num_warps, "enable_fp_fusion": True},
    )
    with tempfile.TemporaryDirectory() as folder:
        ptx, cubin = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        ptx.write_text(compiled.asm["ptx"])
        cubin.write_bytes(compiled.asm["cubin"])
        target = re.search(r"\.target (\w+)", compiled.asm["ptx"])
        assert target
        report = run(
            get_ptxas(arch).path, "-v", f"--gpu-name={target[1]}", str(ptx), "-o", str(Path(folder, "again.cubin"))
        )
        operations = loop(run(triton.knobs.nvidia.cuobjdump.path, "-sass", str(cubin)))
    registers = re.search(r"Used (\d+) registers", report)
    spills = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", report)
    assert registers
    assert spills
    rows, cols = case.config.kwargs["ROWS"], case.config.kwargs["COLS"]
    per_warp = rows * cols * case.D / (32 * case.config.num_warps)
    kernel_name = f"{case.kernel} {'dq' if case.of_targets else 'dp'}" if "OF_TARGETS" in constants else case.kernel
    return {
        "kernel": kernel_name,
        "arch": arch,
        "D": case.D,
        "activation": case.activation,
        "normed": case.normed,
        "exp_on_fma": case.exp_on_fma,
        "rows": rows,
        "cols": cols,
        "warps": case.config.num_warps,
        "registers": int(registers[1]),
        "spilled_bytes": int(spills[1]) + int(spills[2]),
        "shared_bytes": compiled.metadata.shared,
        "instructions": round(len(operations) / per_warp, 2),
        "mufu": round(sum(operation.startswith("MUFU") for operation in operations) / per_warp, 2),
    }


def main() -> None:
    """Parse, compile, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", type=int, nargs="+", default=[80, 90], help="compute capabilities (default: 80 90)")
    parser.add_argument("--width", type=int, nargs="+", default=[64, 192], help="channels a head (default: 64 192)")
    parser.add_argument("--activation", choices=ACTIVATIONS, nargs="+", default=list(ACTIVATIONS), help="default: all")
    parser.add_argument("--exp-on-fma", action="store_true", help="the polynomial exp, where there is a pair norm")
    parser.add_argument("--json", type=Path, help="append a JSON line a kernel and tile to this file")
    given = parser.parse_args()
    norms = [True] if given.exp_on_fma else [True, False]
    row = "{:24} {:>4} {:>5} {:>5} {:>5} {:>9} {:>5} {:>9} {:>7} {:>6} {:>12} {:>5}"
    print(
        row.format(
            "kernel",
            "sm",
            "D",
            "psi",
            "norm",
            "tile",
            "warps",
            "registers",
            "spilled",
            "shared",
            "instructions",
            "mufu",
        )
    )
    for arch in given.arch:
        for case in cases(given.width, given.activation, norms, given.exp_on_fma):
            found = compile_case(case, arch)
            tile = f"{found['rows']}x{found['cols']}"
            names = ("warps", "registers", "spilled_bytes", "shared_bytes", "instructions", "mufu")
            print(
                row.format(
                    *(str(found[name]) for name in ("kernel", "arch", "D", "activation")),
                    *("yes" if case.normed else "no", tile, *(str(found[name]) for name in names)),
                ),
                flush=True,
            )
            if given.json:
                with given.json.open("a") as file:
                    file.write(json.dumps(found | {"triton": triton.__version__}) + "\n")


if __name__ == "__main__":
    main()
