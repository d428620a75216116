import json
import subprocess
import sys
from dataclasses import asdict

import huggingface_hub
import pytest
import torch

from relnet import exam
from relnet.tasks import Copying, PhoneBook, TextCopy, Tokenised
from tests.assertions import assert_close, assert_same_bits
from tests.exam.transformers_models import save, tiny

KINDS = pytest.mark.parametrize(
    "kind",
    ["gpt_neox", "mamba", "llama", "rwkv", "mamba2", "falcon", "opt", "bart", "bert", "bert-generation"],
)


@KINDS
def test_a_model_of_transformers_gives_the_same_logits_at_once_and_step_by_step(kind):
    subject = exam.ModelSubject(tiny(kind))
    ids = torch.randint(0, 29, (3, 9), generator=torch.Generator().manual_seed(1))
    whole = subject.logits(ids)
    assert whole.shape == (3, 9, 29)
    assert whole.dtype == torch.float32
    logits, state = subject.start(ids[:, :4])
    parts = [logits]
    for token in ids[:, 4:].T:
        logits, state = subject.step(token, state)
        parts.append(logits)
    assert_close(torch.stack(parts, dim=1), whole[:, 3:], 1e-4)
    assert not whole.requires_grad
    assert_close(subject.logits(ids[:, :4])[:, :4], whole[:, :4], 1e-4)


@pytest.mark.parametrize("kind", ["gpt_neox", "mamba"])
def test_a_saved_model_scores_as_before_it_was_saved(kind, tmp_path):
    model = tiny(kind)
    save(model, tmp_path / "model")
    again = exam.load_pretrained(str(tmp_path / "model"))
    ids = torch.randint(0, 29, (2, 7), generator=torch.Generator().manual_seed(1))
    assert_same_bits(exam.ModelSubject(again).logits(ids), exam.ModelSubject(model).logits(ids))
    rows = [
        exam.evaluate(exam.ModelSubject(m, name="one"), Copying(length=6), lengths=[6, 40], num=5)
        for m in (model, again)
    ]
    assert rows[0] == rows[1]
    assert [row.items for row in rows[0]] == ([5, 5, 0, 0] if kind == "gpt_neox" else [5, 5, 5, 5])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt_neox", "mamba"])
def test_a_fresh_process_gives_a_trained_model_the_same_scores(kind, tmp_path):
    from relnet.train import TrainConfig, train

    model, task = tiny(kind), Copying(length=4)
    untrained = exam.evaluate(exam.ModelSubject(model, name="one"), task, lengths=[4, 6], num=50)
    train(model, task, TrainConfig(steps=60, lr=3e-3, stop_accuracy=None), tmp_path / "run", device="cpu")
    save(model, tmp_path / "model")
    rows = exam.evaluate(exam.ModelSubject(model, name="one"), task, lengths=[4, 6], num=50)
    code = (
        "import json, sys\nfrom dataclasses import asdict\nfrom relnet import exam\nfrom relnet.tasks import Copying\n"
        "subject = exam.ModelSubject(exam.load_pretrained(sys.argv[1]), name='one')\n"
        "print(json.dumps([asdict(row) for row in exam.evaluate(subject, Copying(length=4), lengths=[4, 6], num=50)]))"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "model"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == json.loads(json.dumps([asdict(row) for row in rows]))
    assert rows != untrained, "training changed what it says"


def test_states_are_measured_not_worked_out():
    for kind, grows in [("gpt_neox", True), ("mamba", False)]:
        subject = exam.ModelSubject(tiny(kind))
        short, long = (exam.state_bytes(subject, torch.zeros(1, num, dtype=torch.int64)) for num in (8, 24))
        assert (long == 3 * short) if grows else (long == short > 0)
    # Keys and values of 2 blocks, 32 wide, float32.
    assert (
        exam.state_bytes(exam.ModelSubject(tiny("gpt_neox")), torch.zeros(1, 8, dtype=torch.int64))
        == 2 * 2 * 8 * 32 * 4
    )


@pytest.mark.parametrize("kind", ["gpt_neox", "llama", "mamba", "gpt2"])
def test_weights_are_counted_as_those_of_relnets_own_models(kind):
    model = tiny(kind)
    every = sum(p.numel() for p in model.parameters())
    tied = model.model.config.tie_word_embeddings
    positions = 64 * 32 if kind == "gpt2" else 0
    assert model.num_parameters == every - positions - (0 if tied else 29 * 32)


def test_text_is_asked_through_the_tokenizer_of_the_folder(tmp_path):
    save(tiny("gpt_neox", vocab_size=100, context=400), tmp_path)
    model, tokeniser = exam.load_pretrained(str(tmp_path)), exam.load_tokeniser(str(tmp_path))
    assert tokeniser.decode(tokeniser.encode("Ada Lee: 12\n")) == "Ada Lee: 12\n"
    # Words of many lengths: items of many lengths in tokens.
    task = Tokenised(TextCopy("a be sea deer eagle"), tokeniser)
    results = [
        exam.evaluate(exam.ModelSubject(model), task, lengths=[2], num=12, batch_size=batch_size)
        for batch_size in (1, 5)
    ]
    assert results[0] == results[1]
    lengths = [len(task.items(1, 2, 0, index).answers[0]) - 1 for index in range(12)]
    assert len(set(lengths)) > 2
    assert results[0][0].letters == sum(lengths)
    (row,) = exam.evaluate(
        exam.ModelSubject(model), Tokenised(PhoneBook(), tokeniser), lengths=[30], num=2, modes=["free_running"]
    )
    assert row.items == 0
    assert "the model takes at most 400" in row.note


def test_a_folder_whose_tokenizer_lacks_a_symbol_is_refused_naming_it(tmp_path):
    save(tiny("gpt_neox", vocab_size=100), tmp_path, lost="7")
    with pytest.raises(ValueError, match="cannot write '7'"):
        Tokenised(PhoneBook(), exam.load_tokeniser(str(tmp_path))).items(20, 3, seed=0)


def test_a_hub_name_without_a_network_says_how_to_use_a_folder(monkeypatch, tmp_path):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ValueError, match=r"nobody/nothing is no folder, and the hub could not .* give a folder"):
        exam.load_pretrained("nobody/nothing")
    with pytest.raises(ValueError, match="holds no model that transformers can load"):
        exam.load_pretrained(str(tmp_path))
    with pytest.raises(ValueError, match="a task over text needs a tokenizer"):
        exam.load_tokeniser(str(tmp_path))


