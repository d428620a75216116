import dataclasses
import json
import logging
import math
import time

import pytest
import torch
import torch.nn.functional as F

from relnet.tasks import IGNORE
from relnet.train import load_weights
from relnet.train import loop as module
from relnet.train.log import read_log, read_result
from tests.assertions import assert_close
from tests.train.fakes import (
    LENGTH,
    VOCABULARY,
    SuccessorTask,
    TinyModel,
    assert_same_weights,
    checkpoints,
    tiny_config,
    tiny_model,
    train_tiny,
)


def moved(model):
    return [name for name, p in model.named_parameters() if not torch.equal(p, tiny_model().get_parameter(name))]


def test_a_finished_run_leaves_log_checkpoints_weights_and_result(tmp_path):
    model = tiny_model()
    result = train_tiny(tmp_path / "run", model)
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        *(".lock", "checkpoints", "log.jsonl", "model.safetensors", "result.json")
    ]
    assert checkpoints(tmp_path / "run") == ["step-00000015.safetensors", "step-00000020.safetensors"]
    assert [line["step"] for line in read_log(tmp_path / "run" / "log.jsonl")] == list(range(1, 21))
    assert read_result(tmp_path / "run") == result
    content = json.loads((tmp_path / "run" / "result.json").read_text())
    assert set(content) == {
        *("format", "steps", "steps_to_accuracy", "steps_to_stay", "final_accuracy", "seconds_per_step"),
        *("wall_seconds", "num_parameters", "stopped", "device", "machine", "versions", "settings", "commit"),
        *("bits_per_byte", "perplexity", "test_loss", "test_accuracy"),
    }
    expected = {"format": 1, "steps": 20, "stopped": "limit", "device": "cpu", "steps_to_accuracy": None}
    assert {name: content[name] for name in expected} == expected
    assert content["settings"] == {
        "task": "SuccessorTask(vocab_size=8, context=6)",
        "penalty": None,
        **dataclasses.asdict(tiny_config()),
    }
    assert content["num_parameters"] == sum(p.numel() for p in model.parameters())
    assert 0 < content["seconds_per_step"] < content["wall_seconds"]
    saved = TinyModel()
    load_weights(saved, tmp_path / "run" / "model.safetensors")
    assert_same_weights(saved, model)


def test_the_log_holds_what_plain_pytorch_computes(tmp_path):
    """The loop against its definition: Adam on the mean cross-entropy over all targets, clipped, measured before."""
    config = tiny_config(steps=12, clip=0.3)
    model, expected, task = tiny_model(dropout=0.0), tiny_model(dropout=0.0), SuccessorTask()
    records = []
    module.train(model, task, config, tmp_path, device="cpu", on_step=records.append)
    adam = torch.optim.Adam(expected.parameters(), betas=(0.9, 0.999))
    strings = []
    for n, record in enumerate(records):
        batch = task.sample(8, config.seed, 8 * n)
        logits, _ = expected(batch.inputs)
        loss = F.cross_entropy(logits.transpose(1, 2), batch.targets, ignore_index=IGNORE)
        adam.zero_grad()
        loss.backward()
        norm = torch.cat([p.grad.flatten() for p in expected.parameters()]).norm()
        scale = min(1.0, 0.3 / float(norm))
        for parameter in expected.parameters():
            parameter.grad *= scale
        adam.param_groups[0]["lr"] = module.learning_rate(config, n)
        adam.step()
        accuracies = task.accuracy(logits.argmax(-1), batch.targets)
        strings += accuracies.tolist()
        assert record.step == n + 1
        assert record.loss == pytest.approx(loss.item(), rel=1e-5)
        assert record.grad_norm == pytest.approx(norm.item(), rel=1e-5)
        assert record.accuracy == pytest.approx(accuracies.mean().item())
        assert record.window_accuracy == pytest.approx(sum(strings) / len(strings))
        assert record.lr == module.learning_rate(config, n)
        assert record.samples == 8 * (n + 1)
        assert record.seconds > 0
    for (name, p), q in zip(model.named_parameters(), expected.parameters(), strict=True):
        assert_close(p, q, name=name)


def test_the_first_update_of_a_warm_up_moves_nothing(tmp_path):
    model = tiny_model()
    train_tiny(tmp_path / "one", model, steps=1)
    assert moved(model) == []
    train_tiny(tmp_path / "two", model, steps=2)
    assert moved(model) == [name for name, _ in model.named_parameters()]


