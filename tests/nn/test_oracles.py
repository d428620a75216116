"""Mixers against independent implementations: loops, PyTorch's own attention and LSTM, one another."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from relnet import nn, ops
from relnet.nn.positions import rotate
from tests.assertions import assert_close
from tests.nn.cases import BIDIRECTIONAL, CAUSAL, WIDTH, make_mixer, random_values

NUM_ROWS, LENGTH = 2, 7
MASK = torch.tensor([[0, 1, 1, 0, 1, 1, 1], [1, 1, 1, 1, 1, 0, 0]], dtype=torch.bool)
PSI = {"exp": torch.exp, "relu": F.relu, "elu": F.elu, "gelu": F.gelu}


def x64(*shape: int, seed: int = 0) -> Tensor:
    return random_values(*(shape or (NUM_ROWS, LENGTH, WIDTH)), seed=seed, dtype=torch.float64)


def norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], eps=0.0)


# The relation


def pair_norm(p: Tensor, q: Tensor, kind: str) -> Tensor:
    match kind:
        case "exact":
            return norm(p + q)
        case "rms":
            return (p + q) / (p + q).square().mean().sqrt()
        case "approximate":
            return norm(p) + norm(q)
    return p + q


def relation_by_loops(mixer, x: Tensor, mask: Tensor) -> Tensor:
    """Every row, head, target and source by itself. `windows`, `activation` and so on are read off the mixer's arguments."""
    y = torch.zeros(*x.shape[:2], mixer.hidden, dtype=x.dtype)
    width = mixer.hidden // mixer.heads
    for row, target in mask.nonzero().tolist():
        for head in range(mixer.heads):
            channels = slice(head * width, (head + 1) * width)
            sources = mask[row].nonzero()[:, 0].tolist()
            if mixer.causal:
                sources = [source for source in sources if source <= target]
            window = getattr(mixer, "windows", None) and mixer.windows[head]
            sources = sources[-window:] if window else sources
            q = (x[row, target] @ mixer.target.weight.T + mixer.target.bias)[channels]
            terms = []
            for source in sources:
                p = (x[row, source] @ mixer.source.weight.T)[channels]
                terms.append(PSI[getattr(mixer, "activation", "exp")](pair_norm(p, q, mixer.pair_norm)))
            y[row, target, channels] = torch.stack(terms).mean(0)
    y = (norm(y) if mixer.sum_norm else y) @ mixer.out.weight.T + mixer.out.bias
    return torch.where(mask[..., None], y, 0.0)


RELATIONS = {name: config for name, config in CAUSAL.items() if "causalrn" in name} | {
    name: config for name, config in BIDIRECTIONAL.items() if "birn" in name
}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", RELATIONS)
def test_a_relation_mixer_equals_loops_over_its_pairs(name, masked):
    mixer = make_mixer(RELATIONS[name], torch.float64)
    mask = MASK if masked else torch.ones_like(MASK)
    y = mixer(x64(), mask=mask if masked else None)
    with torch.no_grad():
        expected = relation_by_loops(mixer, x64(), mask)
    assert_close(y[0] if mixer.causal else y, expected, 1e-12)


def twin(linear: nn.Mixer, quadratic: nn.MixerConfig) -> nn.Mixer:
    mixer = quadratic.build(WIDTH).double()
    mixer.load_state_dict(linear.state_dict())
    return mixer


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("sum_norm", [True, False])
@pytest.mark.parametrize("pair", ["approximate", "none"])
@pytest.mark.parametrize("heads", [1, 3])
def test_a_linear_relation_equals_the_quadratic_one_by_its_definition(heads, pair, sum_norm, masked):
    x, mask = x64(2, 40, WIDTH).requires_grad_(), None
    if masked:
        mask = torch.rand(2, 40, generator=torch.Generator().manual_seed(1)) < 0.6
    for linear_config, config in ((nn.LinearCausalRNConfig, nn.CausalRNConfig), (nn.LinearBiRNConfig, nn.BiRNConfig)):
        linear = make_mixer(linear_config(heads=heads, pair_norm=pair, sum_norm=sum_norm), torch.float64)
        quadratic = twin(linear, config(heads=heads, pair_norm=pair, sum_norm=sum_norm))
        y = linear(x, mask=mask)
        with ops.use_reference():
            expected = quadratic(x, mask=mask)
            y, expected = (y[0], expected[0]) if linear.causal else (y, expected)
            expected_gradients = torch.autograd.grad(expected.square().sum(), [x, *quadratic.parameters()])
        assert_close(y, expected, 1e-10)
        gradients = torch.autograd.grad(y.square().sum(), [x, *linear.parameters()])
        for gradient, value in zip(gradients, expected_gradients, strict=True):
            assert_close(gradient, value, 1e-10)


