"""Tiny models of transformers, and a letter-by-letter tokenizer, saved as a user would have them."""

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from relnet import exam

SYMBOLS = [chr(code) for code in range(32, 127)]


def tiny(kind, vocab_size=29, context=64):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return exam.untrained(kind, vocab_size, context, width=32, depth=2)


def save(model, folder, lost=""):
    """Save a model and a tokenizer of printable ASCII and line ends, without the symbols `lost`."""
    model.model.save_pretrained(folder)
    # As byte-level tokenizers write a blank and a line's end.
    names = {" ": "Ġ", "\n": "Ċ"}
    vocabulary = ["<unk>", *(names.get(symbol, symbol) for symbol in [*SYMBOLS, "\n"] if symbol not in lost)]
    words = models.WordLevel({name: number for number, name in enumerate(vocabulary)}, unk_token="<unk>")
    tokenizer = Tokenizer(words)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False), pre_tokenizers.Split("", "isolated")]
    )
    tokenizer.decoder = decoders.ByteLevel()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>").save_pretrained(folder)