@pytest.mark.parametrize("accumulate", [2, 4, 8])
def test_micro_batches_give_the_same_update_up_to_rounding(tmp_path, accumulate):
    """Micro-batches have different numbers of targets, so averaging their means would not do."""
    whole, pieces = tiny_model(dropout=0.0), tiny_model(dropout=0.0)
    train_tiny(tmp_path / "whole", whole)
    train_tiny(tmp_path / "pieces", pieces, accumulate=accumulate)
    for (name, p), q in zip(whole.named_parameters(), pieces.parameters(), strict=True):
        assert_close(q, p, name=name)
    for one, two in zip(*(read_log(tmp_path / run / "log.jsonl") for run in ("whole", "pieces")), strict=True):
        assert one["loss"] == pytest.approx(two["loss"], rel=1e-5)
        assert one["accuracy"] == two["accuracy"]


def test_the_seed_decides_the_run(tmp_path):
    models = [tiny_model() for _ in range(3)]
    for number, (model, seed) in enumerate(zip(models, (3, 3, 4), strict=True)):
        torch.rand(number)
        train_tiny(tmp_path / str(number), model, seed=seed)
    assert_same_weights(models[0], models[1])
    assert not torch.equal(models[0].hidden.weight, models[2].hidden.weight)


def test_bfloat16_computes_in_bfloat16_and_keeps_float32_weights(tmp_path):
    seen = set()

    class Watching(TinyModel):
        def forward(self, ids, state=None, mask=None):
            logits, state = super().forward(ids)
            seen.add(logits.dtype)
            return logits, state

    model, exact = Watching(dropout=0.0), tiny_model(dropout=0.0)
    model.load_state_dict(exact.state_dict())
    train_tiny(tmp_path / "bfloat16", model, precision="bfloat16")
    train_tiny(tmp_path / "float32", exact)
    assert seen == {torch.bfloat16}
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert_close(model.hidden.weight, exact.hidden.weight, tolerance=3e-2)
    assert not torch.equal(model.hidden.weight, exact.hidden.weight)


def test_training_stops_once_the_accuracy_has_stayed(tmp_path):
    options = {"steps": 400, "batch_size": 32, "lr": 0.03, "schedule": "constant", "checkpoint_every": 1000}
    result = train_tiny(tmp_path, stop_accuracy=0.95, stay=7, **options)
    assert result.stopped == "accuracy"
    assert result.steps_to_accuracy is not None
    assert result.steps_to_stay is not None
    assert 10 <= result.steps_to_accuracy <= result.steps_to_stay == result.steps - 7
    windows = [line["window_accuracy"] for line in read_log(tmp_path / "log.jsonl")]
    assert next(step for step, mean in enumerate(windows, start=1) if mean >= 0.95) == result.steps_to_accuracy
    assert all(mean >= 0.95 for mean in windows[result.steps_to_stay - 1 :])
    assert windows[-1] == result.final_accuracy
    assert checkpoints(tmp_path) == ["step-00000000.safetensors", f"step-{result.steps:08d}.safetensors"]


class Poisoned(TinyModel):
    """Its logits, or only their gradient, turn to NaN in one call."""

    def __init__(self, call, gradient_only):
        super().__init__()
        self.load_state_dict(tiny_model().state_dict())
        self.calls, self.call, self.gradient_only = 0, call, gradient_only

    def forward(self, ids, state=None, mask=None):
        logits, _ = super().forward(ids)
        self.calls += 1
        if self.calls == self.call and self.gradient_only:
            logits.register_hook(lambda gradient: gradient * math.nan)
        elif self.calls == self.call:
            logits = logits * math.nan
        return logits, None


@pytest.mark.parametrize("gradient_only", [False, True])
def test_a_loss_or_gradient_that_is_not_finite_stops_the_run_and_changes_nothing(tmp_path, gradient_only):
    model, whole = Poisoned(8, gradient_only), tiny_model()
    with pytest.raises(FloatingPointError, match=r"update 8 .*nan"):
        train_tiny(tmp_path / "run", model, schedule="constant")
    train_tiny(tmp_path / "whole", whole, schedule="constant", steps=7)
    assert_same_weights(model, whole)
    assert checkpoints(tmp_path / "run") == ["step-00000000.safetensors", "step-00000005.safetensors"]
    assert [line["step"] for line in read_log(tmp_path / "run" / "log.jsonl")] == [1, 2, 3, 4, 5, 6, 7]
    assert train_tiny(tmp_path / "run", model, schedule="constant", resume=True).steps == 20


