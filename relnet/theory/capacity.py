"""What a state can hold: the lower bound of "Repeat After Me" against the states that models really keep.

A model that copies uniform strings of L letters with error <= 1/2 has a state of at least L log2(a) - 1 bits after it has read them:
what it answers is a function of its state, and there are a^L answers to give. Source: arXiv 2402.01032, section 2.
"""

import math

import torch

from relnet import nn
from relnet.tasks import Copying


def state_bits(model: nn.SequenceModel, num_tokens: int) -> int:
    """Return the bits of the state that the model keeps after so many tokens, a row, measured; ValueError where it takes fewer.

    >>> config = nn.ModelConfig(29, width=16, depth=2, context=64, mixer=nn.LinearCausalRNConfig())
    >>> state_bits(nn.SequenceModel(config), 10) == state_bits(nn.SequenceModel(config), 64)
    True
    """
    if num_tokens < 1:
        raise ValueError(f"num_tokens={num_tokens}; at least 1 wanted")
    with torch.no_grad():
        _, state = model(torch.full((1, num_tokens), Copying.FIRST_LETTER))
    assert state is not None
    return 8 * state.nbytes


def longest_string(bits: int, alphabet: int = 26) -> float:
    """Return the largest L with L log2(a) - 1 <= bits: longer uniform strings are copied wrong more often than not.

    inf for an alphabet of one letter, ValueError for less than one, and for bits under 0.

    >>> longest_string(bits=46)
    9
    """
    if alphabet < 1 or bits < 0:
        raise ValueError(f"alphabet={alphabet}, bits={bits}; at least one letter and 0 bits wanted")
    return math.inf if alphabet == 1 else math.floor((bits + 1) / math.log2(alphabet))


def longest_string_of(model: nn.SequenceModel, alphabet: int = 26) -> float:
    """Return the longest string that the lower bound allows a model: inf where its state grows faster than strings need.

    The state after `<BOS> string <SEP>` counts. Measured at lengths of 14 and 30: states of this library are constant or grow linearly.

    >>> config = nn.ModelConfig(29, width=16, depth=2, context=64, mixer=nn.LinearCausalRNConfig())
    >>> longest_string_of(nn.SequenceModel(config))
    245
    """
    short, long = state_bits(model, 16), state_bits(model, 32)
    growth = (long - short) / 16
    if growth >= math.log2(alphabet):
        return math.inf
    # Of 16 tokens two are delimiters.
    constant = short - 14 * growth
    return math.floor((constant + 1) / (math.log2(alphabet) - growth))
