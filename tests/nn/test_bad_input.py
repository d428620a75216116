"""Every mistake gets a ValueError that names the value and the remedy."""

import itertools
import re
from collections.abc import Callable

import pytest
import torch

from relnet import nn
from tests.nn.cases import BIDIRECTIONAL, CAUSAL, VOCAB_SIZE, WIDTH, make_mixer, make_model, model_config, random_ids

ALL_MIXERS = CAUSAL | {f"bidirectional-{name}": config for name, config in BIDIRECTIONAL.items()}
X = torch.zeros(2, 3, WIDTH)

MIXERS: dict[str, tuple[Callable[[], object], str]] = {
    "width 0": (lambda: nn.CausalRN(0), "width=0; give an integer of at least 1"),
    "width float": (lambda: nn.LSTM(1.5), "width=1.5; give an integer of at least 1"),
    "hidden 0": (lambda: nn.CausalRN(12, 0), "hidden=0; give an integer of at least 1"),
    "hidden of linear": (lambda: nn.LinearCausalRN(12, -3), "hidden=-3; give an integer of at least 1"),
    "hidden of lstm": (lambda: nn.LSTM(12, 0), "hidden=0; give an integer of at least 1"),
    "hidden / heads": (lambda: nn.CausalRN(12, 10, heads=3), "hidden 10 is not divisible by heads=3; choose heads"),
    "hidden / heads, linear": (lambda: nn.LinearBiRN(12, heads=5), "hidden 12 is not divisible by heads=5"),
    "no heads": (lambda: nn.BiRN(12, heads=0), "hidden 12 is not divisible by heads=0"),
    "width / heads": (lambda: nn.Attention(12, 5), "width 12 is not divisible by heads=5; choose heads that divide it"),
    "width / heads, linear": (lambda: nn.LinearAttention(12, 5), "width 12 is not divisible by heads=5"),
    "head_width": (lambda: nn.Attention(12, 3, head_width=0), "head_width=0; give an integer of at least 1"),
    "heads with head_width": (lambda: nn.LinearAttention(12, 0, head_width=4), "heads=0; give an integer of at least 1"),
    "too few windows": (lambda: nn.CausalRN(12, heads=3, windows=(1, 2)), "give one for each of the 3 heads (None = no limit)"),
    "window of 0": (lambda: nn.CausalRN(12, heads=2, windows=(0, None)), "holds 0; a window is an integer of at least 1, or None"),
    "window below 0": (lambda: nn.CausalRN(12, windows=(-1,)), "holds -1; a window is an integer of at least 1"),
    "window of 1.5": (lambda: nn.CausalRN(12, windows=(1.5,)), "holds 1.5; a window is an integer of at least 1"),
    "activation": (lambda: nn.CausalRN(12, activation="tanh"), "activation 'tanh' is unknown; choose from exp, relu, elu, gelu"),
    "pair norm": (lambda: nn.BiRN(12, pair_norm="layer"), "pair_norm 'layer' is unknown; choose from exact, rms, approximate, none"),
    "linear pair norm": (lambda: nn.LinearCausalRN(12, pair_norm="exact"), "pair_norm 'exact' is unknown; choose from approximate, none"),
    "positions": (lambda: nn.Attention(12, positions="sinus"), "positions 'sinus' is unknown; choose from none, rope, alibi, hard_alibi"),
    "odd rope": (lambda: nn.Attention(12, 4, positions="rope"), "head_width 3 is odd; RoPE turns channels in pairs, give an even one"),
    "windows of rope": (lambda: nn.Attention(12, positions="rope", windows=1), "windows=1 with positions='rope'; only 'hard_alibi'"),
    "masked heads": (lambda: nn.Attention(12, 2, positions="hard_alibi", windows=3), "windows=3; give how many of the 2 heads are masked"),
    "masked heads below 0": (lambda: nn.Attention(12, 2, positions="hard_alibi", windows=-1), "windows=-1; give how many"),
    "bidirectional hard alibi": (lambda: nn.Attention(12, 2, positions="hard_alibi", causal=False), "needs causal=True"),
    "config": (lambda: nn.CausalRNConfig(heads=5).build(12), "hidden 12 is not divisible by heads=5"),
}  # fmt: skip


