"""One sequence fed in many ways gives one result: logits, and gradients through the states.

Everything is compared with one unpadded call in float64: float64 to rounding, float32 to 1e-5.
"""

from collections.abc import Callable
from functools import cache, partial

import pytest
import torch
from torch import Tensor

from relnet import nn
from tests.assertions import assert_close
from tests.nn.cases import BIDIRECTIONAL, CAUSAL, MODELS, WIDTH, make_mixer, make_model, random_ids, random_values

NUM_ROWS, LENGTH = 3, 13
# Rows 0 and 1 are beams: they part after SHARED tokens.
SHARED = 6
TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5}
JUNK = 2**40


def sequences() -> Tensor:
    ids = random_ids(NUM_ROWS, LENGTH)
    ids[1, :SHARED] = ids[0, :SHARED]
    return ids


def call(model: nn.SequenceModel, ids: Tensor, sizes: tuple[int, ...], mask: Tensor | None = None) -> Tensor:
    logits, state = [], None
    masks = [None] * len(sizes) if mask is None else mask.split(sizes, 1)
    for chunk, chunk_mask in zip(ids.split(sizes, 1), masks, strict=True):
        chunk_logits, state = model(chunk, state, chunk_mask)
        logits.append(chunk_logits)
    return torch.cat(logits, 1)


def chunked(*sizes: int) -> Callable[[nn.SequenceModel, Tensor], Tensor]:
    return lambda model, ids: call(model, ids, sizes)


def spread(ids: Tensor, mask: Tensor, junk: int) -> Tensor:
    """Put each row of ids at the real places of its mask, junk at the others."""
    return torch.full(mask.shape, junk).masked_scatter(mask, ids)


def left(num_rows: int = NUM_ROWS, length: int = LENGTH) -> Tensor:
    """Pads before the tokens, row k having 3 k of them, at least one, others after."""
    starts = 1 + 3 * torch.arange(num_rows)[:, None]
    at = torch.arange(length + 3 * num_rows)
    return (at >= starts) & (at < starts + length)


def right() -> Tensor:
    return torch.arange(LENGTH + 5).expand(NUM_ROWS, -1) < LENGTH


def inner() -> Tensor:
    """Pads anywhere, another pattern in each row."""
    order = torch.rand(NUM_ROWS, LENGTH + 9, generator=torch.Generator().manual_seed(5)).argsort(1)
    return torch.zeros(NUM_ROWS, LENGTH + 9, dtype=torch.bool).scatter(1, order[:, :LENGTH], True)


def padded(mask: Tensor, *sizes: int) -> Callable[[nn.SequenceModel, Tensor], Tensor]:
    def way(model: nn.SequenceModel, ids: Tensor) -> Tensor:
        logits = call(model, spread(ids, mask, JUNK), sizes or (mask.shape[1],), mask)
        return logits[mask].unflatten(0, ids.shape)

    return way


def mask_from_the_second_call_on(model: nn.SequenceModel, ids: Tensor) -> Tensor:
    first, state = model(ids[:, :4])
    mask = left(length=LENGTH - 4)
    rest, _ = model(spread(ids[:, 4:], mask, -JUNK), state, mask)
    return torch.cat([first, rest[mask].unflatten(0, (NUM_ROWS, -1))], 1)


def mask_in_the_first_call_only(model: nn.SequenceModel, ids: Tensor) -> Tensor:
    mask = left(length=4)
    first, state = model(spread(ids[:, :4], mask, -JUNK), None, mask)
    return torch.cat([first[mask].unflatten(0, (NUM_ROWS, -1)), model(ids[:, 4:], state)[0]], 1)


def row_by_row(model: nn.SequenceModel, ids: Tensor, masked: bool) -> Tensor:
    masks = [torch.ones(1, LENGTH, dtype=torch.bool) if masked else None] * len(ids)
    return torch.cat([model(row[None], None, mask)[0] for row, mask in zip(ids, masks, strict=True)])


def reordered(model: nn.SequenceModel, ids: Tensor, masked: bool) -> Tensor:
    """Two parents, three beams, then the beams again in another order."""
    parents, beams, order = torch.tensor([2, 0]), torch.tensor([1, 1, 0]), torch.tensor([2, 0, 1])
    mask = torch.ones(2, SHARED, dtype=torch.bool) if masked else None
    first, state = model(ids[parents, :SHARED], None, mask)
    middle, state = model(ids[:, SHARED : SHARED + 3], state.select(beams))
    last, _ = model(ids[order, SHARED + 3 :], state.select(order))
    return torch.cat([first[beams], middle, last[order.argsort()]], 1)


