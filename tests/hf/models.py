"""The models of tests/nn/cases.py in transformers."""

import torch

from relnet.hf import RelnetConfig, RelnetForCausalLM
from tests.nn.cases import MODELS, draw


def make_hf(name: str, dtype: torch.dtype = torch.float32, **fields) -> RelnetForCausalLM:
    model = RelnetForCausalLM(RelnetConfig.from_model_config(MODELS[name], **fields))
    draw(model.model)
    return model.to(dtype).eval()
