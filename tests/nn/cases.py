"""Every mixer in small, with weights large enough that positions, windows and norms matter."""

import dataclasses
import math
from contextlib import nullcontext

import torch
from torch import Tensor

from relnet import nn

WIDTH = 12
VOCAB_SIZE = 11

CAUSAL: dict[str, nn.CausalMixerConfig] = {
    "causalrn": nn.CausalRNConfig(hidden=8),
    "causalrn-heads": nn.CausalRNConfig(hidden=12, heads=3),
    "causalrn-windows": nn.CausalRNConfig(hidden=12, heads=3, windows=(1, 3, None)),
    "causalrn-elu-rms": nn.CausalRNConfig(hidden=8, heads=2, windows=(2, None), activation="elu", pair_norm="rms"),
    "causalrn-gelu-approximate": nn.CausalRNConfig(hidden=8, heads=2, activation="gelu", pair_norm="approximate"),
    "causalrn-no-norms": nn.CausalRNConfig(hidden=8, pair_norm="none", sum_norm=False),
    "linear-causalrn": nn.LinearCausalRNConfig(hidden=8),
    "linear-causalrn-heads": nn.LinearCausalRNConfig(hidden=12, heads=3),
    "linear-causalrn-no-norms": nn.LinearCausalRNConfig(hidden=8, pair_norm="none", sum_norm=False),
    "attention": nn.AttentionConfig(heads=3),
    "attention-rope": nn.AttentionConfig(heads=3, positions="rope"),
    "attention-rope-one-head": nn.AttentionConfig(positions="rope"),
    "attention-alibi": nn.AttentionConfig(heads=3, positions="alibi"),
    "attention-hard-alibi": nn.AttentionConfig(heads=4, head_width=2, positions="hard_alibi", windows=3),
    "attention-explicit": nn.AttentionConfig(heads=3, explicit=True),
    "attention-explicit-rope": nn.AttentionConfig(heads=3, positions="rope", explicit=True),
    "attention-explicit-alibi": nn.AttentionConfig(heads=3, positions="alibi", explicit=True),
    "attention-explicit-hard-alibi": nn.AttentionConfig(heads=3, positions="hard_alibi", explicit=True),
    "linear-attention": nn.LinearAttentionConfig(heads=3),
    "lstm": nn.LSTMConfig(hidden=8),
}

BIDIRECTIONAL: dict[str, nn.MixerConfig] = {
    "birn": nn.BiRNConfig(hidden=8),
    "birn-gelu-heads": nn.BiRNConfig(hidden=8, heads=2, activation="gelu", pair_norm="rms"),
    "linear-birn": nn.LinearBiRNConfig(hidden=8),
    "linear-birn-no-norms": nn.LinearBiRNConfig(hidden=8, heads=2, pair_norm="none", sum_norm=False),
    "attention": nn.AttentionConfig(heads=3, causal=False),
    "attention-rope": nn.AttentionConfig(heads=3, positions="rope", causal=False),
    "attention-alibi-explicit": nn.AttentionConfig(heads=3, positions="alibi", causal=False, explicit=True),
    "linear-attention": nn.LinearAttentionConfig(heads=3, causal=False),
}


def model_config(mixer: nn.CausalMixerConfig | tuple[nn.CausalMixerConfig, ...], **changes) -> nn.ModelConfig:
    depth = len(mixer) if isinstance(mixer, tuple) else 2
    arguments = {"vocab_size": VOCAB_SIZE, "width": WIDTH, "depth": depth, "context": 40, "mixer": mixer}
    return nn.ModelConfig(**(arguments | changes))


MODELS: dict[str, nn.ModelConfig] = {name: model_config(mixer) for name, mixer in CAUSAL.items()} | {
    "mlp": model_config(nn.AttentionConfig(heads=2), mlp=16),
    "no-positions": model_config(nn.CausalRNConfig(), positions="none", context=None),
    "hybrid": model_config(
        (
            nn.CausalRNConfig(heads=2, windows=(2, None)),
            nn.LSTMConfig(),
            nn.AttentionConfig(heads=2, positions="alibi"),
            nn.LinearCausalRNConfig(),
            nn.LinearAttentionConfig(heads=2),
        ),
        mlp=16,
    ),
}


def draw(module: torch.nn.Module, seed: int = 0) -> None:
    """Draw weights of the size that training reaches, biases too: at the initial 0.02 most mistakes hide in rounding."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            fan_in = parameter.shape[-1] if parameter.dim() == 2 and "embedding" not in name else 1
            values = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(values * (1.5 / math.sqrt(fan_in) if fan_in > 1 else 0.5))


def make_model(name: str, dtype: torch.dtype = torch.float32) -> nn.SequenceModel:
    model = nn.SequenceModel(MODELS[name])
    draw(model)
    return model.to(dtype)


def make_mixer(config: nn.MixerConfig, dtype: torch.dtype = torch.float32, width: int = WIDTH) -> nn.Mixer:
    mixer = config.build(width)
    draw(mixer)
    return mixer.to(dtype)


def random_ids(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(VOCAB_SIZE, shape, generator=torch.Generator().manual_seed(seed))


def random_values(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


MODES = {"grad": nullcontext, "no_grad": torch.no_grad, "inference_mode": torch.inference_mode}


def leaves(value: object) -> list[Tensor]:
    """All tensors in a state, of a cache the whole storage; found without the methods under test."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, nn.Cache):
        return [value._storage]
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in leaves(part)]
    if dataclasses.is_dataclass(value):
        return [leaf for field in dataclasses.fields(value) for leaf in leaves(getattr(value, field.name))]
    return []


def live(value: object) -> list[Tensor]:
    """The same, of a cache the live entries, copied."""
    if isinstance(value, nn.Cache):
        return [value.entries.clone()]
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in live(part)]
    if dataclasses.is_dataclass(value):
        return [leaf for field in dataclasses.fields(value) for leaf in live(getattr(value, field.name))]
    return [value.clone()] if isinstance(value, Tensor) else []


# Explicit attention has the states of the fused one.
STATEFUL = [name for name in MODELS if "explicit" not in name]
# How states come to be: mode, with padding.
STATES = [("grad", True), ("no_grad", False), ("no_grad", True), ("inference_mode", False)]


def growing_state(model: nn.SequenceModel, mode: str, masked: bool) -> nn.ModelState:
    """A state whose caches, without gradients, have room to grow in place."""
    mask = torch.tensor([[True] * 5, [False, False, True, True, True]]) if masked else None
    with MODES[mode]():
        _, state = model(random_ids(2, 5), None, mask)
        return model(random_ids(2, 1, seed=1), state)[1]
