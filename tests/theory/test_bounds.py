"""The quantities of the proof, measured in the models themselves in float64."""

import math
import re
from pathlib import Path

import pytest
import torch

from relnet import ops, theory
from relnet.theory.residual import FIRST_LETTER, SEP

PAGE = Path(__file__).parents[2] / "docs" / "theory.md"
N, LENGTH = 3, 40
SETTINGS = [
    theory.CopyingRN(n=N),
    theory.CopyingRN(n=N, kappa=3000.0),
    theory.CopyingRN(n=N, amplitude=30.0, hot=5.0, kappa=4.0),
]


@pytest.fixture(scope="module")
def ids():
    asked = theory.items(theory.strings_without_repeat(2, LENGTH, N, 26, seed=0))
    return torch.cat([asked.prompts, asked.answers[:, :-1]], dim=1)


def rows_before_block_two(model, ids):
    with torch.no_grad():
        x = model.embedding(ids)
        return ops.plain_norm(model.blocks[0](x, None, None)[0])


def expected_lags(residual, ids):
    """lag k of position t: the code of x_(t-k), or at the start the mean of all codes so far."""
    codes = residual.codes()[ids]
    lags = torch.zeros(*ids.shape, N + 1, residual.bits, dtype=torch.float64)
    for t in range(ids.shape[1]):
        for k in range(N + 1):
            lags[:, t, k] = codes[:, t - k] if k <= t else codes[:, : t + 1].mean(1)
    return lags


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_row_holds_the_codes_of_the_last_tokens_up_to_one_factor_within_the_spread(settings, ids):
    residual = settings.residual
    r = rows_before_block_two(settings.build(torch.float64), ids) / residual.scale(1)
    read = r - r[..., residual.reference, None]
    expected = expected_lags(residual, ids).flatten(2)
    lags = read[..., residual.lag(0).start : residual.lag(N).stop]
    factor = (lags * expected).sum(-1) / expected.square().sum(-1)
    assert (lags - factor[..., None] * expected).abs().max() < 1e-8
    tokens = read[..., : residual.vocab_size].gather(2, ids[..., None])[..., 0]
    for one in (factor, tokens):
        assert (one - 1).abs().max() <= settings.spread
    assert (factor - 1).abs().max() > 1e-4 * settings.spread, "the spread is no bound of anything"


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_no_pair_passes_the_margin_or_the_noise_of_the_bound(settings, ids):
    model, residual, width = settings.build(torch.float64), settings.residual, settings.widths[1]
    r = rows_before_block_two(model, ids)
    mixer = model.blocks[1].mixer
    with torch.no_grad():
        p, q = mixer.source(r).unflatten(-1, (N, width)), mixer.target(r).unflatten(-1, (N, width))
    separator = LENGTH + 1
    matched, largest_noise = [], 0.0
    for j in range(separator, ids.shape[1]):
        found = []
        for head in range(N):
            pairs = ops.plain_norm(p[:, : j + 1, head] + q[:, j, None, head]).exp()
            values = pairs[..., -residual.alphabet - 2 : -1]
            gap = values.amax(-1) - values.amin(-1)
            matches = gap > 0.5 * theory.margin(settings, eta=0.0)
            found.append(matches)
            matched.append(gap[matches])
            largest_noise = max(largest_noise, float(gap.masked_fill(matches, 0.0).max()))
        right = j - separator + 1
        votes = torch.stack(found)
        assert votes[..., right].any(0).all(), f"target {j} does not find its source"
        votes[..., right] = False
        assert not votes.any(), f"target {j} finds another source"
    assert largest_noise <= theory.noise(settings)
    assert largest_noise > theory.noise(settings) / 20
    found, (least, most) = torch.cat(matched), theory.votes(settings)
    assert float(found.min()) >= least > theory.margin(settings) > 0
    assert float(found.max()) <= most
    alike, same = theory.votes(settings, eta=0.0)
    assert alike == pytest.approx(same)
    assert float(found.min()) < alike * (1 - 1e-7), "the votes do not differ at all"


def table_of_bounds():
    rows = re.findall(r"^\| (\d) \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|$", PAGE.read_text(), re.M)
    return [[int(cell.replace(",", "")) for cell in row] for row in rows]


def test_the_table_of_the_page_is_what_the_bounds_say():
    rows = table_of_bounds()
    assert len(rows) == 5
    for n, kappa, exact, tokens, converse in rows:
        settings = theory.CopyingRN(n=n, kappa=float(kappa))
        assert theory.most_tokens_rn(settings, eta=0.0) == exact
        assert theory.most_tokens_rn(settings) == tokens
        assert theory.most_tokens_converse_rn(settings) == converse


def test_the_spread_of_the_page_is_that_of_the_settings():
    assert "eta1 <= amp^2 b/(8 d1 V0)" in PAGE.read_text()
    settings = theory.CopyingRN(n=4)
    amp, std, of_lags = settings.gathering()
    bits, width = settings.residual.bits, settings.widths[0]
    # The middle of [V0, V0 + amp^2 b / (2 d1)] is what the weights reckon with.
    least = std**2 - amp**2 * bits / (4 * width)
    assert of_lags == pytest.approx(amp**2 * bits / (8 * width * least))
    assert settings.spread == pytest.approx(1.7e-6, abs=0.05e-6)