@pytest.mark.parametrize("held", ["log.jsonl", "checkpoints", "model.safetensors", "result.json"])
def test_a_folder_that_holds_a_run_is_not_used_again_in_silence(tmp_path, held):
    (tmp_path / held).write_text("precious")
    with pytest.raises(
        ValueError, match=rf"already holds a run \({held}\): resume it \(--resume\), or use another folder"
    ):
        train_tiny(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [held]
    assert (tmp_path / held).read_text() == "precious"


def test_a_folder_may_hold_other_files_and_a_file_is_no_folder(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    train_tiny(tmp_path, steps=1)
    with pytest.raises(ValueError, match=r"config\.json is a file"):
        train_tiny(tmp_path / "config.json")


def test_a_finished_run_is_returned_without_training_again(tmp_path):
    model, other = tiny_model(), TinyModel()
    result = train_tiny(tmp_path, model)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    steps = []
    assert train_tiny(tmp_path, other, resume=True, on_step=steps.append) == result
    assert steps == []
    assert_same_weights(other, model)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def stop_after(step, error=RuntimeError):
    def on_step(record):
        if record.step == step:
            raise error

    return on_step


@pytest.mark.parametrize("step", [1, 4, 5, 7, 13, 20])
def test_a_run_that_was_stopped_anywhere_ends_with_the_same_bits(tmp_path, step):
    whole, resumed = tiny_model(), tiny_model()
    train_tiny(tmp_path / "whole", whole, stop_accuracy=0.4, stay=1000)
    with pytest.raises(RuntimeError):
        train_tiny(tmp_path / "run", tiny_model(), stop_accuracy=0.4, stay=1000, on_step=stop_after(step))
    torch.rand(step)
    result = train_tiny(tmp_path / "run", resumed, stop_accuracy=0.4, stay=1000, resume=True)
    assert_same_weights(resumed, whole)
    assert result.steps_to_accuracy == read_result(tmp_path / "whole").steps_to_accuracy
    logs = [read_log(tmp_path / run / "log.jsonl") for run in ("whole", "run")]
    assert [{**line, "seconds": 0} for line in logs[0]] == [{**line, "seconds": 0} for line in logs[1]]


def test_a_damaged_newest_checkpoint_costs_steps_but_no_bits(tmp_path, caplog):
    whole, resumed = tiny_model(), tiny_model()
    train_tiny(tmp_path / "whole", whole)
    with pytest.raises(RuntimeError):
        train_tiny(tmp_path / "run", on_step=stop_after(12))
    newest = tmp_path / "run" / "checkpoints" / "step-00000010.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1])
    train_tiny(tmp_path / "run", resumed, resume=True)
    assert newest.name in caplog.text
    assert_same_weights(resumed, whole)
    assert [line["step"] for line in read_log(tmp_path / "run" / "log.jsonl")] == list(range(1, 21))


def test_a_kill_between_the_last_update_and_the_result_is_made_good(tmp_path):
    model, resumed = tiny_model(), TinyModel()
    train_tiny(tmp_path, model)
    for name in ("result.json", "model.safetensors"):
        (tmp_path / name).unlink()
    result = train_tiny(tmp_path, resumed, resume=True)
    assert_same_weights(resumed, model)
    assert read_result(tmp_path) == result
    assert len(read_log(tmp_path / "log.jsonl")) == 20


def test_wall_time_adds_up_over_resumptions(tmp_path):
    def slow(record):
        time.sleep(0.02)
        stop_after(11)(record)

    with pytest.raises(RuntimeError):
        train_tiny(tmp_path, on_step=slow)
    assert train_tiny(tmp_path, resume=True).wall_seconds > 10 * 0.02


def test_resuming_an_empty_folder_starts_from_the_beginning(tmp_path):
    assert train_tiny(tmp_path / "new", resume=True).steps == 20


class OtherTask(SuccessorTask):
    """What follows a token is the number after the next."""


@pytest.mark.parametrize("finished", [False, True])
def test_resuming_with_other_settings_or_another_task_is_refused(tmp_path, finished):
    if finished:
        train_tiny(tmp_path)
    else:
        with pytest.raises(RuntimeError):
            train_tiny(tmp_path, on_step=stop_after(7))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for changes, message in (
        ({"lr": 0.5}, r"lr=0\.5, but the run in .* has 0\.01"),
        ({"steps": 30}, r"steps=30, but the run in .* has 20"),
        ({"seed": 9}, r"seed=9, but the run in .* has 0"),
    ):
        with pytest.raises(ValueError, match=message):
            train_tiny(tmp_path, resume=True, **changes)
    for task in (OtherTask(), SuccessorTask(context=7)):
        with pytest.raises(
            ValueError, match=r"task='.*', but the run in .* has 'SuccessorTask\(vocab_size=8, context=6\)'"
        ):
            module.train(tiny_model(), task, tiny_config(), tmp_path, device="cpu", resume=True)
    assert {path: path.read_bytes() for path in before} == before
    assert train_tiny(tmp_path, resume=True, checkpoint_every=3, keep=1).steps == 20


def test_a_task_that_says_nothing_of_itself_is_known_by_its_class(tmp_path):
    class Plain(SuccessorTask):
        __repr__ = object.__repr__

    assert repr(Plain()) != repr(Plain())
    with pytest.raises(RuntimeError):
        module.train(tiny_model(), Plain(), tiny_config(), tmp_path, device="cpu", on_step=stop_after(7))
    assert module.train(tiny_model(), Plain(), tiny_config(), tmp_path, device="cpu", resume=True).steps == 20


def test_a_log_without_a_checkpoint_is_not_cut(tmp_path):
    with pytest.raises(RuntimeError):
        train_tiny(tmp_path, on_step=stop_after(3))
    log = (tmp_path / "log.jsonl").read_bytes()
    (tmp_path / "checkpoints").rename(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=r"has 3 updates in its log, but no checkpoint .* put checkpoints/ back"):
        train_tiny(tmp_path, resume=True)
    assert (tmp_path / "log.jsonl").read_bytes() == log
    (tmp_path / "elsewhere").rename(tmp_path / "checkpoints")
    assert train_tiny(tmp_path, resume=True).steps == 20


def test_from_the_first_update_on_there_is_a_checkpoint(tmp_path):
    """Its weights count, not those that the caller has at the resumption."""
    whole, resumed = tiny_model(), TinyModel()
    train_tiny(tmp_path / "whole", whole)
    with pytest.raises(FloatingPointError, match=r"update 1 .*the last checkpoint is good"):
        train_tiny(tmp_path / "run", Poisoned(1, gradient_only=False))
    assert checkpoints(tmp_path / "run") == ["step-00000000.safetensors"]
    train_tiny(tmp_path / "run", resumed, resume=True)
    assert_same_weights(resumed, whole)


def test_on_start_is_called_before_anything_is_written_and_only_where_training_begins(tmp_path):
    seen = []

    def on_start():
        seen.append([path.name for path in tmp_path.iterdir()])

    train_tiny(tmp_path, on_start=on_start)
    assert seen == [[".lock"]]
    train_tiny(tmp_path, on_start=on_start, resume=True)
    with pytest.raises(ValueError, match="already holds a run"):
        train_tiny(tmp_path, on_start=on_start)
    assert len(seen) == 1


def test_what_on_start_draws_changes_no_bit(tmp_path):
    models = [tiny_model(), tiny_model()]
    train_tiny(tmp_path / "one", models[0])
    train_tiny(tmp_path / "two", models[1], on_start=lambda: torch.rand(7))
    assert_same_weights(*models)


@pytest.mark.parametrize(("name", "value"), [("device", "abacus"), ("trackers", ["papyrus"])])
def test_a_refused_start_makes_no_folder(tmp_path, name, value):
    with pytest.raises(ValueError, match=r"abacus|papyrus"):
        train_tiny(tmp_path / "run", **{name: value})
    assert list(tmp_path.iterdir()) == []


def test_other_surroundings_at_a_resumption_are_told(tmp_path, caplog, monkeypatch):
    with pytest.raises(RuntimeError):
        train_tiny(tmp_path, on_step=stop_after(7))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 77)
    with caplog.at_level(logging.WARNING):
        train_tiny(tmp_path, resume=True)
    assert "and is now 77" in caplog.text


def test_a_model_with_tied_weights_is_trained_and_resumed(tmp_path):
    whole, resumed = tiny_model(tied=True), tiny_model(tied=True)
    result = train_tiny(tmp_path / "whole", whole)
    assert result.num_parameters == VOCABULARY * 8 + 8 * 8 + 8
    with pytest.raises(RuntimeError):
        train_tiny(tmp_path / "run", tiny_model(tied=True), on_step=stop_after(12))
    train_tiny(tmp_path / "run", resumed, resume=True)
    assert resumed.readout.weight is resumed.embedding.weight
    assert_same_weights(resumed, whole)


def test_a_float64_model_is_trained_in_float64(tmp_path):
    single, double = tiny_model(dropout=0.0), tiny_model(dropout=0.0).double()
    train_tiny(tmp_path / "single", single)
    train_tiny(tmp_path / "double", double)
    assert double.hidden.weight.dtype == torch.float64
    assert_close(single.hidden.weight, double.hidden.weight)


def test_training_prints_nothing(tmp_path, capfd):
    train_tiny(tmp_path)
    assert capfd.readouterr() == ("", "")


def test_the_fake_task_is_what_these_tests_need():
    batch = SuccessorTask().sample(64, seed=0, index=0)
    assert batch.inputs.shape == (64, LENGTH)
    assert len({int(number) for number in (batch.targets != IGNORE).sum(1)}) == LENGTH
