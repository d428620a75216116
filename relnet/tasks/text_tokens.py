"""What turns text into token numbers: its own bytes, or a Hugging Face tokenizer."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

# Stores hold unsigned integers of 16 bits.
LARGEST_VOCABULARY = 2**16


class Tokens(Protocol):
    """A way to tokens and back. `digest` names its content: the same digest, the same tokens."""

    vocab_size: int
    digest: str

    def encode(self, pieces: Sequence[bytes]) -> list[np.ndarray]:
        """Tokens (S,) int64 of each piece of UTF-8 text."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some tokens; what is no text by itself is shown as U+FFFD."""
        ...


class ByteTokens:
    """Each byte of the UTF-8 text is a token: no vocabulary to learn, 256 tokens.

    >>> ByteTokens().encode(["é".encode()])[0].tolist()
    [195, 169]
    """

    vocab_size = 256
    digest = "bytes"

    def encode(self, pieces: Sequence[bytes]) -> list[np.ndarray]:
        """Tokens (S,) uint8 of each piece."""
        return [np.frombuffer(piece, dtype=np.uint8) for piece in pieces]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some bytes."""
        return bytes(ids).decode(errors="replace")


class LearntTokens:
    """A tokenizer of the `tokenizers` library; special tokens are never added, nothing is cut or padded."""

    def __init__(self, tokenizer: Any, name: str):
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        # Not their number: a vocabulary may have gaps.
        self.vocab_size: int = max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1
        if self.vocab_size > LARGEST_VOCABULARY:
            raise ValueError(
                f"tokenizer {name} has {self.vocab_size:,} tokens; prepared text has room for {LARGEST_VOCABULARY:,}: "
                "take one with a smaller vocabulary, or bytes"
            )
        self.digest = hashlib.sha256(tokenizer.to_str().encode()).hexdigest()

    def encode(self, pieces: Sequence[bytes]) -> list[np.ndarray]:
        """Tokens (S,) int64 of each piece."""
        texts = [piece.decode() for piece in pieces]
        found = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        return [np.array(one.ids, dtype=np.int64) for one in found]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some tokens, special ones by name."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)


def load_tokens(name: str) -> Tokens:
    """Return the tokens of a name: "bytes", a tokenizer.json or the folder that holds it, or a name on the Hugging Face hub.

    ValueError where there is none, where it cannot be read, and for a vocabulary of more than 65,536 tokens.
    """
    if name == "bytes":
        return ByteTokens()
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise ValueError(f"tokenizer {name}: needs the extra hf: pip install 'relnet[hf]'; or take bytes") from None
    path = Path(name)
    file = path / "tokenizer.json" if path.is_dir() else path
    # tokenizers raises plain Exceptions.
    try:
        tokenizer = (
            Tokenizer.from_file(str(file)) if file.exists() or path.is_dir() else Tokenizer.from_pretrained(name)
        )
    except Exception as error:
        raise ValueError(
            f"tokenizer {name} cannot be had ({str(error).splitlines()[0]}): give bytes, a folder with a tokenizer.json, "
            "or, where there is a network, a name on the Hugging Face hub"
        ) from None
    return LearntTokens(tokenizer, name)
