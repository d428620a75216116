"""A state is a value: whoever goes on from it, in whatever order and mode, it stays what it was."""

import pytest
import torch
from torch import Tensor

from relnet import nn
from tests.assertions import assert_close, assert_same_bits
from tests.nn.cases import (
    CAUSAL,
    MODES,
    STATEFUL,
    STATES,
    VOCAB_SIZE,
    WIDTH,
    growing_state,
    leaves,
    live,
    make_mixer,
    make_model,
    model_config,
    random_ids,
    random_values,
)

KINDS = ["causalrn", "attention-rope", "linear-causalrn", "linear-attention", "lstm", "hybrid"]


@pytest.mark.parametrize(("made", "masked"), STATES)
@pytest.mark.parametrize("name", STATEFUL)
def test_two_continuations_of_one_state_in_any_order_and_mode_give_the_same_bits(name, made, masked):
    model = make_model(name)
    state = growing_state(model, made, masked)
    before = live(state)
    tokens = {mode: random_ids(2, 3, seed=seed) for seed, mode in enumerate(MODES)}

    def go_on(mode: str) -> Tensor:
        with MODES[mode]():
            logits, after = model(tokens[mode], state)
            more, _ = model(tokens[mode][:, :2], after)
        return torch.cat([logits, more], 1)

    expected: dict[str, Tensor] = {}
    for order in (
        ("no_grad", "grad", "inference_mode"),
        ("inference_mode", "grad", "no_grad"),
        tuple(MODES),
    ):
        for mode in order:
            logits = go_on(mode)
            assert_same_bits(logits, expected.setdefault(mode, logits), f"{mode} in order {order}")
    for actual, value in zip(live(state), before, strict=True):
        assert_same_bits(actual, value)


@pytest.mark.parametrize("name", KINDS)
def test_continuations_that_grow_side_by_side_do_not_meet(name):
    model = make_model(name)
    with torch.no_grad():
        state = growing_state(model, "no_grad", False)
        branches, logits = [state] * 3, [[], [], []]
        for step in range(6):
            for k in range(3):
                token = random_ids(2, 1, seed=10 * step + k)
                step_logits, branches[k] = model(token, branches[k])
                logits[k].append(step_logits)
        for k in range(3):
            tokens = torch.cat([random_ids(2, 1, seed=10 * step + k) for step in range(6)], 1)
            assert_close(torch.cat(logits[k], 1), model(tokens, state)[0], 1e-5)


COPIES = {
    "detach": lambda state: state.detach(),
    "to": lambda state: state.to("cpu"),
    "select": lambda state: state.select(torch.arange(2)),
    "twice": lambda state: state.detach().to("cpu").detach(),
}


@pytest.mark.parametrize("copy", COPIES)
@pytest.mark.parametrize("name", KINDS)
def test_a_copy_of_a_state_and_the_state_do_not_meet(name, copy):
    model = make_model(name)
    state = growing_state(model, "no_grad", False)
    with torch.no_grad():
        other = COPIES[copy](state)
        _, after = model(random_ids(2, 1, seed=5), state)
        expected, _ = model(random_ids(2, 1, seed=6), after)
        _, after_other = model(random_ids(2, 1, seed=7), other)
        expected_other, _ = model(random_ids(2, 1, seed=6), after_other)
        assert_same_bits(model(random_ids(2, 1, seed=6), after)[0], expected)
        _, after = model(random_ids(2, 1, seed=8), COPIES[copy](state))
        assert_same_bits(model(random_ids(2, 1, seed=6), after_other)[0], expected_other)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", KINDS)
def test_a_random_tree_of_continuations_equals_recomputation(name, seed):
    """Nodes are states and the tokens that led there; every step goes on from any node, in any mode, by any detour."""
    model = make_model(name)
    generator = torch.Generator().manual_seed(seed)

    def random(limit: int) -> int:
        return int(torch.randint(limit, (), generator=generator))

    def tokens(rows: int) -> Tensor:
        return torch.randint(VOCAB_SIZE, (rows, 1 + random(3)), generator=generator)

    ids = tokens(2)
    nodes = [(ids, model(ids)[1])]
    children: list[tuple[int, str, Tensor, Tensor]] = []
    for _ in range(40):
        parent = max(random(len(nodes)), random(len(nodes)))
        ids, state = nodes[parent]
        mode = list(MODES)[random(3)]
        with MODES[mode]():
            match random(5):
                case 0:
                    state = state.detach()
                case 1:
                    rows = torch.randint(len(ids), (1 + random(3),), generator=generator)
                    ids, state = ids[rows], state.select(rows)
            new = tokens(len(ids))
            if ids.shape[1] + new.shape[1] > 30:
                continue
            logits, after = model(new, state)
        assert_close(logits, model(torch.cat([ids, new], 1))[0][:, ids.shape[1] :], 1e-5)
        nodes.append((torch.cat([ids, new], 1), after))
        if len(ids) == len(nodes[parent][0]) and torch.equal(ids, nodes[parent][0]):
            children.append((parent, mode, new, logits))
    assert len(children) > 20
    for parent, mode, new, logits in children:
        with MODES[mode]():
            assert_same_bits(model(new, nodes[parent][1])[0], logits)


