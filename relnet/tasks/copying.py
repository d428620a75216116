"""Copying: say a string of random letters again.

    <BOS> string <SEP> string <EOS>

Sources: arXiv 2406.16168 section 4; arXiv 2402.01032 section 3.
"""

from dataclasses import dataclass

import torch

from relnet.tasks.draws import Stream
from relnet.tasks.letters import LetterTask, Part
from relnet.tasks.task import Items


@dataclass(frozen=True)
class Copying(LetterTask):
    """The copying task; length counts the string's letters. Options and refusals: `LetterTask`.

    With `cui2024` the loss is on the second string and <EOS>:

    >>> Copying(length=3).show()
     0 <BOS>
     0 a
     0 g
     0 c
     0 <SEP> a
     0 a     g
     0 g     c
     0 c     <EOS>

    With `jelassi2024` it is on the answers only; the examples of a row see each other:

    >>> Copying(length=2, layout="jelassi2024", max_context=13).show(index=2)
     0 <BOS>
     0 l
     0 h
     0 <SEP> l
     0 l     h
     0 h     <EOS>
     0 <EOS>
    -1 <EOS>
    -1 <EOS>
    -1 <EOS>
    -1 <EOS>
    -1 <EOS>
    -1 <EOS>

    >>> task = Copying(length=5)
    >>> whole, last = task.sample(4, seed=1, index=0), task.sample(1, seed=1, index=3)
    >>> torch.equal(whole.inputs[3:], last.inputs)
    True
    >>> items = task.items(num=1, length=3, seed=0)
    >>> print(task.decode(items.prompts[0]), task.decode(items.answers[0]))
    <BOS>sqn<SEP> sqn<EOS>
    >>> task.encode("hello")
    tensor([10,  7, 14, 14, 17])
    >>> task.decode(torch.tensor([0, 10, 7, 31, 2, -1]))
    '<BOS>he<31><EOS>'
    >>> targets = task.sample(2, seed=0, index=0).targets
    >>> task.accuracy(targets, targets)
    tensor([1., 1.], dtype=torch.float64)
    """

    @property
    def kind(self) -> str:
        """copying."""
        return "copying"

    @property
    def rows(self) -> str:
        """What a row of a batch is, in words."""
        return f"strings of {self.length}"

    def size(self, length: int) -> int:
        """<BOS>, the string, <SEP>, the string, <EOS>."""
        return 2 * length + 3

    def draw(self, stream: Stream, length: int) -> list[Part]:
        """A string of uniform letters."""
        return self._pose(self.letters(stream, length))

    def _pose(self, string: list[int]) -> list[Part]:
        return [([self.BOS, *string, self.SEP], string)]

    def question(self, text: str) -> Items:
        """The exam item that a string of the user's poses; ValueError where it is empty or holds other than a to z."""
        ((given, answer),) = self._pose(self.encode(text).tolist())
        return Items(torch.tensor([given]), torch.tensor([[*answer, self.EOS]]))