@pytest.mark.parametrize("name", ["birn", "birn-gelu-heads", "linear-birn", "attention", "linear-attention"])
def test_a_bidirectional_mixer_is_equivariant_to_permutations(name):
    mixer = make_mixer(BIDIRECTIONAL[name], torch.float64)
    x, order = x64(), torch.tensor([3, 0, 6, 1, 5, 2, 4])
    assert_close(mixer(x[:, order]), mixer(x)[:, order], 1e-12)
    permuted = mixer(x[:, order], MASK[:, order])
    assert_close(permuted, mixer(x, MASK)[:, order], 1e-12)


def test_the_last_token_of_a_causal_relation_sees_what_a_bidirectional_one_sees():
    for causal, bidirectional in ((nn.CausalRNConfig, nn.BiRNConfig), (nn.LinearCausalRNConfig, nn.LinearBiRNConfig)):
        mixer = make_mixer(causal(heads=2), torch.float64)
        assert_close(mixer(x64())[0][:, -1], twin(mixer, bidirectional(heads=2))(x64())[:, -1], 1e-12)


# Attention


def real_before(mask: Tensor, row: int, at: int) -> int:
    return int(mask[row, :at].sum())


def turned(vector: Tensor, position: int) -> Tensor:
    """RoPE with complex numbers: channel k and channel k + d/2 are real and imaginary part."""
    half = len(vector) // 2
    angle = torch.tensor([position * 10_000 ** (-k / half) for k in range(half)], dtype=torch.float64)
    z = torch.complex(vector[:half], vector[half:]) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([z.real, z.imag])


def attention_by_heads(mixer: nn.Attention, x: Tensor, mask: Tensor) -> Tensor:
    """Each row and head by itself with F.scaled_dot_product_attention, real tokens only; its bias by loops."""
    y = torch.zeros(*x.shape[:2], mixer.out.in_features, dtype=x.dtype)
    width = mixer.out.in_features // mixer.heads
    for row in range(len(x)):
        tokens = mask[row].nonzero()[:, 0]
        q, k, v = (x[row, tokens] @ mixer.query_key_value.weight.T).chunk(3, -1)
        for head in range(mixer.heads):
            channels = slice(head * width, (head + 1) * width)
            q_head, k_head, v_head = q[:, channels], k[:, channels], v[:, channels]
            if mixer.positions == "rope":
                q_head, k_head = (
                    torch.stack([turned(vector, n) for n, vector in enumerate(part)]) for part in (q_head, k_head)
                )
            bias = torch.zeros(len(tokens), len(tokens), dtype=x.dtype)
            for target in range(len(tokens)):
                for source in range(len(tokens)):
                    if mixer.positions == "alibi":
                        bias[target, source] -= 2 ** (-8 * (head + 1) / mixer.heads) * abs(target - source)
                    if mixer.causal and source > target:
                        bias[target, source] = -math.inf
                    window = (
                        head + 1 if head < {"hard_alibi": MASKED_HEADS[mixer.heads]}.get(mixer.positions, 0) else None
                    )
                    if window and target - source >= window:
                        bias[target, source] = -math.inf
            y[row, tokens, channels] = F.scaled_dot_product_attention(q_head, k_head, v_head, bias)
    return y @ mixer.out.weight.T


# Of 4 heads the case has 3 masked, of 3 heads heads // 2.
MASKED_HEADS = {4: 3, 3: 1, 1: 0}
ATTENTIONS = {name: config for name, config in CAUSAL.items() if isinstance(config, nn.AttentionConfig)} | {
    f"bidirectional-{name}": config for name, config in BIDIRECTIONAL.items() if isinstance(config, nn.AttentionConfig)
}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention_equals_pytorchs_head_by_head(name, masked):
    mixer = make_mixer(ATTENTIONS[name], torch.float64)
    mask = MASK if masked else torch.ones_like(MASK)
    y = mixer(x64(), mask=mask if masked else None)
    with torch.no_grad():
        expected = attention_by_heads(mixer, x64(), mask)
    assert_close(y[0] if mixer.causal else y, expected, 1e-12)


def test_hard_alibi_masks_half_of_the_heads_unless_told():
    for heads, windows, expected in ((1, None, 0), (2, None, 1), (5, None, 2), (4, 0, 0), (4, 4, 4)):
        mixer = nn.Attention(20, heads, positions="hard_alibi", windows=windows)
        assert len([limit for limit in mixer.limits if limit]) == expected


@pytest.mark.parametrize("positions", ["none", "rope", "alibi", "hard_alibi"])
def test_fused_and_explicit_attention_are_one(positions):
    fused = make_mixer(nn.AttentionConfig(heads=3, positions=positions))
    explicit = make_mixer(nn.AttentionConfig(heads=3, positions=positions, explicit=True))
    x = random_values(2, 70, WIDTH)
    for mask in (None, torch.rand(2, 70, generator=torch.Generator().manual_seed(2)) < 0.8):
        y, expected = fused(x, mask=mask)[0], explicit(x, mask=mask)[0]
        assert_close(y, expected, 1e-6)
        gradients = (
            torch.autograd.grad(out.square().sum(), m.parameters()) for out, m in ((y, fused), (expected, explicit))
        )
        for gradient, value in zip(*gradients, strict=True):
            assert_close(gradient, value, 1e-5)