@pytest.mark.parametrize("name", STATEFUL)
def test_a_state_in_a_graph_is_differentiable_and_detach_cuts_it_off(name):
    model = make_model(name)
    _, state = model(random_ids(2, 5))
    assert any(leaf.requires_grad for leaf in leaves(state))
    detached = state.detach()
    assert not any(leaf.requires_grad for leaf in leaves(detached))
    for leaf, value in zip(leaves(detached), leaves(state), strict=True):
        assert_same_bits(leaf, value)


def gradients_through_states(mixer: nn.Mixer, disturbed: bool) -> tuple[Tensor, ...]:
    """Three tokens with gradients after three without; disturbed: every state meanwhile also goes on without gradients."""
    x = random_values(1, 6, WIDTH)
    with torch.no_grad():
        _, state = mixer(x[:, :2])
        _, state = mixer(x[:, 2:3], state)
    outputs, states = [], [state]
    for index in range(3, 6):
        y, state = mixer(x[:, index : index + 1], states[-1])
        outputs.append(y)
        states.append(state)
        with torch.no_grad():
            for state in states if disturbed else []:
                mixer(x[:, :1], mixer(x[:, 1:2], state)[1])
    parameters = [parameter for parameter in mixer.parameters() if parameter.requires_grad]
    return torch.autograd.grad(torch.cat(outputs, 1).square().sum(), parameters)


FROZEN_SOURCES = {
    "rms": nn.CausalRNConfig(pair_norm="rms"),
    "none": nn.CausalRNConfig(pair_norm="none", sum_norm=False),
    "exact": nn.CausalRNConfig(),
}


@pytest.mark.parametrize("name", [*CAUSAL, *FROZEN_SOURCES])
def test_going_on_breaks_no_earlier_backward(name):
    """Also where the sources require no gradient, but the targets' backward keeps them."""
    mixer = make_mixer((CAUSAL | FROZEN_SOURCES)[name])
    if name in FROZEN_SOURCES:
        mixer.source.weight.requires_grad_(False)
    expected = gradients_through_states(mixer, disturbed=False)
    for gradient, value in zip(gradients_through_states(mixer, disturbed=True), expected, strict=True):
        assert_same_bits(gradient, value)


@pytest.mark.parametrize("name", KINDS)
def test_going_on_from_a_state_made_in_inference_mode_gives_gradients(name):
    model = make_model(name)
    logits, _ = model(random_ids(2, 2, seed=2), growing_state(model, "inference_mode", False))
    logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.blocks.parameters())


def test_appending_a_thousand_tokens_copies_a_cache_a_few_times():
    with torch.no_grad():
        cache = nn.Cache(torch.zeros(2, 1, 3), 1)
        storages, copied = {cache._storage.data_ptr()}, 0
        for value in range(1, 1001):
            last = cache._storage
            cache = cache.append(torch.full((2, 1, 3), float(value)))
            if cache._storage is not last:
                storages.add(id(cache._storage))
                copied += cache.length
    assert len(storages) <= 12
    assert copied <= 2100
    assert cache.length == 1001
    assert cache._storage.shape[1] <= 2048
    assert torch.equal(cache.entries[1, :, 2], torch.arange(1001.0))


def test_a_forked_cache_copies_once_and_then_grows_in_place():
    with torch.no_grad():
        cache = nn.Cache(torch.zeros(1, 8, 2), 8).append(torch.ones(1, 1, 2))
        first, second = cache.append(torch.full((1, 1, 2), 2.0)), cache.append(torch.full((1, 1, 2), 3.0))
        assert first._storage is cache._storage
        assert second._storage is not cache._storage
        assert second._storage.shape == cache._storage.shape
        assert second._storage.stride() == cache._storage.stride()
        assert second.append(torch.ones(1, 1, 2))._storage is second._storage
        assert first.append(torch.ones(1, 1, 2))._storage is first._storage
    assert cache.entries.sum() == 2
    assert first.entries[0, -1, 0] == 2
    assert second.entries[0, -1, 0] == 3


@pytest.mark.parametrize("mode", MODES)
def test_a_cache_takes_the_dtype_of_what_is_appended(mode):
    with MODES[mode]():
        cache = nn.Cache(torch.ones(1, 2, 2), 2).append(torch.ones(1, 1, 2))
        half = cache.append(torch.ones(1, 1, 2, dtype=torch.bfloat16))
        assert half.entries.dtype == torch.bfloat16
        assert half.append(torch.ones(1, 1, 2)).entries.dtype == torch.float32
        assert cache.entries.dtype == torch.float32


@pytest.mark.parametrize("name", STATEFUL)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_model_goes_on_from_a_state_of_another_dtype(name, dtype):
    _, state = make_model(name)(random_ids(2, 5))
    logits, _ = make_model(name, dtype)(random_ids(2, 1, seed=1), state)
    expected, _ = make_model(name)(random_ids(2, 1, seed=1), state)
    assert logits.dtype == dtype
    assert_close(logits.float(), expected, 1e-4 if dtype == torch.float64 else 0.1)


