import json
import re
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest
import torch

from relnet import exam, protocol, recipes, report
from relnet.report.verdict import best
from relnet.tasks import Copying, DuplicatedNgram, PrefixLookup
from relnet.train import TrainConfig

QUICK = TrainConfig(steps=3, batch_size=4, stop_accuracy=None)


def candidates(*mixers, **options):
    return recipes.candidates(mixers, width=16, depth=1, **options)


def sit(folder, who=None, papers=("copying-4",), lengths=(2, 4), **options):
    return protocol.sit(
        who or candidates("causalrn"),
        [recipes.paper(name, QUICK, lengths) for name in papers],
        folder,
        **{"num": 5, "device": "cpu", **options},
    )


def test_each_candidate_is_trained_on_each_paper_with_each_rate_and_seed_and_asked_each_length(tmp_path):
    lines = sit(tmp_path, candidates("causalrn", "lstm"), lrs=(1e-3, 1e-2), seeds=(0, 1))
    keys = ("subject", "lr", "train_seed", "seed", "length", "mode")
    found = [tuple(line[key] for key in keys) for line in lines]
    assert found == [
        (name, lr, seed, seed, length, mode)
        for name in ("causalrn", "lstm")
        for lr in (1e-3, 1e-2)
        for seed in (0, 1)
        for length in (2, 4)
        for mode in ("teacher_forced", "free_running")
    ]
    assert {(line["train_length"], line["steps"], line["samples"], line["items"]) for line in lines} == {(4, 3, 12, 5)}
    assert len({line["parameters"] for line in lines}) == 2
    assert [json.loads(line) for line in (tmp_path / "exam.jsonl").read_text().splitlines()] == json.loads(
        json.dumps(lines)
    )
    assert (tmp_path / "lstm" / "copying-4" / "lr-0.01-seed-1" / "model.safetensors").exists()


def test_what_was_interrupted_goes_on_to_the_same_lines(tmp_path):
    whole = sit(tmp_path / "whole", lrs=(1e-3, 1e-2))

    class StoppedError(Exception):
        pass

    steps = []

    def stop_in_the_second_training(record):
        steps.append(record.step)
        if len(steps) == 5:
            raise StoppedError

    with pytest.raises(StoppedError):
        sit(tmp_path / "cut", lrs=(1e-3, 1e-2), on_step=stop_in_the_second_training)
    again = []
    lines = sit(tmp_path / "cut", lrs=(1e-3, 1e-2), on_step=lambda record: again.append(record.step))
    assert len(again) <= 3, "the first training is not done again"
    own = {"wall_seconds"}
    assert [{k: v for k, v in line.items() if k not in own} for line in lines] == [
        {k: v for k, v in line.items() if k not in own} for line in whole
    ]


def test_another_call_adds_to_a_folder_and_replaces_what_it_asks_again(tmp_path):
    sit(tmp_path)
    lines = sit(tmp_path, candidates("lstm"), lengths=(4,))
    assert [(line["subject"], line["length"]) for line in lines] == [("causalrn", 2)] * 2 + [("causalrn", 4)] * 2 + [
        ("lstm", 4)
    ] * 2
    lines = sit(tmp_path, num=6)
    assert [line["items"] for line in lines if line["subject"] == "causalrn"] == [6] * 4
    assert len(lines) == 6
    assert report.read_exam(tmp_path / "exam.jsonl") == json.loads(json.dumps(lines))


def test_a_trained_model_is_examined_on_further_tasks_each_at_its_length(tmp_path):
    longer = DuplicatedNgram(9, "jelassi2024", ngram=2)
    paper = replace(recipes.paper("copying-4", QUICK, (4,)), others=(longer,))
    assert paper.context == longer.size(9)
    lines = protocol.sit(candidates("causalrn"), [paper], tmp_path, num=5, device="cpu")
    assert [(line["task"], line["length"], line["train_length"], line["items"]) for line in lines] == [
        *[("copying-jelassi2024", 4, 4, 5)] * 2,
        *[("duplicated-ngram-2-jelassi2024", 9, 4, 5)] * 2,
    ]


def test_a_folder_is_not_gone_on_with_by_another_candidate_of_the_same_name(tmp_path):
    sit(tmp_path)
    other = replace(candidates("causalrn")[0], identity="another one")
    with pytest.raises(ValueError, match=r"holds a training of causalrn, width 16.* and another one.* is asked for"):
        sit(tmp_path, [other])
    with pytest.raises(ValueError, match="each candidate needs a name of its own"):
        sit(tmp_path, candidates("lstm", "lstm"))
    for given in ({"lrs": ()}, {"seeds": ()}):
        with pytest.raises(ValueError, match="given: at least one wanted"):
            sit(tmp_path, **given)


