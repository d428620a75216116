"""relnet generate."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from torch import Tensor

from relnet import nn, run, tasks
from relnet.commands.console import out, status
from relnet.train import choose_device

# New tokens where neither --max-new-tokens nor the model's context says how many.
MAX_NEW_TOKENS = 256


@dataclass(frozen=True)
class Generate:
    """Let a trained model go on from a prompt, token by token, and say how fast and with how large a state."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Folder of a finished run, or one that relnet export made."""
    prompt: str
    """Text to go on from; a run's own task says how it is read (copying: a string of letters a-z)."""
    max_new_tokens: int | None = None
    """Most tokens to say; default: 256, or what the model's context has room for."""
    temperature: float = 0.0
    """0: the most likely token; else logits are divided by it and a token is drawn."""
    top_k: int | None = None
    """Draw from the so many most likely tokens only."""
    top_p: float | None = None
    """Draw from the most likely tokens whose probabilities reach this together."""
    min_p: float | None = None
    """Draw from tokens with at least this share of the highest probability."""
    repetition_penalty: float = 1.0
    """Above 1: tokens that were there are less likely."""
    stop: tuple[int, ...] = ()
    """Tokens to stop at, beside the model's own end."""
    seed: int = 0
    """Of the draws."""
    chunk_tokens: int | None = None
    """Read the prompt in pieces of so many tokens: less memory, the same result."""
    device: str = "cpu"
    """auto, cpu, cuda, mps, or one GPU such as cuda:1."""

    def __call__(self) -> None:
        """Run the command."""
        if not self.prompt:
            raise ValueError("an empty prompt; give at least one character")
        model, ids, ends, decode = _open(self.run, self.prompt, self.device)
        context = model.config.context
        room = MAX_NEW_TOKENS if context is None else max(1, min(MAX_NEW_TOKENS, context - ids.shape[1] + 1))
        tokens = nn.stream(
            model,
            ids.to(choose_device(self.device)),
            room if self.max_new_tokens is None else self.max_new_tokens,
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
            stop_tokens=(*ends, *self.stop),
            seed=self.seed,
            chunk_tokens=self.chunk_tokens,
        )
        said, shown, began = [], "", time.perf_counter()
        first = began
        for token in tokens:
            first = first if said else time.perf_counter()
            said.append(int(token[0]))
            text = decode(torch.tensor(said))
            # Half a character of several bytes shows as U+FFFD until the rest is there.
            if text.startswith(shown) and not text.endswith("\ufffd"):
                out.print(text[len(shown) :], end="")
                shown = text
        out.print(decode(torch.tensor(said))[len(shown) :])
        rate = f"{(len(said) - 1) / (time.perf_counter() - first):,.0f} tokens/s" if len(said) > 1 else "one token"
        state = tokens.state
        assert state is not None
        status.print(
            f"{ids.shape[1]} tokens read in {first - began:.3f} s, {len(said)} said, {rate}; "
            f"state {state.nbytes:,} bytes, {state.nbytes_allocated:,} allocated"
        )


def _open(
    folder: Path, prompt: str, device: str
) -> tuple[nn.SequenceModel, Tensor, tuple[int, ...], Callable[[Tensor], str]]:
    """Return the model, the prompt's tokens (1, P), where to stop, and what turns tokens into text."""
    if not (folder / "log.jsonl").exists() and (folder / "config.json").exists():
        return _open_exported(folder, prompt, device)
    config, model = run.load(folder, device)
    # What a task is asked by is its own affair: a question of the exam, or plain text.
    task: Any = config.task
    ids = task.question(prompt).prompts if hasattr(task, "question") else task.encode(prompt)[None]
    if isinstance(task, tasks.LetterTask) and len(prompt) not in task.trained_lengths:
        first, last = task.trained_lengths[0], task.trained_lengths[-1]
        trained = f"exactly {last}" if first == last else f"{first} to {last}"
        status.print(f"trained on strings of {trained} letters; {prompt!r} has {len(prompt)}")
    return model, ids, (task.eos,) if hasattr(task, "eos") else (), task.decode


def _open_exported(
    folder: Path, prompt: str, device: str
) -> tuple[nn.SequenceModel, Tensor, tuple[int, ...], Callable[[Tensor], str]]:
    from relnet import hf

    model, tokenizer = hf.load(folder)
    model.model.to(choose_device(device))
    # tokenizers raises plain Exceptions.
    try:
        ids = tokenizer(prompt, return_tensors="pt").input_ids.long()
    except Exception:
        unknown = ", ".join(repr(letter) for letter in sorted(set(prompt)) if not _has_token(tokenizer, letter))
        raise ValueError(f"{prompt!r} holds {unknown}: the model has no token for it") from None
    ends = model.generation_config.eos_token_id
    ends = () if ends is None else (ends,) if isinstance(ends, int) else tuple(ends)
    return model.model, ids, ends, lambda tokens: tokenizer.decode(tokens.tolist())


def _has_token(tokenizer: Any, letter: str) -> bool:
    try:
        tokenizer(letter)
    except Exception:
        return False
    return True
