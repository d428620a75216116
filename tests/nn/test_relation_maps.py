"""Relation maps are of the pairs that the mixer itself computes: against loops, and against the mixers' outputs."""

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from relnet import nn
from relnet.nn import relation_maps
from tests.assertions import assert_close
from tests.nn.cases import BIDIRECTIONAL, CAUSAL, WIDTH, make_mixer, make_model, random_ids, random_values

MIXERS = {name: config for name, config in CAUSAL.items() if name != "lstm"} | {
    f"bidirectional-{name}": config for name, config in BIDIRECTIONAL.items()
}
RELATIONS = {name: config for name, config in MIXERS.items() if "attention" not in name}
MASK = torch.tensor([[1, 1, 1, 1, 1, 1], [0, 1, 1, 0, 1, 1]]).bool()
ACTIVATIONS = {"exp": torch.exp, "relu": torch.relu, "elu": torch.nn.functional.elu, "gelu": torch.nn.functional.gelu}


def norm(x: Tensor) -> Tensor:
    return (x - x.mean()) / x.var(correction=0).sqrt()


def pairs_by_loops(mixer, x: Tensor) -> tuple[Tensor, Tensor]:
    """The activations' norm and the scale of every pair, (B, H, S, T), by the definition."""
    width = mixer.hidden // mixer.heads
    psi = ACTIVATIONS[getattr(mixer, "activation", "exp")]
    strengths, scales = (torch.zeros(len(x), mixer.heads, x.shape[1], x.shape[1], dtype=x.dtype) for _ in range(2))
    for row in range(len(x)):
        for head in range(mixer.heads):
            channels = slice(head * width, (head + 1) * width)
            p, q = mixer.source(x[row])[:, channels], mixer.target(x[row])[:, channels]
            for j in range(len(q)):
                for i in range(len(p)):
                    pair = p[i] + q[j]
                    normed = {
                        "exact": lambda pair=pair: norm(pair),
                        "rms": lambda pair=pair: pair / pair.square().mean().sqrt(),
                        "approximate": lambda i=i, j=j, p=p, q=q: norm(p[i]) + norm(q[j]),
                        "none": lambda pair=pair: pair,
                    }[mixer.pair_norm]()
                    strengths[row, head, j, i] = psi(normed).norm()
                    centred = pair - pair.mean() if mixer.pair_norm == "exact" else pair
                    scales[row, head, j, i] = 1 / centred.square().mean().sqrt()
    return strengths.detach(), scales.detach()


def valid(mixer, mask: Tensor) -> Tensor:
    """Which pairs count, (B, H, S, T), by counting real tokens."""
    windows = getattr(mixer, "windows", None) or getattr(mixer, "limits", None) or (None,) * mixer.heads
    found = torch.zeros(len(mask), mixer.heads, mask.shape[1], mask.shape[1], dtype=torch.bool)
    for row, real in enumerate(mask.tolist()):
        for head, window in enumerate(windows):
            for j in range(len(real)):
                for i in range(len(real)):
                    near = not window or sum(real[i + 1 : j + 1]) < window
                    found[row, head, j, i] = real[i] and (not mixer.causal or (i <= j and near))
    return found


@pytest.mark.parametrize("name", RELATIONS)
def test_strengths_are_the_shares_of_the_pairs_norms(name):
    mixer = make_mixer(MIXERS[name], torch.float64)
    x = random_values(2, 6, WIDTH, dtype=torch.float64)
    masked = x.masked_fill(~MASK[..., None], 0.0)
    strengths, _ = pairs_by_loops(mixer, masked)
    # A pad's own norm is 0 / 0.
    expected = torch.where(valid(mixer, MASK), strengths, 0.0)
    expected = expected / expected.sum(-1, keepdim=True).clamp(min=1e-300)
    assert_close(nn.relation_map(mixer, x, MASK), expected, 1e-9)


@pytest.mark.parametrize("name", [name for name in RELATIONS if make_mixer(MIXERS[name]).pair_norm in ("exact", "rms")])
def test_scales_are_those_of_the_pair_norm(name):
    mixer = make_mixer(MIXERS[name], torch.float64)
    x = random_values(2, 6, WIDTH, dtype=torch.float64)
    _, scales = pairs_by_loops(mixer, x.masked_fill(~MASK[..., None], 0.0))
    expected = torch.where(valid(mixer, MASK), scales, 0.0)
    assert_close(nn.relation_map(mixer, x, MASK, quantity="scale"), expected, 1e-9)


@pytest.mark.parametrize("name", [name for name in MIXERS if "attention" in name])
def test_maps_of_attention_are_the_weights_of_its_values(name):
    mixer = make_mixer(MIXERS[name], torch.float64)
    x = random_values(2, 6, WIDTH, dtype=torch.float64)
    weights = nn.relation_map(mixer, x, MASK)
    values = mixer.query_key_value(x.masked_fill(~MASK[..., None], 0.0)).chunk(3, -1)[2]
    mixed = (weights @ values.unflatten(-1, (mixer.heads, -1)).transpose(1, 2)).transpose(1, 2).flatten(-2)
    y = mixer(x, mask=MASK)
    y = y[0] if mixer.causal else y
    assert_close(mixer.out(mixed)[MASK], y[MASK], 1e-10)


