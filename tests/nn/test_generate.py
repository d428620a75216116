"""Generation: every way to ask gives the same tokens, choices follow their definitions, mistakes are refused."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from relnet import nn
from relnet.nn.generate import NO_TOKEN, Sampling, generate, stream
from tests.assertions import assert_close, assert_same_bits
from tests.nn.cases import MODELS, STATEFUL, VOCAB_SIZE, live, make_model, model_config, random_ids

NUM_NEW = 6
LENGTHS = (1, 7, 4)


def prompts() -> list[Tensor]:
    return [random_ids(1, length, seed=length) for length in LENGTHS]


def padded(side: str, junk: int = 0) -> tuple[Tensor, Tensor]:
    longest = max(LENGTHS) + 1
    ids, mask = torch.full((len(LENGTHS), longest), junk), torch.zeros(len(LENGTHS), longest, dtype=torch.bool)
    for row, prompt in enumerate(prompts()):
        at = slice(longest - prompt.shape[1], longest) if side == "left" else slice(0, prompt.shape[1])
        ids[row, at], mask[row, at] = prompt[0], True
    return ids, mask


def naive(model: nn.SequenceModel, ids: Tensor, num: int = NUM_NEW) -> Tensor:
    """Greedy, the whole context for every token, no state."""
    for _ in range(num):
        ids = torch.cat([ids, model(ids)[0][:, -1].argmax(-1, keepdim=True)], 1)
    return ids[:, -num:]


@pytest.mark.parametrize("name", MODELS)
def test_every_way_to_ask_gives_the_tokens_of_the_whole_context(name):
    model = make_model(name, torch.float64)
    expected = torch.cat([naive(model, prompt) for prompt in prompts()])
    for side in ("left", "right"):
        ids, mask = padded(side, junk=2**40)
        for chunk_tokens in (None, 1, 3, 100):
            tokens = model.generate(ids, NUM_NEW, mask=mask, chunk_tokens=chunk_tokens)
            assert torch.equal(tokens, expected), (side, chunk_tokens)
    for row, prompt in enumerate(prompts()):
        assert torch.equal(model.generate(prompt, NUM_NEW), expected[row : row + 1])
        with_mask = model.generate(prompt, NUM_NEW, mask=torch.ones_like(prompt, dtype=torch.bool))
        assert torch.equal(with_mask, expected[row : row + 1])


def test_a_stream_goes_on_from_its_state_in_a_later_process(tmp_path):
    """The last token was said, not read: it opens the next prompt."""
    for name in ("causalrn", "hybrid"):
        model = make_model(name, torch.float64)
        (prompt, *_) = prompts()[1:]
        whole = model.generate(prompt, 2 * NUM_NEW)
        first = stream(model, prompt, NUM_NEW)
        said = torch.stack(list(first), 1)
        model.save_state(first.state, tmp_path / name)
        state = make_model(name, torch.float64).load_state(tmp_path / name)
        assert torch.equal(torch.cat([said, model.generate(said[:, -1:], NUM_NEW, state=state)], 1), whole)
        other = random_ids(1, 3)
        assert torch.equal(
            model.generate(torch.cat([said[:, -1:], other], 1), NUM_NEW, state=state),
            model.generate(torch.cat([prompt, said, other], 1), NUM_NEW),
        )


def test_a_state_of_another_model_is_refused(tmp_path):
    model = make_model("causalrn")
    _, state = model(random_ids(1, 4))
    model.save_state(state, tmp_path / "state")
    loaded = make_model("causalrn").load_state(tmp_path / "state")
    for leaf, value in zip(live(loaded), live(state), strict=True):
        assert_same_bits(leaf, value)
    other = make_model("causalrn")
    with torch.no_grad():
        other.blocks[1].mixer.out.weight[3, 4] += 1e-6
    for wrong in (other, make_model("causalrn-heads"), make_model("causalrn", torch.bfloat16)):
        with pytest.raises(ValueError, match="state is the state of another model, or of other weights"):
            wrong.load_state(tmp_path / "state")
    state.save(tmp_path / "nobody's")
    with pytest.raises(ValueError, match="of another model"):
        model.load_state(tmp_path / "nobody's")
    recomputing = nn.SequenceModel(model_config(nn.CausalRNConfig(hidden=8), checkpointing=True))
    recomputing.load_state_dict(model.state_dict())
    recomputing.load_state(tmp_path / "state")


def test_rows_stay_stopped_and_leave_the_state():
    model = make_model("causalrn", torch.float64)
    ids, mask = padded("left")
    free = model.generate(ids, NUM_NEW, mask=mask)
    stop = int(free[0, 1])
    expected = free.clone()
    for row in expected:
        if (at := (row == stop).nonzero()).numel():
            row[at[0, 0] + 1 :] = NO_TOKEN
    assert (expected == NO_TOKEN).any()
    assert not (expected == NO_TOKEN).all(1).any()
    tokens = model.generate(ids, NUM_NEW, mask=mask, stop_tokens=stop)
    assert torch.equal(tokens, expected[:, : tokens.shape[1]])
    assert not (expected[:, tokens.shape[1] :] != NO_TOKEN).any()
    running = stream(model, ids, NUM_NEW, mask=mask, stop_tokens=[stop])
    for said in running:
        still = (said != NO_TOKEN) & (said != stop)
        if still.any():
            assert torch.equal(running.rows, still.nonzero()[:, 0])
            assert all(len(leaf) == int(still.sum()) for leaf in live(running.state))


@pytest.mark.parametrize("name", STATEFUL)
@pytest.mark.parametrize("masked", [False, True])
def test_the_state_of_a_stream_is_no_larger_than_what_it_needs(name, masked):
    """nbytes and nbytes_allocated are those of a state made in one call, up to room to grow."""
    model = make_model(name)
    ids, mask = padded("left") if masked else (random_ids(2, 5), None)
    running = stream(model, ids, 9, mask=mask)
    said = torch.stack(list(running), 1)[:, :-1]
    mask = None if mask is None else torch.cat([mask, torch.ones_like(said, dtype=torch.bool)], 1)
    _, whole = model(torch.cat([ids, said], 1), None, mask)
    assert running.state.nbytes == whole.nbytes == sum(leaf.numel() * leaf.element_size() for leaf in live(whole))
    assert running.state.nbytes <= running.state.nbytes_allocated <= 2 * whole.nbytes


def test_draws_do_not_depend_on_the_other_rows_but_on_the_seed():
    model = make_model("attention-alibi", torch.float64)
    ids, mask = padded("left")
    tokens = model.generate(ids, 12, mask=mask, temperature=1.5, seed=7)
    assert torch.equal(model.generate(ids, 12, mask=mask, temperature=1.5, seed=7), tokens)
    assert not torch.equal(model.generate(ids, 12, mask=mask, temperature=1.5, seed=8), tokens)
    assert torch.equal(model.generate(prompts()[0], 12, temperature=1.5, seed=7), tokens[:1])
    before = torch.get_rng_state()
    model.generate(ids, 2, mask=mask, temperature=1.0)
    assert torch.equal(torch.get_rng_state(), before)


class Fixed(torch.nn.Module):
    """Says the same logits whatever it reads."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.config = nn.ModelConfig(len(logits), 4, 1, None, nn.LSTMConfig(), positions="none")
        self.logits = logits
        self.head = torch.nn.Identity()

    def check(self, ids, state=None, mask=None):
        return ids

    def features(self, ids, state=None, mask=None):
        return self.logits.expand(*ids.shape, -1), nn.ModelState((), 0)


