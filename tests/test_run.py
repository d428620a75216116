import dataclasses
import json
from typing import get_args

import pytest
import torch

from relnet import nn, recipes, report, run, train
from relnet.tasks import AnyTask, Copying, Images, Text
from relnet.train import TrainConfig
from tests.assertions import assert_same_bits

SMALL = {"length": 3, "width": 16, "depth": 2, "max_steps": 4, "batch_size": 8}


def small_config(**changes):
    return recipes.copying(**{**SMALL, **changes})


@pytest.fixture
def words(tmp_path, monkeypatch):
    """A text of 2,000 bytes."""
    monkeypatch.setenv("RELNET_DATA", str(tmp_path / "data"))
    path = tmp_path / "words.txt"
    path.write_text("".join(f"{number:03d} " for number in range(500)))
    return path


def text_config(path, **changes):
    options = {"width": 16, "depth": 1, "context": 16, "batch_size": 4, "max_steps": 6, "validate_every": 2}
    return recipes.text((str(path),), **{**options, "validation_share": 0.1, **changes})


def test_a_config_reloads_to_the_same_values_and_types():
    mixers = (
        nn.CausalRNConfig(heads=4, windows=(1, None, 3, 2), activation="gelu", pair_norm="rms", sum_norm=False),
        nn.LinearCausalRNConfig(hidden=24, pair_norm="none"),
        nn.AttentionConfig(heads=2, positions="hard_alibi", windows=1),
        nn.LinearAttentionConfig(heads=4),
        nn.LSTMConfig(hidden=20),
    )
    for mixer, depth in [(mixers, 5), *((one, 2) for one in mixers)]:
        config = run.RunConfig(
            "hybrid",
            Copying(length=5, layout="jelassi2024", min_length=2, max_context=40),
            nn.ModelConfig(29, 16, depth, 40, mixer, mlp=32, positions="none"),
            TrainConfig(steps=7, schedule="cosine", stop_accuracy=None),
        )
        again = run.config_from_json(run.config_to_json(config))
        assert again == config
        assert type(again.model.mixer) is type(config.model.mixer)
        assert isinstance(again.task, Copying)


@pytest.mark.parametrize(
    "kind", [kind for kind in get_args(AnyTask) if kind not in (Text, Images)], ids=lambda kind: kind.__name__
)
def test_a_config_of_a_letter_task_reloads_to_the_same_values_and_types(kind):
    task = kind(length=20, layout="jelassi2024", min_length=18, max_context=90)
    again = run.config_from_json(run.config_to_json(dataclasses.replace(small_config(), task=task)))
    assert again.task == task
    assert type(again.task) is kind


@pytest.mark.parametrize("validation", [None, "other.txt"])
def test_a_config_of_a_text_reloads_to_the_same_values_and_types(validation):
    task = Text(("a.txt", "folder"), 64, "bytes", validation, 0.1, stores=("abc", "def"))
    config = recipes.text(("any.txt",), mixer="hybrid", depth=4)
    config = dataclasses.replace(config, task=task)
    again = run.config_from_json(run.config_to_json(config))
    assert again == config
    assert isinstance(again.task, Text)
    assert isinstance(again.task.data, tuple)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(format=99), "format 99"),
        (lambda c: c["task"].update(_type="Juggling"), "Juggling.*known ones are Copying"),
        (lambda c: c["model"].update(widht=3), "widht"),
        (lambda c: c["model"].pop("width"), "width"),
        (lambda c: c["model"]["mixer"].update(_type="Mamba"), "does not fit"),
        (lambda c: c.pop("train"), "train"),
        (lambda c: c["train"].update(lr=-1.0), "lr"),
    ],
)
def test_a_config_that_does_not_fit_is_named(change, message):
    content = json.loads(run.config_to_json(small_config()))
    change(content)
    with pytest.raises(ValueError, match=message):
        run.config_from_json(json.dumps(content), "config.json")


def test_no_config_at_all_is_said():
    for text in ("", "[]", "{}", "not json"):
        with pytest.raises(ValueError, match=r"is not a run's config"):
            run.config_from_json(text)