@pytest.mark.parametrize("case", MIXERS)
def test_arguments_of_mixers_that_do_not_fit_are_refused(case):
    build, message = MIXERS[case]
    with pytest.raises(ValueError, match=re.escape(message)):
        build()


INPUTS: dict[str, tuple[tuple, str]] = {
    "a list": (([[0.0]],), "x is a list; give a tensor of shape (batch, length, width)"),
    "no batch": ((X[0],), "x has shape (3, 12); give (batch, length, width)"),
    "width": ((torch.zeros(2, 3, 7),), "x has width 7; this "),
    "length 0": ((X[:, :0],), "x has shape (2, 0, 12): length and width must be at least 1"),
    "float16": ((X.half(),), "x is float16, whose range exp leaves at 11; use bfloat16 or float32 (x.bfloat16())"),
    "integers": ((X.long(),), "x is torch.int64; give float32, float64 or bfloat16"),
    "mask type": ((X, torch.ones(2, 3)), "mask is torch.float32; give a bool tensor, True = real token (mask.bool())"),
    "mask list": ((X, [[True]]), "mask is list; give a bool tensor"),
    "mask shape": ((X, torch.ones(2, 4, dtype=torch.bool)), "mask has shape (2, 4); give (batch, length) = (2, 3)"),
    "mask dimensions": ((X, torch.ones(2, 3, 1, dtype=torch.bool)), "mask has shape (2, 3, 1); give (batch, length)"),
}


@pytest.mark.parametrize("case", INPUTS)
@pytest.mark.parametrize("name", ALL_MIXERS)
def test_inputs_of_mixers_that_do_not_fit_are_refused(name, case):
    (x, *mask), message = INPUTS[case]
    with pytest.raises(ValueError, match=re.escape(message)):
        make_mixer(ALL_MIXERS[name])(x, mask=mask[0] if mask else None)


@pytest.mark.parametrize("name", ALL_MIXERS)
def test_autocast_to_float16_is_refused(name):
    with torch.autocast("cpu", torch.float16), pytest.raises(ValueError, match=r"autocast to float16.*bfloat16"):
        make_mixer(ALL_MIXERS[name])(X)


KINDS = ("causalrn", "linear-causalrn", "attention", "linear-attention", "lstm")


@pytest.mark.parametrize(("name", "other"), list(itertools.permutations(KINDS, 2)))
def test_a_state_of_another_kind_of_mixer_is_refused(name, other):
    mixer, other_mixer = make_mixer(CAUSAL[name]), make_mixer(CAUSAL[other])
    _, state = other_mixer(X)
    message = (
        f"the state is a {type(state).__name__} and {type(mixer).__name__} goes on from a {mixer.state_kind.__name__}"
    )
    with pytest.raises(ValueError, match=message):
        mixer(X, state)


@pytest.mark.parametrize("grown", [False, True])
@pytest.mark.parametrize("name", CAUSAL)
def test_a_state_of_another_width_or_batch_is_refused(name, grown):
    """Grown: a cache with room, where a batch of one would broadcast into all rows."""
    mixer = make_mixer(CAUSAL[name])
    with torch.no_grad():
        _, state = mixer(X)
        _, wide = CAUSAL[name].build(2 * WIDTH)(torch.zeros(2, 3, 2 * WIDTH))
        if grown:
            _, state = mixer(X, state)
        with pytest.raises(
            ValueError, match=r"the state has 2 rows and x has 1; take rows of it with state.select\(rows\)"
        ):
            mixer(X[:1], state)
        with pytest.raises(ValueError, match="the state has 2 rows and x has 3"):
            mixer(X[:1].expand(3, -1, -1), state)
        # Cases with a hidden or head width of their own have states of the same size in a model of any width.
        if getattr(CAUSAL[name], "hidden", None) is None and getattr(CAUSAL[name], "head_width", None) is None:
            with pytest.raises(ValueError, match=r"the state's .* is of size .* needs .*; give the state"):
                mixer(X, wide)