def test_samples_have_the_probabilities_of_the_filtered_logits():
    logits = torch.tensor([2.0, 1.0, 0.5, 0.0, -1.0, -math.inf])
    settings = {"temperature": 0.7, "top_p": 0.9}
    num = 20_000
    tokens = generate(Fixed(logits), torch.zeros(num, 1, dtype=torch.int64), 1, **settings)[:, 0]
    expected = Sampling(**settings).filtered(logits[None].double()).softmax(-1)[0]
    assert (expected == 0).sum() >= 2
    found = torch.bincount(tokens, minlength=6) / num
    assert not found[expected == 0].any()
    assert ((found - expected).abs() < 4 * (expected * (1 - expected) / num).sqrt() + 1e-9).all()


def test_filters_keep_what_their_definitions_say():
    logits = torch.tensor([[0.1, 0.4, 0.2, 0.3]]).log()

    def kept(**settings) -> list[int]:
        return Sampling(temperature=1.0, **settings).filtered(logits)[0].isfinite().nonzero()[:, 0].tolist()

    assert kept(top_k=2) == [1, 3]
    assert kept(top_k=99) == [0, 1, 2, 3]
    assert kept(top_p=0.39) == [1]
    assert kept(top_p=0.41) == [1, 3]
    assert kept(top_p=1.0) == [0, 1, 2, 3]
    assert kept(min_p=0.6) == [1, 3]
    assert kept(min_p=1.0) == [1]
    assert kept(top_k=3, top_p=0.5) == [1, 3]
    assert_close(Sampling(temperature=2.0).filtered(logits), (logits.double() - logits.max()) / 2)
    many = torch.randn(1, 100_000, generator=torch.Generator().manual_seed(0))
    assert Sampling(temperature=1.0, top_p=1.0).filtered(many).isfinite().all()


@pytest.mark.parametrize("temperature", [1e-6, 1e-45, 1e-300])
def test_a_temperature_near_zero_is_greedy(temperature):
    model = make_model("causalrn")
    assert torch.equal(model.generate(IDS, 5, temperature=temperature), model.generate(IDS, 5))


def test_stop_tokens_are_integers_of_any_kind():
    model = make_model("causalrn")
    expected = model.generate(IDS, NUM_NEW, stop_tokens=[2, 8])
    for stop in (np.array([2, 8]), torch.tensor([2, 8]), (np.int64(2), 8), iter([2, 8])):
        assert torch.equal(model.generate(IDS, NUM_NEW, stop_tokens=stop), expected)


