"""relnet inspect."""

import io
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import tyro
from torch import Tensor

from relnet import exam, nn, report, run, tasks
from relnet.commands.console import out
from relnet.train import choose_device


@dataclass(frozen=True)
class Inspect:
    """Show where a trained model looks: relation maps of its blocks, as a PNG and as arrays in RUN/maps, where relnet report finds them."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Folder of a finished run."""
    image: tuple[Path, ...] = ()
    """Images to classify, brought to the size of the run's; the maps are those of <CLS>, without <CLS> itself."""
    held_out: tuple[int, ...] = ()
    """Images held out of the run's own data, by number from 0."""
    text: str | None = None
    """Causal models: a text, or letters to copy, repeated or cut to the trained length; the maps have a row for each target."""
    retrieval: int | None = None
    """Copying: on so many strings, how often the strongest relation is where the letter to be said stands."""
    block: tuple[int, ...] = ()
    """Blocks to look at, from 1; default: all."""
    quantity: nn.Quantity = "strength"
    """strength: a source's share in the sum of the pairs' norms (the paper's); scale: what the exact pair norm multiplies a pair by."""
    device: str = "cpu"
    """auto, cpu, cuda, mps, or one GPU such as cuda:1."""

    def __call__(self) -> None:
        """Run the command."""
        if not (self.image or self.held_out or self.text is not None or self.retrieval is not None):
            raise ValueError(
                "nothing to look at; give --image FILE, --held-out NUMBER, --text TEXT or --retrieval STRINGS"
            )
        if self.image or self.held_out:
            self._images()
        if self.text is not None or self.retrieval is not None:
            config, model = run.load(self.run, self.device)
            if self.text is not None:
                self._text(config.task, model, self.text)
            if self.retrieval is not None:
                self._retrieval(config.task, model, self.retrieval)

    def _images(self) -> None:
        config, task, model = run.load_images(self.run, self.device)
        pictures: list[tuple[str, np.ndarray, int | None]] = [
            (tasks.readable_name(path.stem), task.read(path), None) for path in self.image
        ]
        for number in self.held_out:
            if not 0 <= number < task.num_held_out:
                raise ValueError(f"--held-out {number}: images 0 to {task.num_held_out - 1} are held out")
            pictures.append((f"held-out-{number}", *task.held_out_image(number)))
        inputs = task.encode(np.stack([pixels for _, pixels, _ in pictures])).to(choose_device(self.device))
        with torch.no_grad():
            probabilities = model(inputs).double().softmax(-1).cpu().numpy()
        grid = task.seen.height // task.patch, task.seen.width // task.patch
        # One target, <CLS>, which stands behind the patches.
        maps = {
            block: values[:, :, 0, :-1].reshape(*values.shape[:2], *grid)
            for block, values in self._maps(model, inputs, cls=True).items()
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
        figure = report.image_panel(
            self.run / "maps" / f"{name}.png", rows, f"{config.name}: {self.quantity} of patches for <CLS>"
        )
        arrays = {
            "names": np.array([name for name, _, _ in pictures]),
            "pixels": np.stack([pixels for _, pixels, _ in pictures]),
            "probabilities": probabilities,
        }
        out.print(f"maps: {figure}, {_saved(figure, maps, self.quantity, **arrays)}")

    def _maps(self, model: torch.nn.Module, inputs: Tensor, cls: bool = False) -> dict[int, np.ndarray]:
        """The map of each block that is asked for, (B, heads, targets, sources); cls: of the last position alone, over the others."""
        given = nn.mixer_inputs(model, inputs)
        wanted = self.block or range(1, len(given) + 1)
        found = {}
        for block in wanted:
            if not 1 <= block <= len(given):
                raise ValueError(f"--block {block}: this model has blocks 1 to {len(given)}")
            mixer, x, mask = given[block - 1]
            if not self.block and self.quantity not in nn.quantities(mixer):
                continue
            sources = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
            sources[:, -1] = not cls
            last = slice(x.shape[1] - 1, None) if cls else slice(None)
            found[block] = (
                nn.relation_map(mixer, x, mask, sources=sources, targets=last, quantity=self.quantity).cpu().numpy()
            )
        if not found:
            raise ValueError(f"{self.run}: none of its blocks has a {self.quantity} of pairs of positions")
        return found

    def _text(self, task: Any, model: nn.SequenceModel, text: str) -> None:
        if isinstance(task, tasks.Copying):
            if task.layout == "cui2024":
                # It has learnt strings of this length only.
                text = "".join(itertools.islice(itertools.cycle(text), task.length))
            items = task.question(text)
            ids = torch.cat([items.prompts, items.answers], 1)[:, :-1]
            tokens = [task.decode(ids[0, place : place + 1]) for place in range(ids.shape[1])]
        elif isinstance(task, tasks.Text):
            ids = task.encode(text)[None]
            tokens = [task.decode(ids[0, place : place + 1]) for place in range(ids.shape[1])]
        else:
            raise ValueError(f"{self.run} is a run on {task.name}; --text takes runs on copying or on a text")
        maps = {block: values[0] for block, values in self._maps(model, ids.to(choose_device(self.device))).items()}
        figure = report.text_panel(
            self.run / "maps" / "text.png",
            tokens,
            [(f"block {block}", values.mean(0)) for block, values in maps.items()],
            f"{self.quantity} of each source (column) for each target (row)",
        )
        out.print(f"maps: {figure}, {_saved(figure, maps, self.quantity, ids=ids[0].numpy())}")

    def _retrieval(self, task: Any, model: nn.SequenceModel, num: int) -> None:
        if not isinstance(task, tasks.Copying):
            raise ValueError(f"{self.run} is a run on {task.name}; --retrieval takes runs on copying")
        if num < 1:
            raise ValueError(f"--retrieval {num}: at least 1 string wanted")
        for found in exam.retrieval(model, task, num=num):
            exam.append_row(found, self.run / "retrieval.jsonl")
            out.print(
                f"{found.quantity}: in block {found.block + 1}, head {found.head + 1}, the strongest relation is where the letter to say "
                f"stands in {found.share:.1%} of {found.steps:,} steps ({found.chosen_share:.1%} on the strings it was chosen by)"
            )


def _saved(figure: Path, maps: dict[int, np.ndarray], quantity: str, **others: Any) -> Path:
    """Write the arrays beside the figure, under its name; return the file."""
    path = figure.with_suffix(".npz")
    arrays: dict[str, Any] = {f"block_{block}": values for block, values in maps.items()}
    file = io.BytesIO()
    np.savez(file, quantity=np.array(quantity), **arrays, **others)
    return report.write_new(path, file.getvalue())
