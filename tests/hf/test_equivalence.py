"""One sequence given to the transformers model in many ways gives one result."""

from functools import cache

import pytest
import torch
from torch import Tensor

from relnet.hf import RelnetCache, RelnetForCausalLM
from tests.assertions import assert_close, assert_same_bits
from tests.hf.models import make_hf
from tests.nn.cases import MODELS, make_model, random_ids, random_values

LENGTHS = (13, 1, 9)
LONGEST = 16


def padded(side: str, junk: int) -> tuple[Tensor, Tensor]:
    """Rows of random ids of LENGTHS, padded to LONGEST."""
    ids, mask = torch.full((len(LENGTHS), LONGEST), junk), torch.zeros(len(LENGTHS), LONGEST, dtype=torch.int64)
    for row, length in enumerate(LENGTHS):
        at = slice(LONGEST - length, LONGEST) if side == "left" else slice(0, length)
        ids[row, at], mask[row, at] = random_ids(length, seed=row), 1
    return ids, mask


@cache
def expected(name: str) -> tuple[Tensor, ...]:
    model = make_model(name, torch.float64)
    with torch.no_grad():
        return tuple(model(random_ids(1, length, seed=row))[0][0] for row, length in enumerate(LENGTHS))


def check(name: str, logits: Tensor, mask: Tensor) -> None:
    for row, value in enumerate(expected(name)):
        assert_close(logits[row][mask[row].bool()], value, 1e-12, f"row {row}")


def in_calls(model: RelnetForCausalLM, ids: Tensor, mask: Tensor | None, sizes: tuple[int, ...], whole: bool) -> Tensor:
    """Several calls with a cache; whole: each mask speaks of all positions so far, as in transformers' generate."""
    logits, cache, end = [], None, 0
    for chunk in ids.split(sizes, 1):
        start, end = end, end + chunk.shape[1]
        part = None if mask is None else mask[:, 0 if whole else start : end]
        output = model(chunk, attention_mask=part, cache=cache, use_cache=True)
        cache = output.cache
        assert cache.get_seq_length() == end
        logits.append(output.logits)
    return torch.cat(logits, 1)


@pytest.mark.parametrize("name", MODELS)
def test_every_way_to_call_the_model_gives_the_logits_of_the_unpadded_rows(name):
    model = make_hf(name, torch.float64)
    with torch.no_grad():
        for side in ("left", "right"):
            ids, mask = padded(side, junk=2**40)
            check(name, model(ids, attention_mask=mask, use_cache=False).logits, mask)
            check(name, in_calls(model, ids, mask, (LONGEST,), True), mask)
            check(name, in_calls(model, ids, mask, (1,) * LONGEST, True), mask)
            check(name, in_calls(model, ids, mask, (5, 1, 10), False), mask)
        for row, length in enumerate(LENGTHS):
            ids = random_ids(1, length, seed=row)
            ones = torch.ones_like(ids)
            for mask in (None, ones):
                logits = model(ids, attention_mask=mask).logits
                assert_close(logits[0], expected(name)[row], 1e-12)
                logits = in_calls(model, ids, mask, (1,) * length, True)
                assert_close(logits[0], expected(name)[row], 1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_a_cache_may_be_reordered_and_copied(name):
    model = make_hf(name, torch.float64)
    ids, more = random_ids(2, 5), random_ids(4, 3, seed=1)
    beams = torch.tensor([1, 1, 0, 1])
    with torch.no_grad():
        cache = model(ids, use_cache=True).cache
        copied = RelnetCache(cache.state, cache.length)
        cache.reorder_cache(beams)
        assert cache.batch_size == 4
        logits = model(more, cache=cache, use_cache=True).logits
        assert_close(logits, model(torch.cat([ids[beams], more], 1)).logits[:, 5:], 1e-12)
        copied.batch_repeat_interleave(2)
        rows = torch.tensor([0, 0, 1, 1])
        logits = model(more, cache=copied, use_cache=True).logits
        assert_close(logits, model(torch.cat([ids[rows], more], 1)).logits[:, 5:], 1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_what_stands_at_a_pad_changes_no_bit(name):
    model = make_hf(name)

    def results(side: str, junk: int) -> list[Tensor]:
        ids, mask = padded(side, junk)
        logits = in_calls(model, ids, mask, (7, 9), True)[mask.bool()]
        return [logits, *torch.autograd.grad(logits, list(model.parameters()), random_values(*logits.shape, seed=1))]

    for side in ("left", "right"):
        for value, other in zip(results(side, 0), results(side, 2**40), strict=True):
            assert_same_bits(value, other)


def test_logits_to_keep_are_the_last_ones_and_of_real_tokens():
    model = make_hf("causalrn", torch.float64)
    ids, mask = padded("right", junk=3)
    with torch.no_grad():
        whole = model(ids, attention_mask=mask).logits
        (last,) = model(ids, attention_mask=mask, logits_to_keep=1).logits.unbind(1)
        for row, length in enumerate(LENGTHS):
            assert_close(last[row], whole[row, length - 1], 1e-12)
        assert_close(model(ids, attention_mask=mask, logits_to_keep=4).logits, whole[:, -4:], 1e-12)
        kept = torch.tensor([0, 3])
        assert_close(model(ids, attention_mask=mask, logits_to_keep=kept).logits, whole[:, kept], 1e-12)
        assert_close(model(ids[:, :1], logits_to_keep=1).logits, whole[:, :1], 1e-12)


@pytest.mark.parametrize("name", ["causalrn", "hybrid", "lstm"])
def test_bfloat16_is_near_single_precision(name):
    ids = random_ids(2, 12)
    with torch.no_grad():
        logits = make_hf(name, torch.bfloat16)(ids).logits
        assert logits.dtype == torch.bfloat16
        assert_close(logits.float(), make_hf(name)(ids).logits, 0.1)


@pytest.mark.parametrize("name", ["causalrn", pytest.param("hybrid", marks=pytest.mark.slow)])
def test_a_compiled_step_gives_the_logits_of_an_eager_one(name):
    model = make_hf(name)
    ids = random_ids(2, 9)
    step = torch.compile(model.forward, dynamic=True)
    with torch.no_grad():
        cache = model(ids[:, :6], use_cache=True).cache
        logits = torch.cat([step(ids[:, at : at + 1], cache=cache, use_cache=True).logits for at in (6, 7, 8)], 1)
        assert_close(logits, model(ids).logits[:, 6:], 1e-5)