def test_the_same_config_builds_the_same_weights_and_leaves_the_generator_alone():
    config = small_config()
    state = torch.get_rng_state()
    first, second = run.build_model(config), run.build_model(config)
    assert torch.equal(torch.get_rng_state(), state)
    for (name, one), other in zip(first.named_parameters(), second.parameters(), strict=True):
        assert_same_bits(one, other, name)
    other_seed = run.build_model(small_config(seed=1))
    assert not torch.equal(first.head.weight, other_seed.head.weight)


def test_train_leaves_a_folder_that_loads_to_the_trained_model(tmp_path):
    finished = run.train(small_config(), tmp_path / "run", device="cpu")
    config, model = run.load(tmp_path / "run")
    assert config == finished.config
    for (name, one), other in zip(finished.model.named_parameters(), model.parameters(), strict=True):
        assert_same_bits(one, other, name)
    assert finished.result.steps == 4
    assert finished.result.num_parameters == model.num_parameters


def test_a_folder_is_never_reused_in_silence(tmp_path):
    run.train(small_config(), tmp_path / "run", device="cpu")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match="already holds a run"):
        run.train(small_config(), tmp_path / "run", device="cpu")
    with pytest.raises(
        ValueError, match=r"another config \(task\.length 3 there, 4 here, model\.context 8 there, 10 here\)"
    ):
        run.train(small_config(length=4), tmp_path / "run", device="cpu", resume=True)
    assert {path: path.read_bytes() for path in before} == before


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_refused_start_writes_nothing_into_a_folder_that_holds_a_run(tmp_path):
    """Of relnet.train alone, which writes no config.json."""
    config = small_config()
    train.train(run.build_model(config), config.task, config.train, tmp_path, device="cpu")
    before = contents(tmp_path)
    for changes, resume, message in (
        ({}, False, "already holds a run"),
        ({"length": 4}, False, "already holds a run"),
        ({}, True, "holds a run, but not its config.json"),
        ({"length": 4}, True, "holds a run, but not its config.json"),
    ):
        with pytest.raises(ValueError, match=message):
            run.train(small_config(**changes), tmp_path, device="cpu", resume=resume)
        assert contents(tmp_path) == before


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(("name", "value"), [("device", "abacus"), ("trackers", ["papyrus"])])
def test_a_refused_start_leaves_no_folder(tmp_path, monkeypatch, name, value, named):
    monkeypatch.setenv(run.RUNS_VARIABLE, str(tmp_path))
    with pytest.raises(ValueError, match=r"abacus|papyrus"):
        run.train(small_config(), tmp_path / "run" if named else None, **{"device": "cpu", name: value})
    assert list(tmp_path.iterdir()) == []


def test_how_often_a_run_is_saved_may_change_at_a_resumption(tmp_path):
    def stop(record):
        if record.step == 3:
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        run.train(small_config(checkpoint_every=2), tmp_path, device="cpu", on_step=stop)
    steps = []
    often = small_config(checkpoint_every=1)
    often = dataclasses.replace(often, train=dataclasses.replace(often.train, keep=9))
    run.train(often, tmp_path, device="cpu", resume=True, on_step=lambda record: steps.append(record.step))
    assert steps == [3, 4]
    assert len(list((tmp_path / "checkpoints").iterdir())) == 4
    with pytest.raises(ValueError, match=r"another config \(train\.lr 0\.0005 there, 1\.0 here\)"):
        run.train(small_config(lr=1.0), tmp_path, device="cpu", resume=True)


def test_a_run_is_in_evaluation_mode_trained_and_loaded(tmp_path):
    finished = run.train(small_config(), tmp_path, device="cpu")
    again = run.train(small_config(), tmp_path, device="cpu", resume=True)
    assert not any(module.training for one in (finished, again) for module in one.model.modules())
    assert not any(module.training for module in run.load(tmp_path)[1].modules())


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "run").write_text("mine")
    with pytest.raises(ValueError, match="is a file"):
        run.train(small_config(), tmp_path / "run", device="cpu")
    assert (tmp_path / "run").read_text() == "mine"


def test_runs_go_where_the_variable_says_and_names_never_meet(tmp_path, monkeypatch):
    monkeypatch.setenv(run.RUNS_VARIABLE, str(tmp_path / "runs"))
    monkeypatch.setattr(run.time, "strftime", lambda _: "now")
    finished = [run.train(small_config(max_steps=1), device="cpu") for _ in range(3)]
    assert [one.folder.name for one in finished] == ["causalrn-now", "causalrn-now-2", "causalrn-now-3"]
    assert {one.folder.parent for one in finished} == {tmp_path / "runs"}


