"""relnet inspect."""

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro

from relnet import exam, nn, report, run, tasks
from relnet.commands.console import out
from relnet.commands.maps import block_maps, image_maps, save_maps
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
            image_maps(self.run, self.image, self.held_out, self.block, self.quantity, self.device)
        if self.text is not None or self.retrieval is not None:
            config, model = run.load(self.run, self.device)
            if self.text is not None:
                self._text(config.task, model, self.text)
            if self.retrieval is not None:
                self._retrieval(config.task, model, self.retrieval)

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
        inputs = ids.to(choose_device(self.device))
        maps = {
            block: values[0] for block, values in block_maps(self.run, model, inputs, self.block, self.quantity).items()
        }
        figure = report.text_panel(
            self.run / "maps" / "text.png",
            tokens,
            [(f"block {block}", values.mean(0)) for block, values in maps.items()],
            f"{self.quantity} of each source (column) for each target (row)",
        )
        out.print(f"maps: {figure}, {save_maps(figure, maps, self.quantity, ids=ids[0].numpy())}")

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