def test_what_is_asked_is_told_before_it_is_known(tmp_path):
    told = []
    sit(tmp_path, on_ask=told.append, on_row=lambda row: told.append(row.length))
    assert told == [
        said
        for length in (2, 4)
        for mode in ("teacher_forced", "free_running")
        for said in (f"causalrn  copying-jelassi2024  length {length}  {mode}", length)
    ]


def test_a_training_that_diverges_is_told_and_the_sitting_goes_on(tmp_path):
    rows = []
    lines = sit(tmp_path, candidates("causalrn", "lstm"), lrs=(1e38, 1e-3), on_row=rows.append)
    asked = {(line["subject"], line["lr"]): line for line in lines}
    assert len(lines) == len(rows) == 2 * 2 * 2 * 2
    for name in ("causalrn", "lstm"):
        bad, good = asked[name, 1e38], asked[name, 1e-3]
        assert (bad["items"], bad["train_accuracy"], good["items"], good["note"]) == (0, 0.0, 5, "")
        assert re.match(r"diverged in training at lr 1e\+38 \(update \d in .*: loss ", bad["note"])
    assert [line["lr"] for line in best(lines)] == [1e-3] * 8
    assert sit(tmp_path, candidates("causalrn", "lstm"), lrs=(1e38, 1e-3)) == lines
    assert "not asked: diverged in training" in " ".join(report.verdict(lines).split())


class NaNBeyond(torch.nn.Module):
    """Logits of the last token alone, NaN from a number of tokens on."""

    def __init__(self, tokens):
        super().__init__()
        self.tokens = tokens
        self.embedding, self.head = torch.nn.Embedding(29, 8), torch.nn.Linear(8, 29)
        self.config = exam.pretrained.Shape(29, None)
        self.num_parameters = 1

    def forward(self, ids, state=None, mask=None):
        seen = ids.shape[1] + (state or 0)
        logits = self.head(self.embedding(ids))
        return (logits * torch.nan if seen > self.tokens else logits), seen


def test_of_a_trained_model_that_gives_nan_only_those_lengths_are_unasked_and_the_sitting_goes_on(tmp_path):
    broken = protocol.Candidate("broken", lambda vocab, context: NaNBeyond(30), "broken")
    rows = []
    lines = sit(tmp_path, [broken, *candidates("causalrn")], lengths=(40, 4, 8), on_row=rows.append)
    told = [(line["subject"], line["length"], line["items"], line["note"]) for line in lines]
    assert told == [
        *[("broken", 40, 0, "gives NaN, trained at lr 0.0005")] * 2,
        *[("broken", length, 5, "") for length in (4, 4, 8, 8)],
        *[("causalrn", length, 5, "") for length in (40, 40, 4, 4, 8, 8)],
    ]
    assert [(row.subject, row.length, row.mode, row.items) for row in rows] == [
        tuple(line[key] for key in ("subject", "length", "mode", "items")) for line in lines
    ]


def test_what_was_trained_on_two_tasks_keeps_both_results_on_a_third(tmp_path):
    third = DuplicatedNgram(9, "jelassi2024", ngram=2)
    papers = [
        replace(recipes.paper(name, QUICK, (8,)), others=(third,)) for name in ("copying-8", "unrepeated-copying-8")
    ]
    for _ in range(2):
        lines = protocol.sit(candidates("causalrn"), papers, tmp_path, num=5, device="cpu")
        assert [(line["task"], line["trained_task"]) for line in lines] == [
            (task, trained)
            for trained in ("copying-jelassi2024", "unrepeated-copying-4-jelassi2024")
            for task in (trained, third.name)
            for _ in exam.MODES
        ]
    assert len(best(lines)) == 8
    shown = [row.strip() for row in report.verdict(lines, width=200).splitlines()]
    for trained in ("copying-jelassi2024", "unrepeated-copying-4-jelassi2024"):
        assert shown.count(f"trained on {trained}") == 1


def test_lines_that_do_not_say_what_was_trained_give_way_to_those_that_do(tmp_path):
    def line(task, items, **more):
        return {"subject": "a", "task": task, "train_length": 8, "lr": 0.1, "mode": "free_running", "length": 9} | {
            "seed": 0,
            "items": items,
            **more,
        }

    path = tmp_path / "exam.jsonl"
    old = [line("copying", 1), line("duplicated-ngram-2", 2), line("duplicated-ngram-3", 3)]
    protocol.add_lines(path, old)
    elsewhere = line("copying", 4, trained_task="unrepeated")
    assert protocol.add_lines(path, [elsewhere]) == [*old, elsewhere]
    new = [line(task, 5, trained_task="copying") for task in ("copying", "duplicated-ngram-2")]
    assert protocol.add_lines(path, new) == [old[2], elsewhere, *new]