def test_two_that_take_a_new_folder_at_once_get_two(tmp_path, monkeypatch):
    monkeypatch.setenv(run.RUNS_VARIABLE, str(tmp_path))
    with run.run_folder(None, "a") as first, run.run_folder(None, "a") as second:
        assert first != second
        assert first.is_dir()
        (second / "log.jsonl").touch()
    assert [path.name for path in tmp_path.iterdir()] == [second.name], "an empty one is taken back"


def test_a_place_for_runs_that_is_no_folder_is_an_error(tmp_path, monkeypatch):
    for kind in ("file", "link"):
        monkeypatch.setenv(run.RUNS_VARIABLE, str(tmp_path / kind))
        (tmp_path / kind).symlink_to("nowhere") if kind == "link" else (tmp_path / kind).touch()
        with pytest.raises(OSError, match=kind), run.run_folder(None, "a"):
            pass


def test_several_processes_need_the_name_of_the_folder(tmp_path, monkeypatch):
    monkeypatch.setenv(run.RUNS_VARIABLE, str(tmp_path))
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match=r"several processes .*--out FOLDER"):
        run.train(small_config())
    assert list(tmp_path.iterdir()) == []


def test_an_unfinished_run_and_a_stranger_folder_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"no run folder"):
        run.load(tmp_path)
    (tmp_path / "config.json").write_text(run.config_to_json(small_config()))
    with pytest.raises(ValueError, match="not finished"):
        run.load(tmp_path)


def test_examine_asks_the_trained_length_and_appends(tmp_path):
    finished = run.train(small_config(), tmp_path / "run", device="cpu")
    rows = run.examine(finished, num=5)
    assert {row.length for row in rows} == {3}
    assert {row.mode for row in rows} == {"teacher_forced", "free_running"}
    again = run.examine(tmp_path / "run", lengths=(2, 3), num=5, seeds=(0, 1))
    lines = (tmp_path / "run" / "exam.jsonl").read_text().splitlines()
    assert len(lines) == len(rows) + len(again) == 2 + 8
    same = [row for row in again if row.length == 3 and row.seed == 0]
    assert [row.first_errors for row in same] == [row.first_errors for row in rows]


def test_examine_refuses_no_lengths_and_goes_to_the_device_it_is_told(tmp_path):
    finished = run.train(small_config(), tmp_path, device="cpu")
    for one in (finished, tmp_path):
        with pytest.raises(ValueError, match="lengths is empty"):
            run.examine(one, lengths=[])
        with pytest.raises(ValueError, match="device 'abacus'"):
            run.examine(one, device="abacus")
    assert not (tmp_path / "exam.jsonl").exists()


@pytest.mark.parametrize("left", [b"", b'{"task": "copying-cui', 1, 2])
def test_an_interrupted_exam_is_made_good_and_a_whole_one_not_repeated(tmp_path, left):
    """left: what a kill left of exam.jsonl, or how many of its lines."""
    configs = [small_config()]
    (finished,) = run.compare(configs, tmp_path, device="cpu")
    path = finished.folder / "exam.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) == 2
    path.write_bytes(left if isinstance(left, bytes) else b"".join(lines[:left]))
    before = path.read_bytes()
    run.compare(configs, tmp_path, device="cpu", resume=True)
    (found,) = report.read_runs([finished.folder])
    assert {row["mode"] for row in found.exam} == {"teacher_forced", "free_running"}
    assert path.read_bytes().startswith(before)
    assert (path.read_bytes() == before) == (left == 2)


def test_an_exam_of_other_lengths_or_seeds_does_not_count_as_the_runs(tmp_path):
    finished = run.train(small_config(), tmp_path, device="cpu")
    run.examine(finished, lengths=(2,), num=3)
    run.examine(finished, seeds=(1,), num=3)
    run.examine_unless_done(finished)
    rows = [json.loads(line) for line in (tmp_path / "exam.jsonl").read_text().splitlines()]
    assert [(row["length"], row["seed"]) for row in rows[4:]] == [(3, 0)] * 2
    run.examine_unless_done(finished)
    assert len((tmp_path / "exam.jsonl").read_text().splitlines()) == 6


