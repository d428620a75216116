"""transformers trains the model: its Trainer, its loss, its activation checkpointing."""

import pytest
import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

from relnet.hf import RelnetCache
from tests.assertions import assert_close, assert_same_bits
from tests.hf.models import make_hf
from tests.nn.cases import random_ids


def test_the_loss_is_the_cross_entropy_of_the_next_token():
    model = make_hf("causalrn", torch.float64)
    ids = random_ids(2, 7)
    labels = ids.clone()
    labels[0, :4] = -100
    output = model(ids, labels=labels)
    expected = F.cross_entropy(output.logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten(), ignore_index=-100)
    assert_close(output.loss, expected, 1e-6)
    assert_close(model(ids, labels=labels, num_items_in_batch=2).loss, expected * 9 / 2, 1e-6)


@pytest.mark.parametrize("name", ["causalrn", "hybrid", "lstm"])
def test_activation_checkpointing_changes_no_bit_of_a_gradient(name):
    ids = random_ids(2, 7)
    gradients = []
    for recomputing in (False, True):
        model = make_hf(name).train()
        if recomputing:
            model.activation_checkpointing_enable()
            assert model.is_activation_checkpointing
        output = model(ids, labels=ids, use_cache=True)
        assert (output.cache is None) == recomputing
        output.loss.backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    for value, expected in zip(*gradients, strict=True):
        assert_same_bits(value, expected)
    with pytest.raises(ValueError, match="a cache while activations are recomputed"):
        model(ids, cache=RelnetCache())
    model.activation_checkpointing_disable()
    assert model(ids, use_cache=True).cache is not None
    with pytest.raises(ValueError, match="every_n_layers=2"):
        model.activation_checkpointing_enable(every_n_layers=2)


@pytest.mark.parametrize("recomputing", [False, True])
def test_the_trainer_trains_and_saves(recomputing, tmp_path):
    model = make_hf("hybrid")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    rows = [{"input_ids": ids, "labels": ids} for ids in random_ids(1, 9).expand(16, -1)]
    arguments = TrainingArguments(
        tmp_path / "trainer",
        max_steps=12,
        per_device_train_batch_size=4,
        learning_rate=1e-2,
        use_cpu=True,
        report_to=[],
        logging_steps=1,
        save_strategy="no",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        activation_checkpointing=recomputing,
    )
    trainer = Trainer(model, arguments, train_dataset=rows)
    trainer.train()
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    assert losses[-1] < losses[0] / 2
    trainer.save_model(tmp_path / "saved")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    for name, value in loaded.state_dict().items():
        assert_same_bits(value, model.state_dict()[name], name)
        assert not torch.equal(value, before[name]), name
