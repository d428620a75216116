"""Both hand-set models: exact, stopping included, if and only if the string repeats no n-gram."""

from functools import partial

import pytest
import torch

from relnet import exam, ops, theory
from relnet.tasks import Copying, score
from relnet.theory.ablations import NEEDED, NOT_NEEDED
from tests.ops.backends import PAIRWISE

MODELS = [theory.CopyingRN, theory.CopyingTransformer]
both = pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)


def assert_wrong_exactly_where_an_ngram_repeats(settings, strings):
    wrong = theory.first_errors(settings.build(), strings) >= 0
    expected = theory.repeats(strings, settings.n)
    assert torch.equal(wrong, expected), strings[wrong != expected][:3].tolist()


@both
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_of_all_short_strings_those_with_a_repeat_are_wrong_and_no_other(model, n):
    for length in range(1, 9):
        assert_wrong_exactly_where_an_ngram_repeats(model(n=n, alphabet=2), theory.all_strings(length, 2))


@pytest.mark.slow
@both
@pytest.mark.parametrize(
    ("n", "alphabet", "longest"), [(1, 4, 6), (2, 3, 8), (3, 3, 8), (4, 3, 8), (6, 3, 8), (4, 2, 12)]
)
def test_of_all_strings_those_with_a_repeat_are_wrong_and_no_other(model, n, alphabet, longest):
    for length in range(1, longest + 1):
        assert_wrong_exactly_where_an_ngram_repeats(model(n=n, alphabet=alphabet), theory.all_strings(length, alphabet))


@both
@pytest.mark.parametrize(("n", "alphabet"), [(8, 2), (4, 3), (2, 26), (3, 1), (2, 40)])
def test_the_longest_string_that_exists_is_copied(model, n, alphabet):
    assert theory.first_errors(model(n=n, alphabet=alphabet).build(), theory.de_bruijn(n, alphabet)[None]).tolist() == [
        -1
    ]


@pytest.mark.slow
@both
def test_the_longest_string_of_26_letters_without_a_repeated_trigram_is_copied(model):
    settings = model(n=3, kappa=3000.0) if model is theory.CopyingRN else model(n=3)
    string = theory.de_bruijn(3, 26)
    assert len(string) == 17_578
    assert theory.first_errors(settings.build(), string[None], chunk=256).tolist() == [-1]


@pytest.mark.slow
@both
@pytest.mark.parametrize("n", [3, 4])
def test_2000_letters_without_a_repeat_are_copied(model, n):
    built = model(n=n).build()
    strings = theory.strings_without_repeat(8, 2_000, n, 26, seed=0)
    assert (theory.first_errors(built, strings) < 0).all()
    items = theory.items(strings[:2])
    predictions, ties = exam.free_running(exam.ModelSubject(built), items)
    assert torch.equal(predictions, items.answers)
    assert not ties.any()


@pytest.mark.parametrize("kappa", [100.0, 3000.0])
@pytest.mark.parametrize("backend", PAIRWISE)
def test_every_backend_copies_at_any_gain_of_the_keys(backend, kappa, monkeypatch):
    monkeypatch.setattr(ops, "relation_mean", partial(ops.relation_mean, backend=backend))
    settings = theory.CopyingRN(n=2, kappa=kappa)
    strings = theory.strings_without_repeat(2, 100, 2, 26, seed=0)
    assert (theory.first_errors(settings.build(), strings) < 0).all()
    assert_wrong_exactly_where_an_ngram_repeats(settings, theory.uniform_strings(12, 25, 26, seed=1))


def test_an_op_whose_sum_of_squares_cancels_is_found_out(monkeypatch):
    def by_the_product(source, target, *, heads, windows, **_):
        """The exact pair norm from |p|^2 + |q|^2 + 2 p.q, which cancels where p is close to -q."""
        p, q = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (source, target))
        p, q = p - p.mean(-1, keepdim=True), q - q.mean(-1, keepdim=True)
        squares = p.square().sum(-1)[:, :, None] + q.square().sum(-1)[..., None] + 2 * q @ p.mT
        s = (squares / p.shape[-1]).clamp(min=1e-30).rsqrt()
        length = p.shape[2]
        at = torch.arange(length)
        seen = torch.stack([(at[:, None] >= at) & (at[:, None] - at < (w or length)) for w in windows or [0] * heads])
        terms = (s[..., None] * (q[:, :, :, None] + p[:, :, None])).exp() * seen[..., None]
        return (terms.sum(3) / seen.sum(-1)[..., None]).transpose(1, 2).flatten(-2)

    strings = theory.strings_without_repeat(4, 50, 3, 26, seed=0)
    monkeypatch.setattr(ops, "relation_mean", by_the_product)
    assert (theory.first_errors(theory.CopyingRN(n=3, kappa=3.0).build(), strings) < 0).all()
    assert (theory.first_errors(theory.CopyingRN(n=3, kappa=3000.0).build(), strings) >= 0).all()