def test_only_the_main_process_examines(tmp_path, monkeypatch):
    finished = run.train(small_config(), tmp_path, device="cpu")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    run.examine_unless_done(finished)
    assert not (tmp_path / "exam.jsonl").exists()


def test_compare_keeps_what_is_finished_and_resumes_the_rest(tmp_path):
    configs = [small_config(mixer=mixer) for mixer in ("causalrn", "lstm")]
    interrupted: list[int] = []

    def stop_in_the_second(record):
        interrupted.append(record.step)
        if len(interrupted) == 6:
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        run.compare(configs, tmp_path, device="cpu", on_step=stop_in_the_second)
    steps: list[int] = []
    runs = run.compare(configs, tmp_path, device="cpu", resume=True, on_step=lambda record: steps.append(record.step))
    assert steps == [1, 2, 3, 4]
    assert [one.result.steps for one in runs] == [4, 4]
    with pytest.raises(ValueError, match="name of its own"):
        run.compare([configs[0], configs[0]], tmp_path / "other", device="cpu")


def test_every_model_of_the_recipes_builds_and_is_the_papers():
    sizes = {}
    for name in recipes.MODEL_NAMES:
        config = recipes.copying(mixer=name)
        sizes[name] = nn.SequenceModel(config.model).num_parameters
    assert sizes["causalrn"] == sizes["linear-causalrn"] == 1_337_280
    assert sizes["transformer"] == sizes["linear-transformer"] == 5_325_504
    with pytest.raises(ValueError, match="unknown mixer 'mamba'; known ones are causalrn"):
        recipes.copying(mixer="mamba")


def test_the_papers_recipe_has_the_papers_settings():
    config = recipes.paper_copying()
    assert config.task == Copying(length=128)
    assert (config.train.batch_size, config.train.steps, config.train.lr, config.train.warmup_steps) == (
        320,
        2000,
        5e-4,
        50,
    )
    assert (config.train.precision, config.train.clip, config.train.schedule) == ("bfloat16", 1.0, "constant")
    assert (config.train.beta1, config.train.beta2, config.train.weight_decay) == (0.9, 0.999, 0.0)
    assert dataclasses.asdict(config.model)["depth"] == 12


def test_heads_of_a_model_that_has_none_are_refused_where_they_are_asked_of_it_alone():
    with pytest.raises(ValueError, match="heads=4: an LSTM has no heads"):
        recipes.copying(mixer="lstm", heads=4)
    causalrn, lstm = recipes.compare_copying(mixers=("causalrn", "lstm"), heads=4)
    assert causalrn.model.mixer == nn.CausalRNConfig(heads=4)
    assert lstm.model.mixer == nn.LSTMConfig()


@dataclasses.dataclass(frozen=True)
class StrangeConfig(nn.MixerConfig):
    mixer = nn.LSTM