def test_weights_that_are_missing_are_an_error_that_names_them(tmp_path):
    from safetensors.torch import load_file, save_file

    save(tiny("gpt_neox"), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    lost = next(name for name in tensors if "dense_4h_to_h.weight" in name)
    save_file(
        {name: tensor for name, tensor in tensors.items() if name != lost},
        tmp_path / "model.safetensors",
        {"format": "pt"},
    )
    with pytest.raises(ValueError, match=f"lacks weights that the model needs: {lost}"):
        exam.load_pretrained(str(tmp_path))


def test_a_model_that_reads_what_comes_after_is_refused(tmp_path):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    config = transformers.BertConfig(vocab_size=29, max_position_embeddings=64, **sizes)
    transformers.BertForMaskedLM(config).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=f"^{tmp_path}: an output changes with a later token"):
        exam.load_pretrained(str(tmp_path))


@pytest.mark.parametrize("left", [b"", b"\x08\x00\x00\x00\x00\x00\x00\x00{}", b"no weights at all, far from it", None])
def test_damaged_weights_are_an_error_that_names_the_folder(tmp_path, left):
    save(tiny("gpt_neox"), tmp_path)
    weights = tmp_path / "model.safetensors"
    # None: cut short, as by a full disk.
    weights.write_bytes(weights.read_bytes()[:-100] if left is None else left)
    with pytest.raises(ValueError, match=f"the folder {tmp_path} holds no model that transformers can load"):
        exam.load_pretrained(str(tmp_path))


def test_an_architecture_that_transformers_lacks_is_refused():
    with pytest.raises(ValueError, match=r"no causal model 'mambo'; did you mean .*mamba"):
        exam.untrained("mambo", 29, 64)


@pytest.mark.parametrize("kind", ["opt", "bart", "xglm", "ctrl", "trocr", "gpt2", "llama", "mamba2", "xlstm"])
def test_an_untrained_model_has_the_width_the_depth_and_the_mlp_that_are_asked_for(kind):
    model = exam.untrained(kind, 29, 64, width=64, depth=3)
    blocks = [part for part in model.modules() if isinstance(part, torch.nn.ModuleList)]
    assert max(map(len, blocks)) == 3
    shapes = {tuple(weight.shape) for weight in model.parameters() if weight.dim() == 2}
    assert kind in ("mamba2", "xlstm") or {(64, 256), (256, 64)} <= shapes
    assert max(max(shape) for shape in shapes) <= (514 if kind == "mamba2" else 256)


def test_an_xlstm_of_heads_of_64_can_sit_the_exam():
    exam.check_model(exam.untrained("xlstm", 29, 64, width=128, depth=2), 40)


@pytest.mark.parametrize("kind", ["gemma3", "fuyu", "git", "llama4"])
def test_an_architecture_that_cannot_be_given_the_size_is_refused_before_it_takes_memory(kind):
    with pytest.raises(
        ValueError, match=rf"^{kind} cannot be built .*it would be of width \w+ and depth \d+; take.*\)$"
    ):
        exam.untrained(kind, 29, 64, width=64, depth=2)


@pytest.mark.parametrize("kind", ["gpt_neo", "dbrx", "reformer", "roberta", "openai-gpt"])
def test_whatever_an_architecture_refuses_is_said_on_one_line(kind):
    with pytest.raises(ValueError, match=rf"^{kind} cannot be built and run with width 64 and depth 3 \(.+\)$"):
        exam.untrained(kind, 29, 64, width=64, depth=3)


def test_an_odd_width_is_refused_where_heads_do_not_divide_it():
    with pytest.raises(ValueError, match=r"^mamba2 cannot be built and run with width 100 .*\)$"):
        exam.untrained("mamba2", 29, 64, width=100, depth=2)


@pytest.mark.parametrize("changes", [{"hidden_size": "wide"}, {"num_attention_heads": 0}, {"hidden_act": "none"}])
def test_a_config_that_does_not_fit_is_an_error_that_names_the_folder(tmp_path, changes):
    save(tiny("gpt_neox"), tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(ValueError, match=rf"^the folder {tmp_path} holds no model that transformers can load \(.+\)$"):
        exam.load_pretrained(str(tmp_path))


@pytest.mark.parametrize("content", ['{"model": 3}', "[]", "{"])
def test_a_damaged_tokenizer_is_an_error_that_names_the_folder(tmp_path, content):
    save(tiny("gpt_neox"), tmp_path)
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ValueError, match=rf"^the folder {tmp_path} holds no .*; a task over text needs a tokenizer$"):
        exam.load_tokeniser(str(tmp_path))
