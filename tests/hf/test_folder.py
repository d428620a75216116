"""A folder holds the model, all of it: what is saved is what is loaded, in any process, or loading says what is wrong."""

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import processors
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, pipeline

from relnet import hf, nn
from relnet.tasks import Copying
from tests.assertions import assert_same_bits
from tests.hf.models import make_hf
from tests.nn.cases import MODELS, VOCAB_SIZE, draw, make_model, random_ids

FRESH = """
import sys, torch, relnet.hf
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
torch.save(model(torch.load(sys.argv[2])).logits, sys.argv[3])
"""


@pytest.mark.parametrize("name", MODELS)
def test_every_weight_survives_saving_and_loading(name, tmp_path):
    model = make_hf(name)
    model.save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "generation_config.json", "model.safetensors"}
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert isinstance(loaded, hf.RelnetForCausalLM)
    assert loaded.config.model_config() == model.config.model_config() == MODELS[name]
    weights = loaded.state_dict()
    assert weights.keys() == model.state_dict().keys()
    for key, value in model.state_dict().items():
        assert_same_bits(weights[key], value, key)
    ids = random_ids(2, 7)
    assert_same_bits(loaded(ids).logits, make_model(name)(ids)[0])


def test_a_fresh_process_gives_the_same_bits(tmp_path):
    model = make_model("hybrid")
    hf.export(model, tmp_path / "model")
    ids = random_ids(3, 9)
    torch.save(ids, tmp_path / "ids")
    arguments = [tmp_path / "model", tmp_path / "ids", tmp_path / "logits"]
    subprocess.run([sys.executable, "-c", FRESH, *map(str, arguments)], check=True, capture_output=True)
    threads = torch.get_num_threads()
    assert threads, "one thread count in both processes"
    assert_same_bits(torch.load(tmp_path / "logits"), model(ids)[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_dtype_of_the_weights_is_kept(dtype, tmp_path):
    model = make_hf("causalrn", dtype)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert loaded.dtype == dtype
    assert_same_bits(loaded(random_ids(1, 5)).logits, model(random_ids(1, 5)).logits)


def test_tied_embeddings_are_one_tensor_in_memory_and_on_disk(tmp_path):
    model = make_hf("causalrn", tie_word_embeddings=True)
    model.tie_weights()
    assert model.model.head.weight is model.model.embedding.weight
    model.save_pretrained(tmp_path)
    assert "model.head.weight" not in load_file(tmp_path / "model.safetensors")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert loaded.model.head.weight is loaded.model.embedding.weight
    assert_same_bits(loaded(random_ids(1, 5)).logits, model(random_ids(1, 5)).logits)


def test_a_model_from_its_configuration_starts_as_ours_does():
    for name in ("hybrid", "mlp"):
        config = hf.RelnetConfig.from_model_config(MODELS[name])
        for make in (hf.RelnetForCausalLM, AutoModelForCausalLM.from_config):
            torch.manual_seed(0)
            weights = make(config).model.state_dict()
            for key, value in nn.SequenceModel(MODELS[name]).state_dict().items():
                assert weights[key].isfinite().all()
                if value.std() > 0:
                    assert 0.5 < weights[key].std() / value.std() < 2, key
                else:
                    assert not weights[key].any(), key
    tied = hf.RelnetForCausalLM(hf.RelnetConfig.from_model_config(MODELS["mlp"], tie_word_embeddings=True))
    assert tied.model.embedding.weight.std() < 0.03


def change_missing(weights):
    del weights["model.blocks.1.mixer.source.weight"]


def change_renamed(weights):
    weights["model.blocks.1.mixer.sauce.weight"] = weights.pop("model.blocks.1.mixer.source.weight")


def change_extra(weights):
    weights["model.other"] = torch.zeros(2)


CHANGES = {
    change_missing: "has no model.blocks.1.mixer.source.weight",
    change_renamed: "has no model.blocks.1.mixer.source.weight; has left over model.blocks.1.mixer.sauce.weight",
    change_extra: "has left over model.other",
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_folder_with_other_tensors_is_refused_by_name(change, tmp_path):
    make_hf("causalrn").save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    change(weights)
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match=CHANGES[change]):
        AutoModelForCausalLM.from_pretrained(tmp_path)


def test_a_tensor_of_another_shape_is_refused_by_name(tmp_path):
    make_hf("causalrn").save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights["model.head.weight"] = torch.zeros(VOCAB_SIZE + 1, 12)
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    for options in ({}, {"ignore_mismatched_sizes": True}):
        with pytest.raises(ValueError, match=r"in another shape .*head"):
            AutoModelForCausalLM.from_pretrained(tmp_path, **options)


@pytest.mark.parametrize("length", [0, 4, 1000, -1])
def test_weights_that_are_cut_are_named(length, tmp_path):
    make_hf("causalrn").save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:length])
    with pytest.raises(ValueError, match=f"{tmp_path}: its weights are cut or damaged"):
        AutoModelForCausalLM.from_pretrained(tmp_path)