WAYS: dict[str, Callable[[nn.SequenceModel, Tensor], Tensor]] = {
    "one call": chunked(LENGTH),
    "token by token": chunked(*[1] * LENGTH),
    "prompt of one token": chunked(1, LENGTH - 1),
    "one token more": chunked(LENGTH - 1, 1),
    "chunks": chunked(2, 5, 1, 5),
    "all real": padded(torch.ones(NUM_ROWS, LENGTH, dtype=torch.bool)),
    "left-padded": padded(left()),
    "right-padded": padded(right()),
    "inner-padded": padded(inner()),
    # Row 2 of left() starts with 7 pads: its first chunk has no real token.
    "left-padded in chunks": padded(left(), 4, 1, 8, 9),
    "inner-padded token by token": padded(inner(), *[1] * (LENGTH + 9)),
    "mask from the second call on": mask_from_the_second_call_on,
    "mask in the first call only": mask_in_the_first_call_only,
    "row by row": partial(row_by_row, masked=False),
    "row by row, masked": partial(row_by_row, masked=True),
    "reordered": partial(reordered, masked=False),
    "reordered, masked": partial(reordered, masked=True),
}


def logits_and_gradients(
    model: nn.SequenceModel, way: Callable[[nn.SequenceModel, Tensor], Tensor]
) -> tuple[Tensor, dict[str, Tensor]]:
    logits = way(model, sequences())
    names, parameters = zip(*model.named_parameters(), strict=True)
    cotangent = random_values(*logits.shape, dtype=logits.dtype)
    return logits, dict(zip(names, torch.autograd.grad(logits, parameters, cotangent), strict=True))


@cache
def expected(name: str) -> tuple[Tensor, dict[str, Tensor]]:
    return logits_and_gradients(make_model(name, torch.float64), lambda model, ids: model(ids)[0])


def check(name: str, way: str, dtype: torch.dtype) -> None:
    logits, gradients = logits_and_gradients(make_model(name, dtype), WAYS[way])
    expected_logits, expected_gradients = expected(name)
    assert_close(logits, expected_logits, TOLERANCES[dtype], "logits")
    for parameter, gradient in gradients.items():
        assert_close(gradient, expected_gradients[parameter], TOLERANCES[dtype], parameter)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MODELS)
def test_every_way_to_feed_a_sequence_gives_the_same_logits_and_gradients(name, way):
    check(name, way, torch.float64)


@pytest.mark.parametrize("way", ["one call", "chunks", "inner-padded", "reordered, masked"])
@pytest.mark.parametrize("name", MODELS)
def test_every_way_to_feed_a_sequence_gives_the_same_logits_and_gradients_in_single_precision(name, way):
    check(name, way, torch.float32)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", MODELS)
def test_every_way_to_feed_a_sequence_gives_the_same_logits_without_gradients(name, mode):
    """Without gradients states grow in place."""
    model = make_model(name, torch.float64)
    for way, feed in WAYS.items():
        with mode():
            logits = feed(model, sequences())
        assert_close(logits, expected(name)[0], TOLERANCES[torch.float64], way)


@pytest.mark.parametrize("name", CAUSAL)
def test_long_sequences_may_be_split_and_padded_anywhere(name):
    """130 tokens: over several blocks of pairs and chunks of sums."""
    mixer = make_mixer(CAUSAL[name], torch.float64)
    x = random_values(1, 130, WIDTH, dtype=torch.float64).requires_grad_()
    cotangent = random_values(1, 130, WIDTH, seed=1, dtype=torch.float64)
    leaves = [x, *mixer.parameters()]
    y, _ = mixer(x)
    gradients = torch.autograd.grad(y, leaves, cotangent)

    mask = torch.ones(1, 134, dtype=torch.bool)
    mask[0, [0, 1, 63, 100]] = False
    parts, state = [], None
    padded_x = x.new_zeros(1, 134, WIDTH).index_put((mask,), x[0])
    for chunk, chunk_mask in zip(padded_x.split((64, 1, 1, 68), 1), mask.split((64, 1, 1, 68), 1), strict=True):
        part, state = mixer(chunk, state, chunk_mask)
        parts.append(part)
    split = torch.cat(parts, 1)[mask][None]
    assert_close(split, y, 1e-12)
    for split_gradient, gradient in zip(torch.autograd.grad(split, leaves, cotangent), gradients, strict=True):
        assert_close(split_gradient, gradient, 1e-12)


@pytest.mark.parametrize("mask", [left(), right(), inner()], ids=["left", "right", "inner"])
@pytest.mark.parametrize("name", BIDIRECTIONAL)
def test_padding_and_batching_change_nothing_in_a_bidirectional_mixer(name, mask):
    mixer = make_mixer(BIDIRECTIONAL[name], torch.float64)
    x = random_values(NUM_ROWS, LENGTH, WIDTH, dtype=torch.float64).requires_grad_()
    cotangent = random_values(NUM_ROWS, LENGTH, WIDTH, seed=1, dtype=torch.float64)
    leaves = [x, *mixer.parameters()]
    y = torch.cat([mixer(row[None]) for row in x])
    gradients = torch.autograd.grad(y, leaves, cotangent)

    padded_x = x.new_full((*mask.shape, WIDTH), 7.0).index_put((mask,), x.flatten(0, 1))
    padded_y = mixer(padded_x, mask)
    assert not padded_y[~mask].any()
    padded_y = padded_y[mask].unflatten(0, (NUM_ROWS, LENGTH))
    assert_close(padded_y, y, 1e-12)
    for padded_gradient, gradient in zip(torch.autograd.grad(padded_y, leaves, cotangent), gradients, strict=True):
        assert_close(padded_gradient, gradient, 1e-12)
