"""RelnetConfig: nn.ModelConfig as transformers keeps it, in config.json."""

from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from relnet import nn


@strict
class RelnetConfig(PreTrainedConfig):
    """A SequenceModel's shape, all fields but the mixer as in `nn.ModelConfig`.

    mixer: a mixer's configuration as JSON, its name under "_type", or a list of them, one a block; tie_word_embeddings: the head's weights
    are the embedding's. Raises ValueError for what does not fit together.

    >>> config = RelnetConfig(vocab_size=29, width=16, depth=2, context=34, mixer={"_type": "CausalRNConfig", "heads": 2})
    >>> config.model_config().mixer.heads, config.hidden_size
    (2, 16)
    """

    model_type: ClassVar[str] = "relnet"
    attribute_map: ClassVar[dict[str, str]] = {
        "hidden_size": "width",
        "num_hidden_layers": "depth",
        "max_position_embeddings": "context",
    }
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["cache"]

    vocab_size: int = 256
    width: int = 192
    depth: int = 12
    context: int | None = 256
    mixer: Any = None
    mlp: int | None = None
    positions: str = "learned"
    use_cache: bool = True
    tie_word_embeddings: bool = False
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    pad_token_id: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        """Raise ValueError for numbers that do not fit together."""
        if self.mixer is None:
            self.mixer = {"_type": "CausalRNConfig"}
        self.model_config()
        super().__post_init__(**kwargs)

    def model_config(self) -> nn.ModelConfig:
        """Return the model's shape as `nn.SequenceModel` takes it."""
        mixer = nn.mixer_from_json(self.mixer)
        return nn.ModelConfig(
            self.vocab_size, self.width, self.depth, self.context, mixer, self.mlp, positions=self.positions
        )

    def to_diff_dict(self) -> dict[str, Any]:
        """Return what differs from the defaults, and the mixer in any case: another one has tensors of the same shapes."""
        return {**super().to_diff_dict(), "mixer": self.mixer}

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Read a config.json's content; ValueError where it has no mixer."""
        if config_dict.get("mixer") is None:
            raise ValueError('the config.json has no "mixer"; give the one that the model was trained with')
        return super().from_dict(config_dict, **kwargs)

    @classmethod
    def from_model_config(cls, config: nn.ModelConfig, **fields: Any) -> "RelnetConfig":
        """Return the configuration of a SequenceModel; fields: of transformers, such as eos_token_id.

        >>> RelnetConfig.from_model_config(nn.ModelConfig(29, 16, 2, 34, nn.LSTMConfig())).mixer["_type"]
        'LSTMConfig'
        """
        names = ("vocab_size", "width", "depth", "context", "mlp", "positions")
        return cls(mixer=nn.mixer_to_json(config), **{name: getattr(config, name) for name in names}, **fields)
