"""Which pairs count, block by block: every rectangle of pairs against the definition, and blocks that visit each visible pair once."""

import pytest
import torch

from relnet.ops.pairs import Pairs
from relnet.ops.relation_blocked import blocks
from tests.assertions import assert_same_bits
from tests.ops.oracles import make_mask, valid_sources

CPU = torch.device("cpu")


def validity(pairs: Pairs, window: int) -> torch.Tensor:
    """(B, S, T) True where a pair counts, pair by pair."""
    masks = [[True] * pairs.num_sources] if pairs.key_mask is None else pairs.key_mask.tolist()
    valid = torch.zeros(len(masks), pairs.num_targets, pairs.num_sources, dtype=torch.bool)
    for row, mask in enumerate(masks):
        for j in range(pairs.num_targets):
            seen = valid_sources(j, pairs.num_targets, pairs.num_sources, pairs.causal, mask, window or None)
            valid[row, j, seen] = True
    return valid


def rectangles(length: int) -> list[slice]:
    return [slice(first, last) for first in range(length) for last in range(first + 1, length + 1)]


@pytest.mark.parametrize("mask", ["none", "left", "inner", "empty row"])
@pytest.mark.parametrize(
    ("S", "T", "causal", "window"),
    [(5, 5, True, 0), (4, 5, True, 2), (5, 5, True, 1), (6, 4, False, 0)],
)
def test_every_rectangle_of_pairs_is_the_definitions(mask, S, T, causal, window):
    pairs = Pairs(S, T, causal, make_mask(mask, 2, T), (window,), CPU)
    valid = validity(pairs, window)
    for targets in rectangles(S):
        for sources in rectangles(T):
            invalid = pairs.invalid(window, targets, sources)
            expected = valid[:, targets, sources]
            got = torch.ones_like(expected) if invalid is None else ~invalid[:, 0].expand_as(expected)
            assert_same_bits(got, expected)
    assert_same_bits(pairs.counts()[:, 0].expand(valid.shape[:2]), valid.sum(-1))


@pytest.mark.parametrize(
    ("T", "S", "causal", "windows"),
    [(23, 23, True, ()), (23, 9, True, ()), (23, 23, True, (2, 0, 5)), (23, 9, True, (2, 0, 5)), (7, 19, False, ())],
)
@pytest.mark.parametrize("mask", ["none", "left", "right", "inner"])
@pytest.mark.parametrize("block_targets", [1, 4])
def test_blocks_cover_every_visible_pair_once(T, S, causal, windows, mask, block_targets):
    pairs = Pairs(S, T, causal, make_mask(mask, 2, T), windows, CPU)
    visits = torch.zeros(2, 3, S, T, dtype=torch.int64)
    for rows, heads, targets, sources, _ in blocks(torch.empty(2, 3, T, 5), pairs, block_targets):
        visits[rows, heads, targets, sources] += 1
    assert int(visits.max()) == 1
    for head, window in enumerate(windows or (0, 0, 0)):
        valid = validity(pairs, window)
        assert bool(visits[:, head][valid.expand(2, -1, -1)].all())


def test_blocks_without_a_mask_stay_near_the_window():
    """Time goes with the window, not with the length."""
    pairs = Pairs(200, 200, True, None, (3,), CPU)
    visited = sum(
        (t.stop - t.start) * (s.stop - s.start) for _, _, t, s, _ in blocks(torch.empty(1, 1, 200, 5), pairs, 8)
    )
    assert visited <= 200 * (8 + 3 - 1)
