"""What stands at a pad reaches nothing, and nothing at the edges of padding is NaN."""

import math

import pytest
import torch
from torch import Tensor

from tests.assertions import assert_same_bits
from tests.nn.cases import BIDIRECTIONAL, CAUSAL, MODELS, WIDTH, make_mixer, make_model, random_ids, random_values

# Left, right and inner pads, a row of pads alone, a row without.
MASK = torch.tensor(
    [
        [0, 0, 0, 1, 1, 1, 1, 1, 1],
        [1, 1, 1, 1, 1, 1, 1, 0, 0],
        [0, 1, 0, 0, 1, 1, 0, 1, 0],
        [0, 0, 0, 0, 0, 0, 0, 0, 0],
        [1, 1, 1, 1, 1, 1, 1, 1, 1],
    ],
    dtype=torch.bool,
)
JUNK = {"zeros": 0.0, "ones": 1.0, "huge": 3e38, "nan": math.nan, "inf": math.inf}
ALL_MIXERS = CAUSAL | {f"bidirectional-{name}": config for name, config in BIDIRECTIONAL.items()}


def mix(mixer, x: Tensor, mask: Tensor | None) -> Tensor:
    """Call a mixer on all tokens; a causal one on the last four by its state."""
    if not mixer.causal:
        return mixer(x, mask)
    masks = (None, None) if mask is None else (mask[:, :5], mask[:, 5:])
    first, state = mixer(x[:, :5], None, masks[0])
    return torch.cat([first, mixer(x[:, 5:], state, masks[1])[0]], 1)


def results(name: str, junk: float) -> list[Tensor]:
    """Outputs, the gradient of x, the gradients of all parameters."""
    mixer = make_mixer(ALL_MIXERS[name])
    x = random_values(*MASK.shape, WIDTH).masked_fill(~MASK[..., None], junk).requires_grad_()
    y = mix(mixer, x, MASK)
    # A loss of all outputs: those at pads are constants.
    return [y, *torch.autograd.grad(y, [x, *mixer.parameters()], random_values(*y.shape, seed=1))]


@pytest.mark.parametrize("junk", ["huge", "nan", "inf"])
@pytest.mark.parametrize("name", ALL_MIXERS)
def test_what_stands_at_a_pad_changes_no_bit_of_a_mixer(name, junk):
    for actual, expected in zip(results(name, JUNK[junk]), results(name, JUNK["ones"]), strict=True):
        assert actual.isfinite().all()
        assert_same_bits(actual, expected)


@pytest.mark.parametrize("name", ALL_MIXERS)
def test_a_mixer_gives_zero_and_takes_no_gradient_at_pads(name):
    y, x_grad, *_ = results(name, JUNK["nan"])
    assert not y[~MASK].any()
    assert not x_grad[~MASK].any()
    assert y[MASK].any(-1).all()


@pytest.mark.parametrize("name", MODELS)
def test_what_stands_at_a_pad_changes_no_bit_of_a_model(name):
    model = make_model(name)

    def results(junk: int) -> list[Tensor]:
        ids = random_ids(*MASK.shape).masked_fill(~MASK, junk)
        first, state = model(ids[:, :5], None, MASK[:, :5])
        logits = torch.cat([first, model(ids[:, 5:], state, MASK[:, 5:])[0]], 1)
        assert logits.isfinite().all()
        real = logits[MASK]
        return [real, *torch.autograd.grad(real, list(model.parameters()), random_values(*real.shape, seed=1))]

    expected = results(0)
    for junk in (10, -1, 2**62):
        for actual, value in zip(results(junk), expected, strict=True):
            assert_same_bits(actual, value)


@pytest.mark.parametrize("name", MODELS)
def test_a_loss_at_pads_too_stays_finite(name):
    model = make_model(name)
    logits, _ = model(random_ids(*MASK.shape), None, MASK)
    logits.square().sum().backward()
    assert logits.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def edge_rows() -> dict[str, Tensor]:
    x = random_values(3, 9, WIDTH)
    return {
        "equal tokens": x[:, :1].expand(-1, 9, -1),
        "equal channels": x[..., :1].expand(-1, -1, WIDTH),
        "zeros": torch.zeros_like(x),
        "large": 1e4 * x,
    }


# Without norms exp of large values overflows, as its formula does.
EDGES = [(name, rows) for name in ALL_MIXERS for rows in edge_rows() if "no-norms" not in name or rows != "large"]


@pytest.mark.parametrize(("name", "rows"), EDGES)
def test_rows_of_equal_or_large_values_give_finite_outputs_and_gradients(name, rows):
    mixer = make_mixer(ALL_MIXERS[name])
    x = edge_rows()[rows].clone().requires_grad_()
    y = mix(mixer, x, None)
    gradients = torch.autograd.grad(y, [x, *mixer.parameters()], random_values(*y.shape, seed=1))
    assert y.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("name", ALL_MIXERS)
def test_weights_of_zero_give_finite_outputs_and_gradients(name):
    """Every pair, every mean and every row is constant then."""
    mixer = make_mixer(ALL_MIXERS[name])
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.fill_(0.0)
        mixer.out.weight.fill_(0.5)
    x = random_values(*MASK.shape, WIDTH).requires_grad_()
    y = mix(mixer, x, MASK)
    gradients = torch.autograd.grad(y, [x, *mixer.parameters()], random_values(*y.shape, seed=1))
    assert y.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("name", MODELS)
def test_constant_embeddings_give_finite_logits_and_gradients(name):
    """Every norm sees a row of zero variance."""
    model = make_model(name)
    with torch.no_grad():
        model.embedding.weight.copy_(model.embedding.weight[:, :1].expand(-1, WIDTH))
        if model.position is not None:
            model.position.weight.fill_(0.25)
    logits, _ = model(random_ids(*MASK.shape), None, MASK)
    logits.square().sum().backward()
    assert logits.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
