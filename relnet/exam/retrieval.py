"""Does a copying model look where the letter stands that it is to say? The share of steps in which its strongest relation is that place.

    read     <BOS> s_1 ... s_L <SEP> s_1 ... s_(L-1)
    say      s_k after the k-th token from <SEP> on; s_k stands at position k

Each block and head is a candidate, by each quantity of `nn.relation_map`. The best one is chosen on some strings and measured on others.
"""

import json
from dataclasses import asdict, dataclass

import torch

from relnet import nn
from relnet.exam.subject import evaluating
from relnet.tasks import Copying

# Strings at once.
AT_ONCE = 16


@dataclass(frozen=True)
class Retrieval:
    """The best block and head (from 0) by a quantity.

    chosen_share: of the steps on the strings that chose it, in which it was right; share: likewise on others, `steps` in all.
    """

    quantity: str
    block: int
    head: int
    chosen_share: float
    share: float
    steps: int
    format: int = 1

    def to_json(self) -> str:
        """The result as one line of JSON."""
        return json.dumps(asdict(self))


def retrieval(model: nn.SequenceModel, task: Copying, *, num: int = 64, seed: int = 0) -> list[Retrieval]:
    """Measure a model on `num` strings of the task's length to choose by, and `num` others; the best candidate a quantity, best first.

    seed: of the exam strings. ValueError for a model none of whose mixers relates pairs of positions.
    """
    choosing, measuring = (_hits(model, task, num, seed, index) for index in (0, num))
    if not choosing:
        raise ValueError("no mixer of this model relates pairs of positions; there are no maps of it")
    best: dict[str, tuple[str, int, int]] = {}
    for candidate, share in choosing.items():
        if candidate[0] not in best or share > choosing[best[candidate[0]]]:
            best[candidate[0]] = candidate
    found = [
        Retrieval(quantity, block, head, choosing[best[quantity]], measuring[best[quantity]], num * task.length)
        for quantity, block, head in best.values()
    ]
    return sorted(found, key=lambda one: -one.share)


def _hits(model: nn.SequenceModel, task: Copying, num: int, seed: int, index: int) -> dict[tuple[str, int, int], float]:
    """The share of steps that each candidate looks to the right place in, by quantity, block and head."""
    counts: dict[tuple[str, int, int], int] = {}
    device = next(model.parameters()).device
    with evaluating(model):
        for first in range(index, index + num, AT_ONCE):
            items = task.items(min(AT_ONCE, index + num - first), task.length, seed, first)
            ids = torch.cat([items.prompts, items.answers[:, : task.length - 1]], 1).to(device)
            wanted = torch.arange(1, task.length + 1, device=device)
            steps = slice(items.prompts.shape[1] - 1, ids.shape[1])
            for block, (mixer, x, mask) in enumerate(nn.mixer_inputs(model, ids)):
                for quantity in nn.quantities(mixer):
                    found = nn.relation_map(mixer, x, mask, targets=steps, quantity=quantity).argmax(-1)
                    for head, right in enumerate((found == wanted).sum((0, 2)).tolist()):
                        key = quantity, block, head
                        counts[key] = counts.get(key, 0) + right
    return {key: right / (num * task.length) for key, right in counts.items()}