def test_a_state_keeps_no_memory_of_the_callers():
    """Somebody who reuses a mask's or x's memory changes no state."""
    for name in CAUSAL:
        mixer = make_mixer(CAUSAL[name])
        x, mask = random_values(2, 5, WIDTH), torch.tensor([[True] * 5, [False] * 2 + [True] * 3])
        _, state = mixer(x, None, mask)
        expected, _ = mixer(random_values(2, 1, WIDTH, seed=1), state)
        mask.logical_not_()
        x.zero_()
        assert_same_bits(mixer(random_values(2, 1, WIDTH, seed=1), state)[0], expected, name)


@pytest.mark.parametrize(("mode", "masked"), STATES)
@pytest.mark.parametrize("name", STATEFUL)
def test_nbytes_are_those_of_the_live_entries_and_of_the_memory_held(name, mode, masked):
    model = make_model(name)
    mask = torch.ones(2, 5, dtype=torch.bool) if masked else None
    with MODES[mode]():
        _, state = model(random_ids(2, 5), None, mask)
        states = [state]
        for index in range(4):
            states.append(model(random_ids(2, 1, seed=index), states[-1])[1])
    for state in [*states, states[2].select(torch.tensor([0, 0, 1]))]:
        assert state.nbytes == sum(leaf.numel() * leaf.element_size() for leaf in live(state))
        held = {leaf.untyped_storage().data_ptr(): leaf.untyped_storage().nbytes() for leaf in leaves(state)}
        assert state.nbytes_allocated == sum(held.values())
        assert state.nbytes_allocated >= state.nbytes


BYTES_A_TOKEN = {
    "causalrn": 4 * 8,
    "causalrn-windows": 4 * 12,
    "attention": 4 * 2 * WIDTH,
    "attention-hard-alibi": 4 * 2 * 8,
}
BYTES = {
    "linear-causalrn": 4 * 8 + 8,
    "linear-attention": 4 * 3 * (4 * 4 + 4),
    "lstm": 4 * 2 * 8,
}


def test_nbytes_are_what_the_mathematics_says():
    """exact: D numbers a token; attention: 2 inner; linear: D and a count, d (d + 1) a head; LSTM: 2 hidden."""
    for length in (1, 7, 40):
        x = random_values(3, length, WIDTH)
        for name, size in BYTES_A_TOKEN.items():
            assert make_mixer(CAUSAL[name])(x)[1].nbytes == 3 * length * size, name
        for name, size in BYTES.items():
            state = make_mixer(CAUSAL[name])(x)[1]
            assert state.nbytes == 3 * size, name
            assert state.nbytes_allocated == 3 * size, name


@pytest.mark.parametrize("name", ["linear-causalrn", "linear-attention", "lstm"])
def test_a_state_of_constant_size_keeps_nothing_of_its_prompt_alive(name):
    _, state = make_model(name)(random_ids(2, 40), None, torch.ones(2, 40, dtype=torch.bool))
    assert state.nbytes_allocated == state.nbytes == make_model(name)(random_ids(2, 1))[1].nbytes + 2 * 8


def test_a_long_lived_cache_holds_at_most_twice_what_is_live():
    model = make_model("no-positions")
    with torch.no_grad():
        _, state = model(random_ids(1, 3))
        for index in range(50):
            _, state = model(random_ids(1, 1, seed=index), state)
            assert state.nbytes_allocated <= 2 * state.nbytes


@pytest.mark.parametrize("name", STATEFUL)
def test_select_gives_the_rows_in_their_new_order(name):
    model = make_model(name)
    rows = torch.tensor([1, 1, 0])
    for mode in ("grad", "no_grad"):
        for masked in (False, True):
            state = growing_state(model, mode, masked).select(rows)
            expected = growing_state(model, mode, masked)
            for leaf, value in zip(live(state), live(expected), strict=True):
                assert_same_bits(leaf, value[rows])


@pytest.mark.parametrize("name", STATEFUL)
def test_rows_that_a_state_does_not_have_are_named(name):
    state = growing_state(make_model(name), "no_grad", False)
    for rows in ([0, 2], [-1]):
        with pytest.raises(ValueError, match="the state has rows 0 to 1"):
            state.select(torch.tensor(rows))


def test_a_state_shows_what_it_holds():
    state = growing_state(make_model("causalrn"), "no_grad", False)
    assert "Cache(length=6, capacity=10, width=8)" in repr(state.mixers[0].source)


def test_one_models_state_may_hold_states_of_several_kinds():
    kinds = [type(state) for state in growing_state(make_model("hybrid"), "grad", False).mixers]
    assert kinds == [nn.RelationState, nn.LSTMState, nn.AttentionState, nn.LinearRelationState, nn.LinearAttentionState]
    assert nn.SequenceModel(model_config(nn.LSTMConfig()))(random_ids(1, 1))[1].num_tokens == 1
