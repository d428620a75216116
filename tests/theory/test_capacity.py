import math

import pytest
import torch

from relnet import nn, theory

MIXERS = {
    "causalrn": (nn.CausalRNConfig(), 16),
    "attention": (nn.AttentionConfig(), 32),
    "linear causalrn": (nn.LinearCausalRNConfig(), 0),
    "linear attention": (nn.LinearAttentionConfig(), 0),
    "lstm": (nn.LSTMConfig(), 0),
}


def model(mixer, width=16, context=64):
    torch.manual_seed(0)
    return nn.SequenceModel(nn.ModelConfig(29, width=width, depth=2, context=context, mixer=mixer))


@pytest.mark.parametrize("name", MIXERS)
def test_a_state_grows_by_what_the_mixer_keeps_of_a_token(name):
    mixer, numbers = MIXERS[name]
    built = model(mixer)
    assert theory.state_bits(built, 40) - theory.state_bits(built, 30) == 10 * 2 * 32 * numbers
    assert theory.state_bits(built, 30) > 0


def test_the_longest_string_is_the_last_that_the_bound_allows():
    for bits in (0, 1, 46, 1_000):
        for alphabet in (2, 26):
            length = theory.longest_string(bits, alphabet)
            assert bits >= length * math.log2(alphabet) - 1
            assert bits < (length + 1) * math.log2(alphabet) - 1
    assert theory.longest_string(0, alphabet=1) == math.inf


@pytest.mark.parametrize("name", MIXERS)
def test_what_grows_has_no_limit_and_what_does_not_has_that_of_its_bits(name):
    mixer, numbers = MIXERS[name]
    built = model(mixer)
    expected = math.inf if numbers else theory.longest_string(theory.state_bits(built, 5))
    assert theory.longest_string_of(built) == expected


def test_a_state_that_grows_slower_than_strings_has_a_limit():
    built = model(nn.CausalRNConfig(hidden=1), width=2)
    # Two numbers of 32 bits a token against letters of 70 bits.
    alphabet = 2**70
    length = theory.longest_string_of(built, alphabet)
    assert 64 * (length + 2) >= 70 * length - 1
    assert 64 * (length + 3) < 70 * (length + 1) - 1


def test_a_model_that_is_measured_stays_in_its_mode():
    built = model(nn.LSTMConfig()).train()
    theory.state_bits(built, 3)
    assert built.training


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.state_bits(model(nn.LSTMConfig()), 0), "num_tokens=0"),
        (lambda: theory.state_bits(model(nn.LSTMConfig()), 65), "at most 64"),
        (lambda: theory.longest_string(-1), "bits=-1"),
        (lambda: theory.longest_string(8, alphabet=0), "alphabet=0"),
    ],
)
def test_what_cannot_be_asked_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
