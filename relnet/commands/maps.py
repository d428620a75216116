"""Relation maps of a run, drawn and written beside it: what relnet inspect shows and the sweep of figure 8 ends with."""

import io
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from relnet import nn, report, run, tasks
from relnet.commands.console import out
from relnet.train import choose_device


def image_maps(
    place: Path,
    paths: Sequence[Path],
    held_out: Sequence[int],
    blocks: Sequence[int] = (),
    quantity: nn.Quantity = "strength",
    device: str = "cpu",
    figure: Path | None = None,
    note: str = "",
) -> None:
    """Say what a run makes of images; draw its maps of <CLS>, without <CLS> itself, and write them as arrays beside the figure.

    paths: image files; held_out: numbers of the run's own images; blocks: from 1, () all; figure: default in the run's
    folder maps/, where `relnet report` looks, and a copy of another one goes; note: below its title.
    """
    config, task, model = run.load_images(place, device)
    pictures: list[tuple[str, np.ndarray, int | None]] = [
        (tasks.readable_name(path.stem), task.read(path), None) for path in paths
    ]
    for number in held_out:
        if not 0 <= number < task.num_held_out:
            raise ValueError(f"--held-out {number}: images 0 to {task.num_held_out - 1} are held out")
        pictures.append((f"held-out-{number}", *task.held_out_image(number)))
    inputs = task.encode(np.stack([pixels for _, pixels, _ in pictures])).to(choose_device(device))
    with torch.no_grad():
        probabilities = model(inputs).double().softmax(-1).cpu().numpy()
    grid = task.seen.height // task.patch, task.seen.width // task.patch
    # One target, <CLS>, which stands behind the patches.
    maps = {
        block: values[:, :, 0, :-1].reshape(*values.shape[:2], *grid)
        for block, values in block_maps(place, model, inputs, blocks, quantity, cls=True).items()
    }
    rows = []
    for number, (name, pixels, label) in enumerate(pictures):
        chances = list(zip(task.classes, probabilities[number].tolist(), strict=True))
        said, share = max(chances, key=lambda one: one[1])
        truth = "" if label is None else f" (is {task.classes[label]})"
        out.print(f"{name}: {said} {share:.1%}{truth}")
        # The mean over heads; the arrays keep each.
        seen = [(f"block {block}", values[number].mean(0)) for block, values in maps.items()]
        rows.append(report.ImageMaps(f"{name}{truth}", pixels, seen, chances))
    name = pictures[0][0] if len(pictures) == 1 else "images"
    # As wide as the panel: of its columns, one a map and two more, each has room for so many letters.
    below = textwrap.wrap(note, 22 * (len(maps) + 2))
    title = "\n".join([f"{config.name}: {quantity} of patches for <CLS>", *below])
    drawn = report.image_panel(figure or place / "maps" / f"{name}.png", rows, title)
    if figure is not None:
        _copy_once(drawn, place / "maps" / figure.name)
    arrays = {
        "names": np.array([name for name, _, _ in pictures]),
        "pixels": np.stack([pixels for _, pixels, _ in pictures]),
        "probabilities": probabilities,
    }
    out.print(f"maps: {drawn}, {save_maps(drawn, maps, quantity, **arrays)}")


def _copy_once(file: Path, path: Path) -> None:
    """Copy a file under this name, or another where that is taken, unless it is there."""
    path.parent.mkdir(exist_ok=True)
    content = file.read_bytes()
    if all(one.read_bytes() != content for one in path.parent.glob(f"{path.stem}*{path.suffix}")):
        report.write_new(path, content)


def block_maps(
    place: Path,
    model: torch.nn.Module,
    inputs: Tensor,
    blocks: Sequence[int],
    quantity: nn.Quantity,
    cls: bool = False,
) -> dict[int, np.ndarray]:
    """The map of each block that is asked for, (B, heads, targets, sources); cls: of the last position alone, over the others."""
    given = nn.mixer_inputs(model, inputs)
    found = {}
    for block in blocks or range(1, len(given) + 1):
        if not 1 <= block <= len(given):
            raise ValueError(f"--block {block}: this model has blocks 1 to {len(given)}")
        mixer, x, mask = given[block - 1]
        if not blocks and quantity not in nn.quantities(mixer):
            continue
        sources = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        sources[:, -1] = not cls
        last = slice(x.shape[1] - 1, None) if cls else slice(None)
        found[block] = nn.relation_map(mixer, x, mask, sources=sources, targets=last, quantity=quantity).cpu().numpy()
    if not found:
        raise ValueError(f"{place}: none of its blocks has a {quantity} of pairs of positions")
    return found


def save_maps(figure: Path, maps: dict[int, np.ndarray], quantity: str, **others: Any) -> Path:
    """Write the arrays beside the figure, under its name; return the file."""
    path = figure.with_suffix(".npz")
    arrays: dict[str, Any] = {f"block_{block}": values for block, values in maps.items()}
    file = io.BytesIO()
    np.savez(file, quantity=np.array(quantity), **arrays, **others)
    return report.write_new(path, file.getvalue())