@both
def test_free_running_equals_teacher_forced_and_ends(model):
    subject = exam.ModelSubject(model(n=2).build())
    items = theory.items(theory.uniform_strings(24, 24, 26, seed=5))
    whole = theory.repeats(items.answers[:, :-1] - 3, 2).logical_not()
    assert 0 < whole.sum() < 24
    forced, free = (score(decode(subject, items)[0], items.answers, Copying.EOS) for decode in exam.MODES.values())
    # Where followers of an n-gram have equal votes, rounding decides which of the errors comes first.
    assert torch.equal(forced.first_error < 0, whole)
    assert torch.equal(free.first_error < 0, whole)
    assert torch.equal(free.stopped[whole], torch.ones(int(whole.sum()), dtype=torch.int64))


@both
def test_the_exam_gives_the_share_of_strings_without_a_repeat(model):
    task, subject = Copying(), exam.ModelSubject(model(n=2).build())
    rows = exam.evaluate(subject, task, lengths=(20, 40), num=40)
    for row in rows:
        repeated = theory.repeats(task.items(40, row.length, seed=0).answers[:, :-1] - 3, 2)
        # Stopping scored: equal; not scored: a repeat may be survived.
        assert sum(error < 0 for error in row.first_errors) == 40 - int(repeated.sum())
        assert row.exact >= 40 - int(repeated.sum())


@pytest.mark.slow
@both
@pytest.mark.parametrize(("n", "length", "num"), [(3, 50, 300), (3, 100, 200), (4, 300, 60), (5, 1_000, 20)])
def test_the_error_on_uniform_strings_is_the_share_with_a_repeat(model, n, length, num):
    assert_wrong_exactly_where_an_ngram_repeats(model(n=n), theory.uniform_strings(num, length, 26, seed=2))


@pytest.fixture(scope="module")
def strings():
    return theory.strings_without_repeat(8, 100, 4, 26, seed=0)


@pytest.mark.parametrize("change", NEEDED)
def test_without_a_needed_part_strings_are_wrong(change, strings):
    assert (theory.first_errors(theory.CopyingRN(n=4, **NEEDED[change]).build(), strings) >= 0).float().mean() > 0.5


@pytest.mark.parametrize("change", NOT_NEEDED)
def test_other_changes_are_survived(change, strings):
    assert (theory.first_errors(theory.CopyingRN(n=4, **NOT_NEEDED[change]).build(), strings) < 0).all()


@both
def test_the_chunk_size_changes_nothing(model):
    built, strings = model(n=3).build(), theory.uniform_strings(6, 60, 26, seed=0)
    expected = theory.first_errors(built, strings)
    assert (expected >= 0).any()
    for chunk in (1, 50, 61, 62):
        assert torch.equal(theory.first_errors(built, strings, chunk), expected)


@both
def test_building_draws_no_random_number(model):
    before = torch.get_rng_state()
    model(n=2).build()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.CopyingRN(n=0), "n=0"),
        (lambda: theory.CopyingRN(n=2, alphabet=0), "alphabet=0"),
        (lambda: theory.CopyingRN(n=2, kappa=0.0), "kappa=0.0"),
        (lambda: theory.CopyingRN(n=2, amplitude=-1.0), "amplitude=-1.0"),
        (lambda: theory.CopyingRN(n=4, head_widths=(64, 48)), "d2 must be at least 49"),
        (lambda: theory.CopyingRN(n=4, head_widths=(12, 64)), "d1 must be at least 13"),
        (lambda: theory.CopyingTransformer(n=2, kappa=-1.0), "kappa=-1.0"),
        (lambda: theory.CopyingTransformer(n=2, amplitude=0.0), "amplitude=0.0"),
        (lambda: theory.first_errors(theory.CopyingRN(n=2).build(), torch.zeros(1, 3), chunk=0), "chunk=0"),
    ],
)
def test_settings_that_do_not_fit_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
