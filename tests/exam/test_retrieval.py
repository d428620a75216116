"""Where copying models look: a planted map is counted right, and models that copy look where the letter stands."""

import pytest
import torch

from relnet import exam, nn, recipes, run
from relnet.tasks import Copying
from relnet.theory import CopyingRN


def test_a_copying_model_whose_weights_are_set_by_hand_looks_where_the_letter_stands():
    # A head of its own finds each of the first two letters: the best head is right in all but those steps.
    length = 60
    found = {
        one.quantity: one for one in exam.retrieval(CopyingRN(n=3).build(torch.float64), Copying(length=length), num=4)
    }
    assert found["strength"].block == 1
    assert found["strength"].head == 2
    assert found["strength"].share >= (length - 2) / length - 0.01


def test_retrieval_counts_steps_whose_strongest_relation_is_the_letters_place(monkeypatch):
    model = nn.SequenceModel(nn.ModelConfig(29, 8, 2, 40, nn.CausalRNConfig(heads=2)))
    length = 5

    def planted(mixer, x, mask, *, targets, quantity):
        """In block 2 the second head looks to the right place in all but the last step, by the scale."""
        steps = targets.stop - targets.start
        values = torch.zeros(len(x), 2, steps, x.shape[1])
        values[..., 0] = 0.5
        if quantity == "scale" and mixer is model.blocks[1].mixer:
            for step in range(steps - 1):
                values[:, 1, step, step + 1] = 1.0
        return values

    monkeypatch.setattr(nn, "relation_map", planted)
    best = exam.retrieval(model, Copying(length=length), num=3)[0]
    assert (best.quantity, best.block, best.head) == ("scale", 1, 1)
    assert best.share == best.chosen_share == (length - 1) / length
    with pytest.raises(ValueError, match="no mixer of this model"):
        exam.retrieval(nn.SequenceModel(nn.ModelConfig(29, 8, 1, 40, nn.LSTMConfig())), Copying(length=3), num=1)


@pytest.mark.slow
def test_a_trained_copying_model_looks_where_the_letter_stands(tmp_path):
    trained = run.train(recipes.copying(), tmp_path / "run", device="cpu")
    best = exam.retrieval(trained.model, trained.config.task, num=64)[0]
    assert best.share >= 0.95
