"""lm-evaluation-harness scores an exported folder, offline."""

import json

import pytest
import torch

from relnet import hf, nn
from tests.nn.cases import draw

lm_eval = pytest.importorskip("lm_eval")

TASK = """
task: relnet_bytes
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: ["a", "b", "cc"]
doc_to_target: answer
metric_list:
  - metric: acc
metadata:
  version: 1
"""
QUESTIONS = ("abc", "xyz", "hello there")


def test_the_harness_chooses_what_the_model_finds_likely(tmp_path, monkeypatch):
    from lm_eval.tasks import TaskManager

    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    model = nn.SequenceModel(nn.ModelConfig(256, 16, 2, 64, nn.CausalRNConfig()))
    draw(model)
    hf.export(model, tmp_path / "model", tokenizer=hf.byte_tokenizer())
    answers = []
    with torch.no_grad():
        for question in QUESTIONS:
            scores = []
            for choice in (" a", " b", " cc"):
                ids = torch.tensor([list((question + choice).encode())])
                log_probabilities = model(ids)[0].log_softmax(-1)
                at = range(len(question), ids.shape[1])
                scores.append(sum(float(log_probabilities[0, place - 1, ids[0, place]]) for place in at))
            answers.append(max(range(3), key=scores.__getitem__))
    (tmp_path / "data.jsonl").write_text(
        "".join(json.dumps({"question": q, "answer": a}) + "\n" for q, a in zip(QUESTIONS, answers, strict=True))
    )
    (tmp_path / "relnet_bytes.yaml").write_text(TASK.format(data=tmp_path / "data.jsonl"))
    results = lm_eval.simple_evaluate(
        "hf",
        model_args={"pretrained": str(tmp_path / "model"), "device": "cpu", "dtype": "float32"},
        tasks=["relnet_bytes"],
        task_manager=TaskManager(include_path=str(tmp_path), include_defaults=False),
        batch_size=2,
        bootstrap_iters=0,
    )
    assert results["results"]["relnet_bytes"]["acc,none"] == 1.0
