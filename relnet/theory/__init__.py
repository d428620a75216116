"""Theory made executable: models with weights set by hand that copy, what is proved of them, and what a state can hold."""

from relnet.theory.bounds import margin, most_tokens_converse_rn, most_tokens_rn, most_tokens_transformer, noise, votes
from relnet.theory.capacity import longest_string, longest_string_of, state_bits
from relnet.theory.checking import first_errors
from relnet.theory.copying_rn import CopyingRN
from relnet.theory.copying_transformer import CopyingTransformer
from relnet.theory.strings import (
    all_strings,
    de_bruijn,
    items,
    longest_without_repeat,
    repeat_bound,
    repeats,
    strings_without_repeat,
    uniform_strings,
)

__all__ = [
    "CopyingRN",
    "CopyingTransformer",
    "all_strings",
    "de_bruijn",
    "first_errors",
    "items",
    "longest_string",
    "longest_string_of",
    "longest_without_repeat",
    "margin",
    "most_tokens_converse_rn",
    "most_tokens_rn",
    "most_tokens_transformer",
    "noise",
    "repeat_bound",
    "repeats",
    "state_bits",
    "strings_without_repeat",
    "uniform_strings",
    "votes",
]
