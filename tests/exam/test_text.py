import math

import numpy as np
import pytest
import torch

from relnet import exam, nn, recipes, run
from relnet.exam import ModelSubject, evaluate_text, sample_text
from relnet.tasks import Span
from tests.assertions import assert_close

VOCABULARY = 7
TABLE = torch.randn(VOCABULARY, VOCABULARY, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


class Bigrams:
    """Looks at the last token only, so however a text is cut, each token costs the same; remembers how far it could look back."""

    name, vocab_size = "bigrams", VOCABULARY

    def __init__(self, table=TABLE, limit=None):
        self.table, self.limit, self.widths = table, limit, []

    def logits(self, ids):
        self.widths.append(ids.shape[1])
        return self.table[ids]

    def read(self, ids, state=None):
        return self.logits(ids), None

    def start(self, prompts):
        return self.table[prompts[:, -1]], None

    def step(self, tokens, state):
        return self.table[tokens], None


def text_of(length, vocab_size=VOCABULARY):
    return np.random.default_rng(length).integers(0, vocab_size, length).astype(np.uint8)


def bits_by_hand(text, table=TABLE):
    bits = math.log2(len(table))
    for before, after in zip(text[:-1].tolist(), text[1:].tolist(), strict=True):
        bits -= float(table[before].log_softmax(-1)[after]) / math.log(2)
    return bits


@pytest.mark.parametrize("length", [*range(1, 20), 97])
def test_every_token_is_counted_exactly_once_however_the_text_is_cut(length):
    text = text_of(length)
    expected = bits_by_hand(text)
    ways = [
        {"context": c, "stride": s, "batch_size": b}
        for c in (1, 2, 5, 8, 200)
        for s in {1, c // 2 or 1, c}
        for b in (1, 3)
    ]
    for way in [*ways, {"context": 4, "carry": True}, {"context": 200, "carry": True}]:
        row = evaluate_text(Bigrams(), Span(text, 2 * length), **way)
        assert row.bits == pytest.approx(expected, rel=1e-12), way
        assert (row.tokens, row.bytes) == (length, 2 * length)
        assert row.bits_per_byte == pytest.approx(expected / (2 * length))
        assert row.perplexity == pytest.approx(2 ** (expected / length))


def test_of_a_large_vocabulary_fewer_windows_are_read_at_once(monkeypatch):
    class Rows(Bigrams):
        def logits(self, ids):
            self.most = max(getattr(self, "most", 0), len(ids))
            return super().logits(ids)

    span = Span(text_of(97), 97)
    monkeypatch.setattr(exam.text, "MOST_LOGITS", 3 * 8 * VOCABULARY)
    for context, most in ((8, 3), (4, 5), (50, 1)):
        subject = Rows()
        row = evaluate_text(subject, span, context=context, batch_size=5)
        assert row.bits == pytest.approx(bits_by_hand(span.tokens))
        assert subject.most == most


@pytest.mark.parametrize("way", [{"context": 9}, {"context": 9, "stride": 2}, {"context": 9, "carry": True}])
def test_a_model_that_knows_nothing_costs_8_bits_a_byte(way):
    subject = Bigrams(torch.zeros(256, 256))
    subject.vocab_size = 256
    row = evaluate_text(subject, Span(text_of(301, 256), 301), **way)
    assert row.bits_per_byte == pytest.approx(8, rel=1e-6)
    assert row.perplexity == pytest.approx(256, rel=1e-5)


def test_a_stride_gives_every_token_but_the_first_ones_a_context_of_what_is_left_of_the_window():
    """A model that sees k tokens costs k nats: the sum says how much each prediction could see."""

    class Counting(Bigrams):
        def logits(self, ids):
            # p(token 0) = e^-k at the k-th position, the rest on token 1; the text is all zeros.
            k = torch.arange(1, ids.shape[1] + 1, dtype=torch.float64).expand(ids.shape)
            return torch.stack([-k, (1 - (-k).exp()).log()], -1)

    subject = Counting()
    subject.vocab_size = 2
    for length in range(2, 40):
        for context, stride in ((8, 8), (8, 3), (8, 1)):
            row = evaluate_text(subject, Span(np.zeros(length, np.uint8), length), context=context, stride=stride)
            seen = []
            for target in range(1, length):
                number = max(0, math.ceil((target - context) / stride))
                seen.append(target - number * stride)
            assert row.bits * math.log(2) == pytest.approx(math.log(2) + sum(seen))


@pytest.mark.parametrize("mixer", [nn.LinearCausalRNConfig(), nn.CausalRNConfig(), nn.LSTMConfig()])
def test_a_carried_state_reads_the_text_as_one_sequence(mixer):
    torch.manual_seed(0)
    model = nn.SequenceModel(nn.ModelConfig(VOCABULARY, 16, 2, None, mixer, positions="none")).train()
    text = text_of(103)
    row = evaluate_text(ModelSubject(model), Span(text, 103), context=10, carry=True)
    ids = torch.from_numpy(text.astype(np.int64))[None]
    whole = torch.nn.functional.cross_entropy(model(ids[:, :-1])[0][0], ids[0, 1:], reduction="sum")
    expected = (whole + math.log(VOCABULARY)) / math.log(2)
    assert_close(torch.tensor(row.bits), expected.detach())
    assert row.stride == 0
    assert model.training


def test_what_does_not_fit_is_refused():
    span = Span(text_of(50), 50)
    for options, message in (
        ({"context": 8, "stride": 9}, "stride 9: from 1 to the context"),
        ({"context": 8, "stride": 0}, "stride 0"),
        ({"context": 8, "stride": 4, "carry": True}, "leave it out"),
        ({"context": 8, "batch_size": 0}, "batch_size 0"),
        ({"context": 31}, "at most 30 tokens, too few for a context of 31"),
        ({"context": 8, "carry": True}, "too few for the whole text"),
    ):
        with pytest.raises(ValueError, match=message):
            evaluate_text(Bigrams(limit=30), span, **options)
    with pytest.raises(ValueError, match="0 tokens of text"):
        evaluate_text(Bigrams(), Span(text_of(0), 0), context=8)
    with pytest.raises(ValueError, match="logits are NaN"):
        evaluate_text(Bigrams(TABLE * math.nan), span, context=8)


def test_a_sample_is_drawn_from_the_models_distribution_and_stops_at_its_limit():
    prompt = torch.tensor([1, 2])
    first = sample_text(Bigrams(), prompt, 4000, temperature=1.0, seed=1)
    assert torch.equal(first, sample_text(Bigrams(), prompt, 4000, temperature=1.0, seed=1))
    assert not torch.equal(first, sample_text(Bigrams(), prompt, 4000, temperature=1.0, seed=2))
    after = first[1:][first[:-1] == 3]
    shares = torch.bincount(after, minlength=VOCABULARY) / len(after)
    assert float((shares - TABLE[3].softmax(-1)).abs().max()) < 5 / math.sqrt(len(after))
    model = nn.SequenceModel(nn.ModelConfig(VOCABULARY, 16, 1, 12, nn.CausalRNConfig()))
    assert len(sample_text(ModelSubject(model), prompt, 50)) == 11
    with pytest.raises(ValueError, match="leaves no room"):
        sample_text(ModelSubject(model), torch.zeros(13, dtype=torch.int64), 1)


# Each letter goes on with a chance of 0.8 to the next and 0.2 / 3 to each other one.
CHAIN = np.full((4, 4), 0.2 / 3) + np.roll(np.eye(4), 1, axis=1) * (0.8 - 0.2 / 3)
ENTROPY = float(-(CHAIN * np.log2(CHAIN)).sum(1).mean())


def markov_text(length, seed):
    random, letters = np.random.default_rng(seed), [0]
    for draw in random.random(length - 1):
        letters.append(int(np.searchsorted(np.cumsum(CHAIN[letters[-1]]), draw)))
    return np.array(letters, np.uint8)


def test_the_process_itself_as_a_model_costs_its_entropy():
    text = markov_text(20_000, seed=0)
    row = evaluate_text(Bigrams(torch.from_numpy(np.log(CHAIN))), Span(text, len(text)), context=64)
    # Four standard deviations of the mean of 20,000 letters.
    assert row.bits_per_byte == pytest.approx(ENTROPY, abs=4 * 1.5 / math.sqrt(20_000))


def test_a_model_that_learns_a_markov_text_comes_near_its_entropy_and_not_below(tmp_path, monkeypatch):
    monkeypatch.setenv("RELNET_DATA", str(tmp_path / "data"))
    (tmp_path / "chain.txt").write_bytes((markov_text(40_000, seed=1) + ord("a")).tobytes())
    config = recipes.text(
        (str(tmp_path / "chain.txt"),),
        mixer="linear-causalrn", context=16, width=32, depth=1, batch_size=32, lr=5e-3, warmup_steps=10, max_steps=150,
    )  # fmt: skip
    finished = run.train(config, tmp_path / "run", device="cpu")
    task = finished.config.task
    text = np.asarray(task.validating.tokens) - ord("a")
    true = evaluate_text(Bigrams(torch.from_numpy(np.log(CHAIN))), Span(text, len(text)), context=16)
    # The first token costs log2 V in both, with another V.
    least = true.bits_per_byte + (8 - 2) / len(text)
    assert (
        finished.result.bits_per_byte
        == exam.evaluate_text(ModelSubject(finished.model), task.validating, context=16).bits_per_byte
    )
    assert least - 0.02 < finished.result.bits_per_byte < least + 0.15
