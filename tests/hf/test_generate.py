"""transformers' generate: every decoding it offers gives what the definition gives, and the rest is refused."""

import copy

import pytest
import torch
from torch import Tensor
from transformers import (
    DynamicCache,
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from relnet.hf import RelnetCache
from relnet.nn.generate import Sampling
from tests.assertions import assert_close
from tests.hf.models import make_hf
from tests.hf.test_equivalence import LENGTHS, LONGEST, padded
from tests.nn.cases import MODELS, make_model, random_ids

NUM_NEW = 6


@pytest.mark.parametrize("name", MODELS)
def test_greedy_generation_is_ours_with_and_without_a_cache_and_padding(name):
    model, ours = make_hf(name, torch.float64), make_model(name, torch.float64)
    for side in ("left", "right"):
        ids, mask = padded(side, junk=2)
        expected = ours.generate(ids, NUM_NEW, mask=mask.bool())
        for row, length in enumerate(LENGTHS):
            assert torch.equal(ours.generate(random_ids(1, length, seed=row), NUM_NEW)[0], expected[row])
        # A right-padded prompt read in chunks ends before its last one: refused (below).
        chunked = [{"prefill_chunk_size": 3}] if side == "left" else []
        for options in ({}, {"use_cache": False}, *chunked):
            found = model.generate(ids, attention_mask=mask, max_new_tokens=NUM_NEW, do_sample=False, **options)
            assert torch.equal(found[:, LONGEST:], expected), (side, options)
    alone = random_ids(1, LENGTHS[0], seed=0)
    found = model.generate(alone, max_new_tokens=NUM_NEW, do_sample=False)
    assert torch.equal(found[0, LENGTHS[0] :], expected[0])


def beam_search(model, ids: Tensor, num_beams: int, num_new: int) -> Tensor:
    """Without any cache: the num_beams best of all continuations at each step; no end of text."""
    beams = [(0.0, ids)]
    for _ in range(num_new):
        found = []
        for score, sequence in beams:
            log_probabilities = model(sequence)[0][0, -1].log_softmax(-1)
            found += [
                (score + float(p), torch.cat([sequence, torch.tensor([[token]])], 1))
                for token, p in enumerate(log_probabilities)
            ]
        beams = sorted(found, key=lambda pair: -pair[0])[:num_beams]
    return beams[0][1][0]


@pytest.mark.parametrize(
    "name", ["causalrn", "causalrn-windows", "linear-causalrn", "attention-rope", "lstm", "hybrid"]
)
def test_beam_search_finds_the_best_beams(name):
    model, ours = make_hf(name, torch.float64), make_model(name, torch.float64)
    ids, mask = padded("left", junk=0)
    found = model.generate(ids, attention_mask=mask, max_new_tokens=4, num_beams=3, do_sample=False)
    uncached = model.generate(ids, attention_mask=mask, max_new_tokens=4, num_beams=3, do_sample=False, use_cache=False)
    assert torch.equal(found, uncached)
    with torch.no_grad():
        for row, length in enumerate(LENGTHS):
            prompt = random_ids(1, length, seed=row)
            assert torch.equal(found[row, LONGEST:], beam_search(ours, prompt, 3, 4)[length:])


def test_sampling_is_that_of_the_seed_and_the_cache_changes_nothing():
    model = make_hf("causalrn", torch.float64)
    ids, mask = padded("left", junk=0)
    found = []
    for use_cache in (True, False):
        torch.manual_seed(3)
        options = {"do_sample": True, "temperature": 1.3, "top_k": 7, "top_p": 0.95, "min_p": 0.01}
        found.append(model.generate(ids, attention_mask=mask, max_new_tokens=9, use_cache=use_cache, **options))
    assert torch.equal(*found)


def test_our_filters_are_those_of_transformers():
    logits = 3 * torch.randn(200, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    theirs = LogitsProcessorList(
        [TemperatureLogitsWarper(0.7), TopKLogitsWarper(20), TopPLogitsWarper(0.9), MinPLogitsWarper(0.05)]
    )
    ours = Sampling(temperature=0.7, top_k=20, top_p=0.9, min_p=0.05).filtered(logits)
    expected = theirs(torch.zeros(200, 1, dtype=torch.int64), logits)
    assert torch.equal(ours.isinf(), expected.isinf())
    assert ours.isinf().any()
    assert_close(ours.softmax(-1), expected.softmax(-1), 1e-12)


def test_a_conversation_goes_on_from_its_cache():
    """The whole conversation is given again, and only what is new is read."""
    model = make_hf("hybrid", torch.float64)
    ids, turn = random_ids(2, 5), random_ids(2, 3, seed=1)
    cache = RelnetCache()
    first = model.generate(ids, max_new_tokens=4, do_sample=False, cache=cache)
    assert cache.get_seq_length() == 5 + 4 - 1
    whole = torch.cat([first, turn], 1)
    reads = []
    features = model.model.features
    model.model.features = lambda ids, *rest: (reads.append(ids.shape[1]), features(ids, *rest))[1]
    second = model.generate(whole, max_new_tokens=4, do_sample=False, cache=cache)
    assert reads == [4, 1, 1, 1]
    assert torch.equal(second, model.generate(whole, max_new_tokens=4, do_sample=False))


@pytest.mark.parametrize("training", [False, True])
def test_a_cache_that_is_given_moves_on_in_training_too(training):
    model = make_hf("hybrid", torch.float64).train(training)
    ids, cache = random_ids(2, 7), RelnetCache()
    parts = [model(part, cache=cache).logits for part in ids.split(3, 1)]
    assert cache.length == 7
    assert_close(torch.cat(parts, 1), model(ids).logits, 1e-12)


def test_a_cache_may_be_copied_when_a_gradient_went_through_it():
    model = make_hf("hybrid", torch.float64)
    cache = RelnetCache()
    ids = random_ids(2, 7)
    model(ids[:, :4], cache=cache)
    kept = copy.deepcopy(cache)
    first = model(ids[:, 4:], cache=cache).logits
    assert (kept.length, cache.length) == (4, 7)
    assert torch.equal(model(ids[:, 4:], cache=kept).logits, first)


def test_rows_that_end_are_padded_and_stay_so():
    model = make_hf("causalrn", torch.float64)
    ids = random_ids(3, 4)
    free = model.generate(ids, max_new_tokens=NUM_NEW, do_sample=False)[:, 4:]
    end = int(free[0, 1])
    found = model.generate(ids, max_new_tokens=NUM_NEW, do_sample=False, eos_token_id=end, pad_token_id=0)[:, 4:]
    ours = make_model("causalrn", torch.float64).generate(ids, NUM_NEW, stop_tokens=end)
    assert torch.equal(found, ours.masked_fill(ours == -1, 0))


IDS = torch.ones(2, 4, dtype=torch.int64)


def read(model, ids):
    cache = RelnetCache()
    model(ids, cache=cache)
    return cache


MISTAKES = {
    "embeddings": (lambda m: m(inputs_embeds=torch.zeros(1, 2, 12)), "inputs_embeds is not supported"),
    "nothing": (lambda m: m(), "takes input_ids"),
    "position ids": (lambda m: m(IDS, position_ids=IDS), "position_ids: not supported"),
    "hidden states": (lambda m: m(IDS, output_hidden_states=True), "output_hidden_states: not supported"),
    "hidden states, by the configuration": (
        lambda m: (setattr(m.config, "output_hidden_states", True), m(IDS)),
        "output_hidden_states: not supported",
    ),
    "an empty row": (
        lambda m: m.generate(IDS, attention_mask=torch.tensor([[1] * 4, [0] * 4]), max_new_tokens=2),
        "prompt of row 1 is empty",
    ),
    "attentions": (lambda m: m(IDS, output_attentions=True), "output_attentions: not supported"),
    "a cache of keys": (lambda m: m(IDS, cache=DynamicCache()), "cache is a DynamicCache; give a RelnetCache"),
    "a mask of 4 dimensions": (lambda m: m(IDS, attention_mask=torch.ones(2, 1, 4, 4)), "attention_mask is"),
    "a short mask": (lambda m: m(IDS, attention_mask=IDS[:, :3]), "attention_mask has shape"),
    "static cache": (lambda m: m.generate(IDS, max_new_tokens=2, cache_implementation="static"), "has its own"),
    "assisted": (lambda m: m.generate(IDS[:1], max_new_tokens=2, assistant_model=make_hf("lstm")), "only supports"),
    "lookup": (lambda m: m.generate(IDS[:1], max_new_tokens=2, prompt_lookup_num_tokens=2), "only supports"),
    "contrastive": (
        lambda m: m.generate(IDS, max_new_tokens=2, penalty_alpha=0.6, top_k=4, do_sample=False),
        "Contrastive Search",
    ),
    "right-padded chunks": (
        lambda m: m.generate(
            IDS, attention_mask=torch.tensor([[1, 1, 1, 1], [1, 0, 0, 0]]), max_new_tokens=2, prefill_chunk_size=2
        ),
        "prompt of row 1 ended before; pad prompts on the left",
    ),
    "no prompt": (lambda m: m.generate(IDS[:, :0], max_new_tokens=2), r"\(2, 0\)"),
    "too long": (lambda m: m.generate(IDS, max_new_tokens=60, do_sample=False), "at most 40"),
    "too long, with pads": (
        lambda m: m.generate(random_ids(1, 30), attention_mask=torch.tensor([[0] * 10 + [1] * 20]), max_new_tokens=22),
        "20 tokens of prompt and 22 new ones, and the model takes at most 40; give max_new_tokens=21 at most",
    ),
    "too long after a cache": (
        lambda m: m.generate(
            random_ids(1, 30),
            attention_mask=torch.ones(1, 30),
            cache=read(m, random_ids(1, 20)),
            max_new_tokens=12,
        ),
        "30 tokens of prompt and 12 new ones",
    ),
    "a cache that has read the whole prompt": (
        lambda m: m.generate(IDS, cache=read(m, IDS), max_new_tokens=2),
        "the cache holds 4 positions and input_ids 4; give all tokens from the start",
    ),
    "only what is new beside a cache": (
        lambda m: m.generate(IDS[:, :2], cache=read(m, IDS), max_new_tokens=2),
        "the cache holds 4 positions and input_ids 2; give all tokens from the start",
    ),
    "a mask to be added": (lambda m: m(IDS, attention_mask=(1 - IDS) * -1e9 - 1e9), "values other than 0 and 1"),
    "labels for some logits": (lambda m: m(IDS, labels=IDS, logits_to_keep=2), "give a label a token"),
    "labels of another length": (lambda m: m(IDS, labels=IDS[:, :3]), "give a label a token"),
    "more tokens": (lambda m: m.resize_token_embeddings(99), "keeps its vocabulary"),
    "an unknown token": (lambda m: m(IDS * 99), "id 99 is outside the vocabulary"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_is_not_supported_is_refused_by_name(name):
    call, message = MISTAKES[name]
    with pytest.raises(ValueError, match=message):
        call(make_hf("causalrn"))


@pytest.mark.parametrize("call", [lambda c: c.update(None, None, 0), lambda c: c.crop(-1)])
def test_a_cache_refuses_what_only_keys_and_values_can(call):
    with pytest.raises(NotImplementedError, match="RelnetCache"):
        call(RelnetCache())
