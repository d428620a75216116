"""Whether a model copies given strings: teacher-forced in chunks, so that strings of any length fit into memory.

N = strings, L = letters of a string
"""

import torch
from torch import Tensor, nn

from relnet.theory.strings import items


def first_errors(model: nn.Module, strings: Tensor, chunk: int = 1024) -> Tensor:
    """Return where the model, asked to copy, first goes wrong: (N,) int64, L for <EOS>, -1 where all is right, <EOS> included.

    model: of the signature of `nn.SequenceModel`; strings: (N, L) letters from 0; chunk: tokens a call, the state handed on.
    Free-running goes wrong at the same place: until then it reads the same tokens. ValueError for a chunk under 1.

    >>> from relnet.theory import CopyingRN
    >>> first_errors(CopyingRN(n=2).build(), torch.tensor([[7, 4, 11, 11, 14], [0, 1, 2, 0, 1]])) < 0
    tensor([ True, False])
    """
    if chunk < 1:
        raise ValueError(f"chunk={chunk}; at least 1 wanted")
    asked = items(strings)
    first = asked.prompts.shape[1] - 1
    ids = torch.cat([asked.prompts, asked.answers[:, :-1]], dim=1)
    said, state = [], None
    with torch.no_grad():
        for part in ids.split(chunk, dim=1):
            logits, state = model(part, state)
            said.append(logits.argmax(-1))
    wrong = torch.cat(said, dim=1)[:, first:] != asked.answers
    return torch.where(wrong.any(1), wrong.long().argmax(1), -1)
