"""The quantities of the proof, measured in the models themselves in float64."""

import math

import pytest
import torch

from relnet import ops, theory
from relnet.theory.residual import FIRST_LETTER, SEP

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
def test_no_pair_passes_the_lift_or_the_noise_of_the_bound(settings, ids):
    model, residual, width = settings.build(torch.float64), settings.residual, settings.widths[1]
    r = rows_before_block_two(model, ids)
    mixer = model.blocks[1].mixer
    with torch.no_grad():
        p, q = mixer.source(r).unflatten(-1, (N, width)), mixer.target(r).unflatten(-1, (N, width))
    separator = LENGTH + 1
    smallest_lift, largest_noise = math.inf, 0.0
    for j in range(separator, ids.shape[1]):
        found = []
        for head in range(N):
            pairs = ops.plain_norm(p[:, : j + 1, head] + q[:, j, None, head]).exp()
            values = pairs[..., -residual.alphabet - 2 : -1]
            gap = values.amax(-1) - values.amin(-1)
            matches = gap > 0.5 * theory.lift(settings, eta=0.0)
            found.append(matches)
            largest_noise = max(largest_noise, float(gap.masked_fill(matches, 0.0).max()))
        smallest_lift = min(smallest_lift, float(gap[matches].min()) if matches.any() else math.inf)
        right = j - separator + 1
        votes = torch.stack(found)
        assert votes[..., right].any(0).all(), f"target {j} does not find its source"
        votes[..., right] = False
        assert not votes.any(), f"target {j} finds another source"
    assert largest_noise <= theory.noise(settings)
    assert largest_noise > theory.noise(settings) / 20
    assert smallest_lift >= theory.lift(settings) > 0


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