def test_what_can_be_refused_is_refused_before_the_first_training(tmp_path):
    trained = []

    def refuse(vocab_size, context):
        raise ValueError(f"no model of {vocab_size} tokens")

    with pytest.raises(ValueError, match="no model of 29 tokens"):
        sit(
            tmp_path,
            [*candidates("causalrn"), protocol.Candidate("mine", refuse, "mine")],
            on_train=lambda *told: trained.append(told),
        )
    with pytest.raises(ValueError, match="lr"):
        sit(tmp_path, lrs=(1e-3, -1.0), on_train=lambda *told: trained.append(told))
    sit(tmp_path / "held", candidates("lstm"))
    other = replace(candidates("lstm")[0], identity="another one")
    with pytest.raises(ValueError, match="another one"):
        sit(tmp_path / "held", [*candidates("causalrn"), other], on_train=lambda *told: trained.append(told))
    assert not trained
    assert not (tmp_path / "causalrn").exists()


def test_a_folder_that_is_no_exam_is_refused_before_the_first_training(tmp_path):
    def refused(folder, message):
        with pytest.raises(ValueError, match=message):
            sit(folder)

    for name in ("config.json", "log.jsonl"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text("{}")
        refused(tmp_path / name, "is the folder of a run, .* take another --out")
    for number, text in enumerate(("", "a note", '{"format": 1', '{"format": 1}')):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "exam.jsonl").write_text(text)
        refused(tmp_path / str(number), "holds no exam.*; take another --out")
    sit(tmp_path / "sound")
    (note,) = (tmp_path / "sound").rglob("candidate.json")
    for text in ("", "{", "{}", "[]", "3"):
        note.write_text(text)
        refused(tmp_path / "sound", "candidate.json is damaged")


def test_two_exams_in_one_folder_lose_none_of_each_others_lines(tmp_path):
    path = tmp_path / "exam.jsonl"

    def add(number):
        for length in range(20):
            protocol.add_lines(path, [{"subject": f"s{number}", "length": length}])

    workers = [threading.Thread(target=add, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(report.read_exam(path)) == 80


@pytest.mark.slow
def test_an_exam_that_is_killed_goes_on_to_the_same_results(tmp_path):
    arguments = "exam --mixers causalrn lstm --tasks copying-6 --width 32 --max-steps 300 --lrs 0.003 --num 20 --device cpu --out"
    command = [sys.executable, "-m", "relnet", *arguments.split()]

    def results(folder):
        own = {"wall_seconds"}
        return [{k: v for k, v in line.items() if k not in own} for line in report.read_exam(folder / "exam.jsonl")]

    subprocess.run([*command, str(tmp_path / "whole")], check=True, capture_output=True)
    for place in ("causalrn", "lstm"):
        checkpoints = tmp_path / "cut" / place / "copying-6" / "lr-0.003-seed-0" / "checkpoints"
        running = subprocess.Popen(
            [*command, str(tmp_path / "cut")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while not (checkpoints.is_dir() and any(checkpoints.glob("step-*"))):
            assert running.poll() is None, "it ended before it was killed"
            time.sleep(0.05)
        running.kill()
        running.wait()
    subprocess.run([*command, str(tmp_path / "cut")], check=True, capture_output=True)
    assert results(tmp_path / "cut") == results(tmp_path / "whole")


def test_the_same_seed_gives_the_same_untrained_weights_and_leaves_the_generator_alone(tmp_path):
    before = torch.get_rng_state()
    one, two = (sit(tmp_path / name) for name in ("one", "two"))
    assert torch.equal(torch.get_rng_state(), before)
    assert [line["first_errors"] for line in one] == [line["first_errors"] for line in two]


def test_a_paper_goes_from_half_its_length_to_five_times_it_within_what_the_task_can_have():
    assert recipes.paper("copying-64", QUICK).lengths == (32, 64, 96, 128, 192, 256, 320)
    assert recipes.paper("suffix-lookup-10", QUICK).lengths == (10, 15, 20, 30, 40, 50)
    assert recipes.paper("copying-5", QUICK, (7,)) == protocol.Paper(Copying(5, "jelassi2024"), (7,), QUICK)
    paper = recipes.paper("prefix-lookup-20", QUICK, (9, 40))
    assert paper.task == PrefixLookup(20, "jelassi2024")
    assert paper.context == paper.task.size(40)
    with pytest.raises(ValueError, match="length 3: suffix-lookup-3 has examples of length 8 and more"):
        recipes.paper("suffix-lookup-20", QUICK, (20, 3))
    for name in ("copying", "juggling-3", "copying-x"):
        with pytest.raises(ValueError, match=f"unknown task '{name}'; write NAME-LENGTH, such as copying-64"):
            recipes.paper(name, QUICK)


def test_equal_parameters_are_as_equal_as_multiples_of_8_in_width_allow():
    made = recipes.candidates(("causalrn", "transformer"), configs=("mamba",), width=96, depth=2, equal="parameters")
    sizes = [recipes.exam._num_parameters(one) for one in made]
    assert "width 96" in made[0].identity
    assert all(abs(size / sizes[0] - 1) < 0.3 for size in sizes)
    assert len({one.identity.split("width ")[1] for one in made}) > 1
