"""A text task through a tokenizer: exam items as tokens.

A prompt and its answer are tokenised apart, so that what a model is to say never depends on how the two would merge. The
token that ends an answer is the first one of the task's stop text.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from relnet.tasks.scores import Scores, jelassi2024
from relnet.tasks.task import Items
from relnet.tasks.text_questions import TextTask


class Tokeniser:
    """A tokenizer as the exam uses it.

    encode: text to token numbers, without special tokens. decode: back, special tokens left out.
    vocab_size: ids lie below it. prefix: tokens before every prompt, such as a <BOS>. identity: no other tokenizer has it.
    """

    def __init__(
        self,
        encode: Callable[[str], list[int]],
        decode: Callable[[list[int]], str],
        vocab_size: int,
        prefix: tuple[int, ...] = (),
        identity: str = "",
    ) -> None:
        self.encode, self.decode, self.vocab_size, self.prefix = encode, decode, vocab_size, prefix
        self.identity = identity

    def spell(self, text: str) -> list[int]:
        """The tokens of a text; ValueError naming the symbols that the tokenizer does not have."""
        tokens = self.encode(text)
        # Some tokenizers put a blank in front of a text, or lose one.
        if self.decode(tokens).strip() != text.strip() or not tokens:
            # Between letters it knows, for some strip what stands at an end.
            lost = [symbol for symbol in sorted(set(text)) if symbol not in self.decode(self.encode(f"a{symbol}a"))]
            raise ValueError(
                f"the tokenizer cannot write {', '.join(map(repr, lost)) or repr(text[:40])}, which the task needs; "
                "take a model with another tokenizer"
            )
        return tokens

    def written(self, text: str) -> str:
        """The text as the tokenizer gives it back: some lower its letters, compose its accents, or leave out what they do not have."""
        return self.decode(self.encode(text))

    def first(self, stop: str) -> int:
        """The token that the text which ends an answer begins with; ValueError where the tokenizer cannot write it."""
        tokens = self.encode(stop)
        for number, token in enumerate(tokens, 1):
            # Some tokenizers put a blank in front of a text.
            if self.decode(tokens[:number]).lstrip(" ").startswith(stop[0]):
                return token
        raise ValueError(
            f"the tokenizer cannot write {stop!r}, which ends an answer; take a model with another tokenizer"
        )


class Tokenised:
    """A text task as a task of tokens: its items differ in their number of tokens, so they are asked for one at a time.

    Scores count tokens where the tasks over letters count letters. ValueError for a tokenizer that cannot write what the
    task needs, and for an answer that holds the token that ends it.

    >>> from relnet.tasks.text_questions import PhoneBook
    >>> spell = Tokeniser(lambda text: list(text.encode()), lambda tokens: bytes(tokens).decode(), vocab_size=256)
    >>> task = Tokenised(PhoneBook(), spell)
    >>> items = task.items(1, length=3, seed=0)
    >>> task.decode(items.answers[0]).splitlines()
    [' 8800533351']
    """

    scorer = "jelassi2024"

    def __init__(self, task: TextTask, tokeniser: Tokeniser) -> None:
        self.task, self.tokeniser = task, tokeniser
        self.name = task.name
        self.vocab_size = tokeniser.vocab_size
        self.eos = tokeniser.first(task.stop)

    def __repr__(self) -> str:
        return f"Tokenised({self.task!r}, {self.tokeniser.identity!r}, {self.tokeniser.prefix})"

    def items(self, num: int, length: int, seed: int, index: int = 0) -> Items:
        """Items index, ..., index + num - 1 of this length; ValueError where their numbers of tokens differ (ask one at a time)."""
        prompts, answers = [], []
        for question in self.task.questions(num, length, seed, index):
            answer = self.tokeniser.spell(question.answer)
            if self.eos in answer:
                raise ValueError(
                    f"the answer {question.answer[:40]!r} holds the token {self.eos} that ends an answer of {self.name}; "
                    "take a model with another tokenizer"
                )
            prompts.append([*self.tokeniser.prefix, *self.tokeniser.spell(question.prompt)])
            answers.append([*answer, self.eos])
        return Items(torch.tensor(prompts), torch.tensor(answers))

    def decode(self, ids: Tensor) -> str:
        """Tokens (S,) as text; IGNORE is left out."""
        return self.tokeniser.decode([token for token in ids.tolist() if token >= 0])

    def grade(self, scores: Scores) -> Tensor:
        """(N,) float64: 1 where every token of the answer is right."""
        return jelassi2024(scores)