def test_where_pairs_vote_alike_the_converse_reaches_as_far_as_the_bound():
    for settings in SETTINGS:
        assert theory.most_tokens_converse_rn(settings, eta=0.0) >= theory.most_tokens_rn(settings, eta=0.0) > 0
        assert theory.most_tokens_converse_rn(settings) < theory.most_tokens_rn(settings)
    # As much is left of the keys as of the letter: nothing is said of any string.
    assert theory.most_tokens_converse_rn(SETTINGS[0], eta=0.1) == theory.most_tokens_rn(SETTINGS[0], eta=0.1) == 0


@pytest.mark.parametrize(("amplitude", "kappa"), [(3.0, 40.0), (10.0, 40.0), (1e4, 1e4)])
def test_the_bound_of_the_transformer_is_a_number_for_any_settings(amplitude, kappa):
    tokens = theory.most_tokens_transformer(theory.CopyingTransformer(n=4, amplitude=amplitude, kappa=kappa))
    assert tokens == 0 if amplitude < 1e4 else tokens > 10**300
    with pytest.raises(ValueError, match=r"eta=26\.0"):
        theory.most_tokens_transformer(theory.CopyingTransformer(n=4, amplitude=0.5))


@pytest.mark.parametrize(("length", "said"), [(1, 0), (2, 0), (2, 1), (3, 2)])
def test_the_sink_of_a_cut_gate_stands_above_every_source_but_the_right_one(length, said):
    """Scores of block 2 in units of kappa, over the one that agrees wholly: the sink at -1 and what its gate adds."""
    settings = theory.CopyingTransformer(n=9, kappa=1.0)
    # Letters whose codes differ from the delimiters' in one bit: the least that a cut gate adds.
    asked = theory.items(torch.tensor([[24, 18, 10][:length]]))
    ids = torch.cat([asked.prompts, asked.answers[:, :said]], dim=1)
    model, residual, width = settings.build(torch.float64), settings.residual, settings.head_width
    mixer, j = model.blocks[1].mixer, ids.shape[1] - 1
    with torch.no_grad():
        r = rows_before_block_two(model, ids)
        query, key, _ = mixer.query_key_value(r).unflatten(-1, (3, settings.n, width)).unbind(2)
        scores = torch.einsum("hc,ihc->hi", query[0, j], key[0]) / math.sqrt(width)
    for head, number in enumerate(range(1, settings.n)):
        if number - 1 <= j:
            continue
        sink, *others = (scores[head] - number * residual.bits).tolist()
        assert sink + 1 == pytest.approx(2 * (j - 1) / (j + 1), abs=1e-4)
        others.pop(said)
        assert all(other < sink - 1 for other in others)


def test_the_bound_is_the_figure_on_paper():
    settings = theory.CopyingRN(n=4)
    d, kappa, keys = 64, 100.0, 20
    delta = math.sqrt(d / ((4 * kappa**2 + 1) * (1 - (keys + 1) / d)))
    rho = math.sqrt((keys + 1) / (d - keys - 1))
    by_hand = (math.exp(math.sqrt(d - 1)) - 1) / (4 * math.exp(rho) * (math.exp(delta) - 1))
    assert by_hand - 1 <= theory.most_tokens_rn(settings, eta=0.0) < by_hand
    assert theory.most_tokens_rn(theory.CopyingRN(n=4, kappa=3000.0), eta=0.0) > 213_000
    assert theory.most_tokens_rn(settings) < theory.most_tokens_rn(settings, eta=0.0)


def test_the_bound_of_the_transformer_is_the_largest_count_that_satisfies_it():
    for kappa in (3.0, 10.0, 20.0):
        settings = theory.CopyingTransformer(n=4, kappa=kappa, amplitude=1e9)
        tokens = theory.most_tokens_transformer(settings)

        def holds(tokens, kappa=kappa):
            return 4 * tokens * (1 + math.exp(-kappa) + tokens * math.exp(-2 * kappa)) < math.exp(kappa)

        assert holds(tokens)
        assert not holds(math.ceil(tokens * (1 + 1e-9)) + 1)


@pytest.mark.parametrize("kappa", [1.0, 2.0])
def test_strings_within_the_bound_are_right_however_small_the_gain(kappa):
    settings = theory.CopyingRN(n=3, alphabet=2, kappa=kappa)
    length = min(theory.longest_without_repeat(3, 2), (theory.most_tokens_rn(settings) - 2) // 2)
    assert length >= 1
    strings = theory.all_strings(length, 2)
    strings = strings[~theory.repeats(strings, 3)]
    assert (theory.first_errors(settings.build(), strings) < 0).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"windows": False}, "no ablation"),
        ({"activation": "relu"}, "activation='exp'"),
        ({"pair_norm": "rms"}, "pair_norm='exact'"),
        ({"amplitude": 0.0}, "eta=inf"),
    ],
)
def test_the_bound_refuses_what_it_does_not_speak_of(change, message):
    with pytest.raises(ValueError, match=message):
        theory.most_tokens_rn(theory.CopyingRN(n=2, **change))


def test_tokens_and_delimiters_have_codes_of_their_own():
    for alphabet in (1, 2, 3, 4, 7, 8, 26, 31, 32):
        residual = theory.CopyingRN(n=2, alphabet=alphabet).residual
        codes = residual.codes()
        used = torch.cat([codes[FIRST_LETTER:], codes[SEP][None]])
        assert len(used.unique(dim=0)) == alphabet + 1
        assert (used.abs() == 1).all()


def test_the_margin_is_what_the_page_says_where_nothing_is_off():
    settings = SETTINGS[0]
    assert math.log1p(theory.margin(settings, eta=0.0)) == pytest.approx(math.sqrt(settings.widths[1] - 1))