def test_only_safetensors_are_read(tmp_path):
    make_hf("causalrn").save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="safetensors files only"):
        AutoModelForCausalLM.from_pretrained(tmp_path, use_safetensors=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mixer": {"_type": "MambaConfig"}}, "mixer .*Mamba.*known ones.*CausalRNConfig, .*LSTMConfig"),
        ({"mixer": {"_type": "BiRNConfig"}}, "mixer .*BiRN.*known ones.*CausalRNConfig"),
        ({"mixer": {"heads": 2}}, "mixer .*known ones.*CausalRNConfig"),
        ({"mixer": None}, 'no "mixer"; give the one'),
        ({"mixer": {"_type": "LSTMConfig", "size": 3}}, "does not fit.*size"),
        ({"mixer": 7}, "mixer 7 does not fit"),
        ({"width": 0}, "width=0"),
        ({"context": None}, "need context"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(change, message, tmp_path):
    make_hf("causalrn").save_pretrained(tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(content | change))
    with pytest.raises(ValueError, match=message):
        AutoConfig.from_pretrained(tmp_path)


def test_an_existing_folder_is_left_as_it_is(tmp_path):
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(ValueError, match="exists; give a new folder"):
        hf.export(make_model("causalrn"), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    hf.export(make_model("causalrn"), tmp_path / "deep" / "folder", card="# A card\n")
    assert (tmp_path / "deep" / "folder" / "README.md").read_text() == "# A card\n"
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["folder"]


@pytest.fixture
def copier(tmp_path):
    """The model of a copying task, untrained, as a folder with its tokenizer."""
    task = Copying(length=16)
    model = nn.SequenceModel(nn.ModelConfig(task.vocab_size, 12, 2, task.context, nn.CausalRNConfig()))
    draw(model)
    hf.export(model, tmp_path / "copier", tokenizer=hf.tokenizer_of(task))
    return model, tmp_path / "copier"


def test_the_pipeline_generates_what_the_model_says(copier):
    model, folder = copier
    task = Copying(length=16)
    generator = pipeline("text-generation", model=str(folder), device="cpu")
    for text in ("hello", "a"):
        tokens = model.generate(task.question(text).prompts, 5, stop_tokens=task.eos)[0]
        expected = "".join(c for c in task.decode(tokens[tokens != task.eos]) if c.islower())
        found = generator(text, max_new_tokens=5, do_sample=False, return_full_text=False)[0]["generated_text"]
        assert "".join(c for c in found if c.islower()) == expected.replace("<bos>", "")
    batch = generator(["hello", "a"], max_new_tokens=5, do_sample=False, return_full_text=False, batch_size=2)
    assert batch[1][0]["generated_text"] == found


def test_a_saved_tokenizer_is_the_tasks(copier):
    _, folder = copier
    task, tokenizer = Copying(), AutoTokenizer.from_pretrained(folder)
    for text in ("hello", "z", "abcdefghijklmnopqrstuvwxyz"):
        assert tokenizer(text).input_ids == task.question(text).prompts[0].tolist()
        ids = task.encode(text).tolist()
        assert tokenizer(text, add_special_tokens=False).input_ids == ids
        assert tokenizer.decode(ids) == text
    assert tokenizer.decode([0, 3, 1, 4, 2], skip_special_tokens=True) == "ab"
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (0, 2, 2)
    for strange in ("Hello", "a b", "é"):
        with pytest.raises(Exception, match="UNK"):
            tokenizer(strange)


def test_a_tokenizer_of_ones_own_says_after_the_export_what_it_said_in_training(tmp_path):
    """What its template puts around a text is in no training text; its special tokens stay."""
    own = hf.byte_tokenizer()
    template = processors.TemplateProcessing(single="h $A e", special_tokens=[("h", 104), ("e", 101)])
    own.backend_tokenizer.post_processor = template
    own.save_pretrained(tmp_path / "own")
    assert AutoTokenizer.from_pretrained(tmp_path / "own")("ab").input_ids == [104, 97, 98, 101]

    class Task:
        tokenizer = str(tmp_path / "own")

    model = nn.SequenceModel(nn.ModelConfig(256, 12, 1, 40, nn.CausalRNConfig()))
    hf.export(model, tmp_path / "exported", tokenizer=hf.tokenizer_of(Task()))
    loaded, tokenizer = hf.load(tmp_path / "exported")
    assert tokenizer("ab").input_ids == [97, 98]
    assert (tokenizer.eos_token_id, tokenizer.pad_token_id) == (255, 255)
    assert (loaded.generation_config.eos_token_id, loaded.generation_config.pad_token_id) == (255, 255)


def test_a_tokenizer_of_more_tokens_than_the_model_is_refused(tmp_path):
    small = nn.SequenceModel(nn.ModelConfig(29, 12, 1, 40, nn.CausalRNConfig()))
    with pytest.raises(ValueError, match="the tokenizer has 256 tokens and the model's vocabulary 29"):
        hf.export(small, tmp_path / "model", tokenizer=hf.byte_tokenizer())
    hf.export(small, tmp_path / "model", tokenizer=hf.letter_tokenizer())
    hf.byte_tokenizer().save_pretrained(tmp_path / "model")
    with pytest.raises(ValueError, match="the tokenizer has 256 tokens and the model's vocabulary 29"):
        hf.load(tmp_path / "model")


@pytest.mark.parametrize("content", ["{}", "no JSON", '{"model": {}}'])
def test_a_damaged_tokenizer_is_named(copier, content):
    _, folder = copier
    (folder / "tokenizer.json").write_text(content)
    with pytest.raises(ValueError, match=r"tokenizer\.json cannot be read"):
        hf.load(folder)


def test_a_saved_tokenizer_cuts_where_the_models_positions_end(copier):
    model, folder = copier
    tokenizer = AutoTokenizer.from_pretrained(folder)
    cut = tokenizer("a" * 100, truncation=True).input_ids
    assert len(cut) == model.config.context == 34
    assert hf.tokenizer_of(Copying(length=16)).model_max_length > 10**9


def test_without_a_limit_of_positions_a_saved_tokenizer_cuts_nowhere(tmp_path):
    given = hf.byte_tokenizer()
    model = nn.SequenceModel(nn.ModelConfig(256, 12, 1, None, nn.CausalRNConfig(), positions="none"))
    hf.export(model, tmp_path / "m", tokenizer=given)
    assert AutoTokenizer.from_pretrained(tmp_path / "m").model_max_length == given.model_max_length


def test_a_byte_tokenizer_is_utf8(tmp_path):
    hf.byte_tokenizer().save_pretrained(tmp_path)
    for tokenizer in (hf.byte_tokenizer(), AutoTokenizer.from_pretrained(tmp_path)):
        assert len(tokenizer) == 256
        for text in ("hello world", " a\n\tb\x00", "Three years later, Ā é 漢 🎲", "<s>"):
            assert tokenizer(text).input_ids == list(text.encode())
            assert tokenizer.decode(list(text.encode())) == text
        assert tokenizer.convert_tokens_to_ids(tokenizer.convert_ids_to_tokens(list(range(256)))) == list(range(256))


def test_tasks_name_their_tokenizers(tmp_path):
    class Task:
        tokenizer = "bytes"

    assert len(hf.tokenizer_of(Task())) == 256
    hf.letter_tokenizer().save_pretrained(tmp_path)
    Task.tokenizer = str(tmp_path)
    assert hf.tokenizer_of(Task())("ab").input_ids == [3, 4]
    assert hf.tokenizer_of(Task()).bos_token == "<BOS>"
    assert hf.tokenizer_of(object()) is None
