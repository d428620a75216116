"""A later token changes no bit of an earlier output."""

import pytest
import torch

from relnet import ops
from tests.assertions import assert_same_bits
from tests.nn.cases import CAUSAL, MODELS, VOCAB_SIZE, WIDTH, make_mixer, make_model, random_ids, random_values


@pytest.mark.parametrize("size", [1.0, 1e4], ids=["like the others", "large"])
@pytest.mark.parametrize("length", [2, 17, 64, 130])
@pytest.mark.parametrize("name", CAUSAL)
def test_a_later_token_changes_no_bit_of_an_earlier_output(name, length, size):
    mixer = make_mixer(CAUSAL[name])
    x = random_values(2, length, WIDTH)
    with torch.no_grad():
        y, _ = mixer(x)
        for changed in sorted({1, length // 3, length // 2, length - 1} - {0}):
            later = x.clone()
            later[:, changed:] = size * random_values(2, length - changed, WIDTH, seed=changed)
            later_y, _ = mixer(later)
            assert_same_bits(later_y[:, :changed], y[:, :changed])
            assert not torch.equal(later_y[:, changed], y[:, changed])


@pytest.mark.parametrize("name", CAUSAL)
def test_a_later_token_changes_no_bit_of_an_earlier_output_under_masks_and_states(name):
    mixer = make_mixer(CAUSAL[name])
    x, mask = random_values(3, 70, WIDTH), torch.rand(3, 70, generator=torch.Generator().manual_seed(3)) < 0.7
    mask[:, 50] = True
    changed = x.clone()
    changed[:, 50:] = random_values(3, 20, WIDTH, seed=1)
    for with_mask in (mask, None):
        first = None if with_mask is None else mask[:, :30]
        rest = None if with_mask is None else mask[:, 30:]
        _, state = mixer(x[:, :30], None, first)
        y, later_y = mixer(x[:, 30:], state, rest)[0], mixer(changed[:, 30:], state, rest)[0]
        assert_same_bits(later_y[:, :20], y[:, :20])
        assert not torch.equal(later_y[:, 20], y[:, 20])


@pytest.mark.parametrize("name", CAUSAL)
def test_an_earlier_output_sends_no_gradient_to_a_later_token(name):
    mixer = make_mixer(CAUSAL[name])
    x = random_values(2, 70, WIDTH).requires_grad_()
    mixer(x)[0][:, :40].square().sum().backward()
    assert not x.grad[:, 40:].any()
    assert x.grad[:, :40].any(-1).all()


@pytest.mark.parametrize("name", MODELS)
def test_a_later_token_changes_no_bit_of_a_models_earlier_logits(name):
    model = make_model(name)
    ids = random_ids(2, 33)
    logits, _ = model(ids)
    for changed in (1, 16, 32):
        later = ids.clone()
        later[:, changed:] = (ids[:, changed:] + 1) % VOCAB_SIZE
        later_logits, _ = model(later)
        assert_same_bits(later_logits[:, :changed], logits[:, :changed])
        assert not torch.equal(later_logits[:, changed], logits[:, changed])


@pytest.mark.parametrize("name", CAUSAL)
def test_the_definitions_are_causal_too(name):
    mixer = make_mixer(CAUSAL[name])
    x = random_values(2, 20, WIDTH)
    later = x.clone()
    later[:, 10:] += 1.0
    with ops.use_reference():
        assert_same_bits(mixer(later)[0][:, :10], mixer(x)[0][:, :10])
