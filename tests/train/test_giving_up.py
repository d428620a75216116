import pytest

from relnet.train.log import read_log
from tests.train.fakes import train_tiny


@pytest.mark.parametrize(("lr", "stopped", "steps"), [(1e-6, "given up", 50), (0.03, "limit", 60)])
def test_a_run_that_has_learnt_too_little_by_then_is_given_up(tmp_path, lr, stopped, steps):
    options = {"steps": 60, "batch_size": 32, "lr": lr, "schedule": "constant", "give_up_after": 50}
    result = train_tiny(tmp_path, **options)
    assert (result.stopped, result.steps) == (stopped, steps)
    accuracy = read_log(tmp_path / "log.jsonl")[49]["window_accuracy"]
    assert (accuracy < 0.5) == (stopped == "given up")
    assert train_tiny(tmp_path, resume=True, **options) == result