def test_seen_tokens_are_penalised_and_pads_are_not_seen():
    model = Fixed(torch.tensor([1.0, 0.9, 0.8, -0.1]))
    ids = torch.tensor([[0, 1, 3]])
    assert generate(model, ids[:, :1], 4, repetition_penalty=1.2).tolist() == [[1, 0, 0, 0]]
    assert generate(model, ids[:, 2:], 3, repetition_penalty=1.3).tolist() == [[0, 1, 2]]
    mask = torch.tensor([[False, True, True]])
    assert generate(model, ids, 1, repetition_penalty=1.2, mask=mask).tolist() == [[0]]
    negative = Fixed(torch.tensor([-1.0, -1.1]))
    assert generate(negative, torch.tensor([[0]]), 1, repetition_penalty=1.2).tolist() == [[1]]


IDS = torch.zeros(2, 3, dtype=torch.int64)
MISTAKES = {
    "no tokens": (lambda m: m.generate(IDS[:, :0], 2), r"shape \(2, 0\); give \(batch, length\)"),
    "a list": (lambda m: m.generate([[1]], 2), "ids are list"),
    "an empty row": (
        lambda m: m.generate(IDS, 2, mask=torch.tensor([[True] * 3, [False] * 3])),
        "prompt of row 1 is empty",
    ),
    "too long a prompt": (lambda m: m.generate(IDS.repeat(1, 20), 2), "60 tokens of prompt.*at most 40; shorten"),
    "too many new tokens": (lambda m: m.generate(IDS, 39), "takes at most 40; give max_new_tokens=38 at most"),
    "none": (lambda m: m.generate(IDS, 0), "max_new_tokens=0"),
    "no chunk": (lambda m: m.generate(IDS, 2, chunk_tokens=0), "chunk_tokens=0"),
    "an unknown token": (lambda m: m.generate(IDS + VOCAB_SIZE, 2), f"id {VOCAB_SIZE} is outside the vocabulary"),
    "an unknown token, penalised": (
        lambda m: m.generate(IDS + 99, 2, repetition_penalty=2.0),
        "id 99 is outside the vocabulary",
    ),
    "half a stop": (lambda m: m.generate(IDS, 2, stop_tokens=[3.5]), r"stop_tokens=\[3.5\]; give a token number"),
    "no stop": (lambda m: m.generate(IDS, 2, stop_tokens=None), "stop_tokens=None"),
    "yes to top_k": (lambda m: m.generate(IDS, 2, temperature=1.0, top_k=True), "top_k=True"),
    "a state of nothing": (lambda m: m.generate(IDS, 2, state=m(IDS)[1].mixers[0]), "state is not one of this model"),
    "a state of other rows": (
        lambda m: m.generate(IDS.repeat(2, 1), 2, state=m(IDS, None, IDS == 0)[1]),
        "the state has 2 rows and ids have 4",
    ),
    "an unknown stop": (lambda m: m.generate(IDS, 2, stop_tokens=99), "stop token 99"),
    "a negative temperature": (lambda m: m.generate(IDS, 2, temperature=-1.0), "temperature=-1.0"),
    "a filter of nothing": (lambda m: m.generate(IDS, 2, top_k=5), "temperature=0 is greedy"),
    "top_k": (lambda m: m.generate(IDS, 2, temperature=1.0, top_k=0), "top_k=0"),
    "top_p": (lambda m: m.generate(IDS, 2, temperature=1.0, top_p=1.5), "top_p=1.5"),
    "min_p": (lambda m: m.generate(IDS, 2, temperature=1.0, min_p=0.0), "min_p=0.0"),
    "penalty": (lambda m: m.generate(IDS, 2, repetition_penalty=0), "repetition_penalty=0"),
    "seed": (lambda m: m.generate(IDS, 2, seed=-1), "seed=-1"),
    "an integer mask": (lambda m: m.generate(IDS, 2, mask=torch.ones_like(IDS)), "mask is torch.int64"),
    "another model's state": (
        lambda m: m.generate(IDS, 2, state=make_model("lstm")(IDS)[1]),
        "state is a LSTMState",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_refused_by_name(name):
    call, message = MISTAKES[name]
    with pytest.raises(ValueError, match=message):
        call(make_model("causalrn"))


@pytest.mark.parametrize("logits", [[0.0, math.nan], [0.0, math.inf], [-math.inf, -math.inf]])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_finite_are_refused(logits, temperature):
    with pytest.raises(ValueError, match="logits of row 0 are NaN or infinite"):
        generate(Fixed(torch.tensor(logits)), IDS, 2, temperature=temperature)


def test_philox_draws_are_those_of_its_raw_words():
    """The first draw of seed 0, row 0, as NumPy documents the generator."""
    word = int(np.random.Philox(key=np.array([0, 0], dtype=np.uint64)).random_raw()) >> 12
    u = word * 2.0**-52
    logits = torch.tensor([u / 2, u / 2 + 1e-9, 1 - u - 1e-9], dtype=torch.float64).log()
    assert generate(Fixed(logits), IDS[:1, :1], 1, temperature=1.0).tolist() == [[1]]