def test_a_mixer_that_no_run_folder_can_hold_is_refused_before_anything_is_made(tmp_path):
    config = small_config()
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, mixer=StrangeConfig()))
    with pytest.raises(ValueError, match="StrangeConfig is no mixer that a run folder can hold"):
        run.train(config, tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_a_run_on_a_text_that_was_killed_goes_on_to_the_same_bits(words, tmp_path):
    whole = run.train(text_config(words), tmp_path / "whole", device="cpu")

    def stop(record):
        if record.step == 5:
            raise RuntimeError("power cut")

    config = text_config(words, checkpoint_every=3)
    with pytest.raises(RuntimeError, match="power cut"):
        run.train(config, tmp_path / "cut", device="cpu", on_step=stop)
    cut = run.train(config, tmp_path / "cut", device="cpu", resume=True)
    for (name, one), other in zip(whole.model.named_parameters(), cut.model.parameters(), strict=True):
        assert_same_bits(one, other, name)
    curves = [
        [(line["step"], line["loss"], line.get("bits_per_byte")) for line in map(json.loads, log.splitlines())]
        for log in ((tmp_path / name / "log.jsonl").read_text() for name in ("whole", "cut"))
    ]
    assert curves[0] == curves[1]
    assert [step for step, _, bits in curves[0] if bits is not None] == [2, 4, 6]
    assert cut.result.bits_per_byte == whole.result.bits_per_byte == curves[0][-1][2]


def test_another_text_in_the_same_file_is_not_gone_on_with(words, tmp_path):
    run.train(text_config(words), tmp_path / "run", device="cpu")
    words.write_text(words.read_text().replace("123", "321"))
    with pytest.raises(ValueError, match=r"holds another config \(task\.stores: the data.* no longer the same\)"):
        run.train(text_config(words), tmp_path / "run", device="cpu", resume=True)


def test_a_run_on_a_text_is_measured_once_whole_with_its_state_and_a_sample(words, tmp_path, monkeypatch):
    measured, evaluate_text = [], run.exam.evaluate_text
    monkeypatch.setattr(run.exam, "evaluate_text", lambda *a, **k: measured.append(a) or evaluate_text(*a, **k))
    (finished,) = run.compare([text_config(words)], tmp_path / "all", device="cpu")
    (found,) = report.read_runs([finished.folder])
    (row,) = found.text
    assert len(measured) == 3, "after 2, 4 and 6 updates; the last is the exam's too"
    assert (row["tokens"], row["bytes"], row["context"], row["stride"]) == (200, 200, 16, 16)
    assert row["bits_per_byte"] == finished.result.bits_per_byte
    # Linear CausalRN, width 16: two numbers of float32 a hidden channel and a block at least, whatever the context.
    assert row["state_bytes"] >= 16 * 4
    # The prompt is longer than the context: one token after the end of it is all that fits.
    assert (row["prompt"], len(row["sample"])) == (run.PROMPT, 1)


def test_a_prompt_is_asked_anew_and_a_result_not_measured_again(words, tmp_path):
    finished = run.train(text_config(words), tmp_path / "run", device="cpu")
    for prompt in ("abc", "abc", "de"):
        run.examine_unless_done(finished, prompt)
    rows = [json.loads(line) for line in (tmp_path / "run" / "exam.jsonl").read_text().splitlines()]
    assert [row["prompt"] for row in rows] == ["abc", "de"]
    assert len(rows[0]["sample"]) >= 1
    again = run.examine_text(tmp_path / "run", prompt="abc")
    assert again.to_json() == json.dumps(rows[0])
    with pytest.raises(ValueError, match="is a run on text, which has no items"):
        run.examine(finished)
    with pytest.raises(ValueError, match="is a run on copying-cui2024"):
        run.examine_text(run.train(small_config(max_steps=1), tmp_path / "copying", device="cpu"))


def test_the_papers_text_recipe_has_the_papers_settings_and_both_schedules():
    for rate, expected in {"constant": (1e-4, 0.0, "constant"), "cosine": (5e-4, 5e-5, "cosine")}.items():
        for mixer in recipes.MODEL_NAMES:
            config = recipes.paper_text(mixer, rate)
            train = config.train
            assert (train.lr, train.final_lr, train.schedule, train.warmup_steps) == (*expected, 2000)
            assert (train.batch_size, train.steps, train.precision) == (320, 6375, "bfloat16")
            assert (config.model.width, config.model.depth, config.model.context) == (768, 12, 256)
            assert config.task.data == ("wikitext-103",)
    assert config.model.mixers.count(nn.CausalRNConfig(3072)) == 2
    assert config.model.mixers.count(nn.LinearCausalRNConfig(3072)) == 10
    assert recipes.paper_text("causalrn").model.mixer == nn.CausalRNConfig(3072)
    transformer = recipes.paper_text("transformer").model
    assert (transformer.mixer, transformer.mlp) == (nn.AttentionConfig(heads=12), 3072)


def test_models_of_a_comparison_on_a_text_see_the_same_windows_and_weigh_the_same_a_block(words):
    configs = recipes.compare_text((str(words),))
    assert len({config.task for config in configs}) == len({config.train for config in configs}) == 1
    sizes = {run.build_model(config).num_parameters for config in configs}
    assert max(sizes) < 1.01 * min(sizes)
    with pytest.raises(ValueError, match="no mixers to compare"):
        recipes.compare_text((str(words),), mixers=())