@pytest.mark.parametrize("name", MIXERS)
def test_blocks_and_chosen_targets_and_sources_change_nothing(name, monkeypatch):
    mixer = make_mixer(MIXERS[name], torch.float64)
    x = random_values(2, 6, WIDTH, dtype=torch.float64)
    whole = nn.relation_map(mixer, x, MASK)
    monkeypatch.setattr(relation_maps, "BLOCK", 70)
    for targets in (slice(4, 6), slice(1, 3), slice(-2, None), slice(2, 99)):
        assert_close(nn.relation_map(mixer, x, MASK, targets=targets), whole[:, :, targets], 1e-12)
    sources = torch.tensor([[True, True, True, False, True, False]]).expand(2, -1)
    some = whole * sources[:, None, None]
    expected = some / some.sum(-1, keepdim=True)
    found = nn.relation_map(mixer, x, MASK, sources=sources)
    seen = some.sum(-1) > 0
    assert_close(found[seen], expected[seen], 1e-10)
    assert not found[~seen].any()


def test_pairs_are_never_all_in_memory_at_once(monkeypatch):
    largest = []
    inverse_rms = relation_maps.inverse_rms
    monkeypatch.setattr(relation_maps, "inverse_rms", lambda pair: (largest.append(pair.numel()), inverse_rms(pair))[1])
    monkeypatch.setattr(relation_maps, "BLOCK", 2**12)
    nn.relation_map(make_mixer(nn.BiRNConfig(hidden=32)), random_values(1, 300, WIDTH))
    assert max(largest) <= 2**12
    assert sum(largest) == 300 * 300 * 32


class LargestTensor(TorchDispatchMode):
    """The most numbers that a tensor has had inside the block."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor):
            self.numel = max(self.numel, out.numel())
        return out


@pytest.mark.parametrize("name", MIXERS)
def test_the_map_of_one_target_never_holds_all_pairs(name):
    mixer = make_mixer(MIXERS[name])
    x, mask = random_values(1, 512, WIDTH), torch.ones(1, 512).bool()
    mask[:, :7] = False
    with LargestTensor() as largest:
        nn.relation_map(mixer, x, mask, targets=slice(-1, None))
    assert 0 < largest.numel < 512 * 512 / 2


def test_no_targets_have_an_empty_map():
    for config in (nn.CausalRNConfig(hidden=8), nn.AttentionConfig(3, positions="alibi"), nn.LinearAttentionConfig(3)):
        assert nn.relation_map(make_mixer(config), random_values(2, 4, WIDTH), targets=slice(3, 1)).shape[-2:] == (0, 4)


def test_norms_beyond_the_range_of_float32_keep_their_shares():
    mixer = make_mixer(nn.LinearBiRNConfig(hidden=8, pair_norm="none", sum_norm=False))
    x = 100 * random_values(1, 5, WIDTH)
    shares = nn.relation_map(mixer, x)
    assert shares.isfinite().all()
    assert_close(shares.sum(-1), torch.ones(1, 1, 5), 1e-5)


def test_the_inputs_of_mixers_are_their_real_ones():
    model = make_model("hybrid")
    ids = random_ids(2, 6)
    found = nn.mixer_inputs(model, ids, None, MASK)
    assert [mixer for mixer, _, _ in found] == [block.mixer for block in model.blocks]
    x = model.embedding(ids.masked_fill(~MASK, 0))
    if model.position is not None:
        x = x + model.position((MASK.long().cumsum(1) - 1).clamp(min=0))
    for (mixer, given, mask), block in zip(found, model.blocks, strict=True):
        normed = torch.nn.functional.layer_norm(x, (WIDTH,), eps=0)
        assert_close(given[MASK], normed[MASK], 1e-4)
        assert torch.equal(mask, MASK)
        x, _ = block(x, None, MASK)
        assert mixer is block.mixer
    assert not any(mixer._forward_pre_hooks for mixer, _, _ in found)


@pytest.mark.parametrize(
    ("config", "options", "said"),
    [
        (nn.LSTMConfig(hidden=8), {}, "no pairs of positions"),
        (nn.LinearCausalRNConfig(hidden=8), {"quantity": "scale"}, "no scale of a pair"),
        (nn.AttentionConfig(3), {"quantity": "scale"}, "no scale of a pair"),
        (nn.CausalRNConfig(hidden=8), {"quantity": "weight"}, "quantity"),
        (nn.CausalRNConfig(hidden=8), {"targets": slice(0, 4, 2)}, "steps of 1"),
        (nn.CausalRNConfig(hidden=8), {"sources": torch.ones(1, 3).bool()}, "sources"),
    ],
)
def test_maps_that_there_are_not_are_refused(config, options, said):
    with pytest.raises(ValueError, match=said):
        nn.relation_map(make_mixer(config), random_values(1, 4, WIDTH), **options)