def test_rope_scores_depend_on_the_distance_alone_and_norms_stay():
    q, k = x64(1, 1, 1, 8), x64(1, 1, 1, 8, seed=1)

    def score(q_at: int, k_at: int) -> Tensor:
        return (rotate(q, torch.tensor([[q_at]])) * rotate(k, torch.tensor([[k_at]]))).sum()

    for distance in (0, 1, 5):
        for shift in (1, 100, 1000):
            assert_close(score(distance + shift, shift), score(distance, 0), 1e-12)
    assert not torch.isclose(score(1, 0), score(2, 0))
    assert_close(rotate(q, torch.tensor([[77]])).norm(), q.norm(), 1e-12)


def test_rope_angles_are_exact_in_bfloat16_too():
    """Positions above 256 are not bfloat16 numbers."""
    q = random_values(1, 1, 1, 8)
    positions = torch.tensor([[1001]])
    turned_q = rotate(q.bfloat16(), positions)
    assert turned_q.dtype == torch.bfloat16
    assert_close(turned_q, rotate(q.bfloat16().double(), positions), 4e-3)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_linear_attention_equals_the_quadratic_matrix_head_by_head(causal, masked):
    mixer = make_mixer(nn.LinearAttentionConfig(heads=3, head_width=2, causal=causal), torch.float64)
    x = x64(2, 70, WIDTH)
    mask = torch.rand(2, 70, generator=torch.Generator().manual_seed(3)) < (0.7 if masked else 2.0)
    q, k, v = (part.unflatten(-1, (3, 2)).transpose(1, 2) for part in mixer.query_key_value(x).chunk(3, -1))
    weights = (F.elu(q) + 1) @ (F.elu(k) + 1).mT * mask[:, None, None]
    weights = weights.tril() if causal else weights
    y = mixer.out((weights / weights.sum(-1, keepdim=True) @ v).transpose(1, 2).flatten(-2))
    actual = mixer(x, mask=mask if masked else None)
    assert_close(actual[0] if causal else actual, torch.where(mask[..., None], y, 0.0), 1e-12)


# LSTM


def test_the_lstm_equals_pytorchs_and_the_equations():
    mixer = make_mixer(nn.LSTMConfig(hidden=5), torch.float64)
    theirs = torch.nn.LSTM(WIDTH, 5, batch_first=True).double()
    theirs.load_state_dict(mixer.cell.state_dict())
    x = x64()
    y, state = mixer(x)
    expected, (hidden, cell) = theirs(x)
    assert_close(y, mixer.out(expected), 1e-12)
    assert_close(state.hidden, hidden[0], 1e-12)
    assert_close(state.cell, cell[0], 1e-12)

    weights = mixer.cell.state_dict()
    h = c = torch.zeros(NUM_ROWS, 5, dtype=torch.float64)
    for token in x.unbind(1):
        gates = token @ weights["weight_ih_l0"].T + weights["bias_ih_l0"] + h @ weights["weight_hh_l0"].T
        i, f, g, o = (gates + weights["bias_hh_l0"]).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
    assert_close(state.hidden, h, 1e-12)


def test_lstm_cells_keep_pytorchs_initialisation():
    torch.manual_seed(0)
    mixer = nn.LSTM(64, 100)
    for name, values in mixer.cell.state_dict().items():
        assert values.abs().max() <= 0.1, name
        assert abs(float(values.std()) - 0.1 / math.sqrt(3)) < 0.01, name
    assert not mixer.out.bias.any()
    assert abs(float(mixer.out.weight.detach().std()) - 0.02) < 0.002


# Everything by its definition


@pytest.mark.parametrize("name", CAUSAL)
def test_the_fast_paths_equal_the_definitions(name):
    mixer = make_mixer(CAUSAL[name], torch.float64)
    x, mask = x64(2, 70, WIDTH), torch.rand(2, 70, generator=torch.Generator().manual_seed(4)) < 0.7
    parameters = list(mixer.parameters())
    for with_mask in (None, mask):
        y, _ = mixer(x, mask=with_mask)
        with ops.use_reference():
            expected, _ = mixer(x, mask=with_mask)
            expected_gradients = torch.autograd.grad(expected.square().sum(), parameters)
        assert_close(y, expected, 1e-12)
        for gradient, value in zip(torch.autograd.grad(y.square().sum(), parameters), expected_gradients, strict=True):
            assert_close(gradient, value, 1e-11)