@pytest.mark.parametrize("name", ["attention", "linear-attention"])
def test_bidirectional_mixers_take_no_state(name):
    _, state = make_mixer(CAUSAL[name])(X)
    with pytest.raises(ValueError, match=r"has no state; call mixer\(x, mask\)"):
        make_mixer(BIDIRECTIONAL[name])(X, state)


CONFIGS: dict[str, tuple[dict, str]] = {
    "vocabulary": ({"vocab_size": 0}, "vocab_size=0; give an integer of at least 1"),
    "width": ({"width": -1}, "width=-1; give an integer of at least 1"),
    "depth": ({"depth": 0}, "depth=0; give an integer of at least 1"),
    "context": ({"context": 0}, "context=0; give an integer of at least 1"),
    "mlp": ({"mlp": 0}, "mlp=0; give an integer of at least 1"),
    "float": ({"width": 12.0}, "width=12.0; give an integer of at least 1"),
    "no context": (
        {"context": None},
        "positions='learned' need context=, the longest sequence; or take positions='none'",
    ),
    "positions": ({"positions": "rope"}, "positions 'rope' is unknown; choose from learned, none"),
    "too few mixers": ({"mixer": (nn.LSTMConfig(),)}, "1 mixers for depth=2; give one for all blocks, or one a block"),
    "too many mixers": ({"mixer": (nn.LSTMConfig(),) * 3}, "3 mixers for depth=2"),
    "no mixer": ({"mixer": "causalrn"}, "mixer is 'causalrn'; give a configuration such as nn.CausalRNConfig()"),
    "a list": ({"mixer": [nn.LSTMConfig()] * 2}, "mixer is a list; give one configuration a block as a tuple"),
    "bidirectional": ({"mixer": nn.BiRNConfig()}, "BiRNConfig is bidirectional; a SequenceModel needs causal mixers"),
    "one bidirectional": ({"mixer": (nn.LSTMConfig(), nn.LinearBiRNConfig())}, "LinearBiRNConfig is bidirectional"),
    "attention": ({"mixer": nn.AttentionConfig(causal=False)}, "AttentionConfig is bidirectional"),
    "linear attention": ({"mixer": nn.LinearAttentionConfig(causal=False)}, "LinearAttentionConfig is bidirectional"),
    "heads": ({"mixer": nn.AttentionConfig(heads=5)}, "width 12 is not divisible by heads=5"),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_model_configurations_that_do_not_fit_are_refused(case):
    changes, message = CONFIGS[case]
    with pytest.raises(ValueError, match=re.escape(message)):
        nn.SequenceModel(model_config(**({"mixer": nn.CausalRNConfig(), "depth": 2} | changes)))


MASK = torch.tensor([[True, False, True], [False, True, True]])
IDS: dict[str, tuple[tuple, str]] = {
    "a list": (([[1, 2]],), "ids are list; give an int64 tensor of token numbers, (batch, length)"),
    "floats": ((torch.zeros(2, 3),), "ids are torch.float32; give an int64 tensor"),
    "bools": ((MASK,), "ids are torch.bool; give an int64 tensor"),
    "no batch": ((torch.zeros(3, dtype=torch.int64),), "ids have shape (3,); give (batch, length), both at least 1"),
    "length 0": (
        (torch.zeros(2, 0, dtype=torch.int64),),
        "ids have shape (2, 0); give (batch, length), both at least 1",
    ),
    "batch 0": ((torch.zeros(0, 3, dtype=torch.int64),), "ids have shape (0, 3)"),
    "above": ((torch.tensor([[1, 2, VOCAB_SIZE]]),), "id 11 is outside the vocabulary of 0 to 10"),
    "below": ((torch.tensor([[1, -1, 2]]),), "id -1 is outside the vocabulary of 0 to 10"),
    "ignored label": ((torch.tensor([[1, -100, 2]]),), "id -100 is outside the vocabulary of 0 to 10"),
    "above, masked": ((torch.tensor([[1, 2, 99], [1, 2, 3]]), None, MASK), "id 99 is outside the vocabulary"),
    "mask type": ((random_ids(2, 3), None, MASK.long()), "mask is torch.int64; give a bool tensor"),
    "mask shape": ((random_ids(2, 3), None, MASK[:, :2]), "mask has shape (2, 2); give (batch, length) = (2, 3)"),
    "mask as state": ((random_ids(2, 3), MASK), "the state is not one of this model"),
    "too long": (
        (random_ids(2, 41),),
        "41 tokens, and the model takes at most 40; shorten the input or build with a larger context=",
    ),
    "mixer's state": ((random_ids(2, 3), nn.CausalRN(WIDTH)(X)[1]), "the state is not one of this model"),
}


@pytest.mark.parametrize("case", IDS)
def test_inputs_of_a_model_that_do_not_fit_are_refused(case):
    arguments, message = IDS[case]
    with pytest.raises(ValueError, match=re.escape(message)):
        make_model("causalrn")(*arguments)


@pytest.mark.parametrize("positions", ["learned", "none"])
def test_the_context_counts_real_tokens_past_ones_included(positions):
    model = nn.SequenceModel(model_config(nn.CausalRNConfig(), context=6, positions=positions))
    ids, mask = random_ids(2, 4), torch.tensor([[False, True, True, True], [False, False, True, True]])
    _, state = model(ids, None, mask)
    _, state = model(ids[:, :3], state, mask[:, :3])
    _, full = model(ids[:, :1], state)
    # Row 0 has 3 + 2 + 1 real tokens, row 1 one less; pads may go on for ever.
    model(ids, full, torch.zeros_like(mask))
    model(ids[:, :1], full, torch.tensor([[False], [True]]))
    with pytest.raises(ValueError, match="7 tokens, and the model takes at most 6"):
        model(ids[:, :1], full, torch.tensor([[True], [False]]))
    with pytest.raises(ValueError, match="7 tokens, and the model takes at most 6"):
        model(ids[:, :1], full)
    _, state = model(ids)
    model(ids[:, :2], state)
    with pytest.raises(ValueError, match="7 tokens, and the model takes at most 6"):
        model(ids[:, :3], state)


def test_a_model_without_a_context_takes_any_length():
    make_model("no-positions")(random_ids(1, 200))


def test_a_state_of_another_model_is_refused():
    model, ids = make_model("causalrn"), random_ids(2, 3)
    deeper = nn.SequenceModel(model_config(nn.CausalRNConfig(hidden=8), depth=3))
    for state, message in (
        (deeper(ids)[1], "the state is not one of this model; give the one that its last call returned"),
        (make_model("lstm")(ids)[1], "the state is a LSTMState and CausalRN goes on from a RelationState"),
        (make_model("causalrn-heads")(ids)[1], r"the state's source is of size \(12,\) and this CausalRN needs \(8,\)"),
        (model(ids[:1])[1], "the state has 1 rows and x has 2"),
        (model(ids[:1], None, MASK[:1])[1], "the state has 1 rows and ids have 2"),
        (model(ids.repeat(2, 1), None, MASK.repeat(2, 1))[1], "the state has 4 rows and ids have 2"),
    ):
        with pytest.raises(ValueError, match=message):
            model(ids, state)


def test_one_row_does_not_go_on_from_the_state_of_several():
    """Positions of several rows would be broadcast over it."""
    model, ids = make_model("causalrn"), random_ids(2, 3)
    _, state = model(ids, None, MASK)
    with pytest.raises(ValueError, match="the state has 2 rows and ids have 1"):
        model(ids[:1], state)


@pytest.mark.parametrize("rows", [[0, 1], torch.tensor([True, False]), torch.tensor([[0, 1]]), torch.tensor([0.0])])
def test_rows_that_are_no_row_numbers_are_refused(rows):
    _, state = make_model("hybrid")(random_ids(2, 3))
    with pytest.raises(ValueError, match="give an int64 tensor of row numbers"):
        state.select(rows)


def test_a_refused_call_leaves_the_state_as_it_was():
    model, ids = make_model("causalrn"), random_ids(2, 3)
    with torch.no_grad():
        _, state = model(ids)
        _, state = model(ids, state)
        expected, _ = model(ids, state)
        for wrong in (ids[:1], ids + VOCAB_SIZE):
            with pytest.raises(ValueError, match=r"rows|vocabulary"):
                model(wrong, state)
        assert torch.equal(model(ids, state)[0], expected)
