"""Model configurations as JSON: dictionaries in which each mixer carries its type."""

from typing import Any

import cattrs
from cattrs.strategies import configure_tagged_union

from relnet.nn.model import CausalMixerConfig, ModelConfig


def converter() -> cattrs.Converter:
    """Return a converter of configurations; unknown keys and mixers are refused (cattrs.BaseValidationError)."""
    converter = cattrs.Converter(forbid_extra_keys=True)
    configure_tagged_union(CausalMixerConfig, converter, tag_name="_type")
    one_or_many = CausalMixerConfig | tuple[CausalMixerConfig, ...]
    many = tuple[CausalMixerConfig, ...]

    def structure(value: Any, _: Any) -> Any:
        return converter.structure(value, many if isinstance(value, list) else CausalMixerConfig)

    def unstructure(value: Any) -> Any:
        return converter.unstructure(value, many if isinstance(value, tuple) else CausalMixerConfig)

    converter.register_structure_hook(one_or_many, structure)
    converter.register_unstructure_hook(one_or_many, unstructure)
    return converter


def mixer_to_json(config: ModelConfig) -> dict[str, Any] | list[dict[str, Any]]:
    """Return the mixer of a model, or one a block, as JSON; ValueError for one that `nn.CausalMixerConfig` does not know.

    >>> from relnet import nn
    >>> mixer_to_json(ModelConfig(29, 16, 2, 34, nn.LSTMConfig()))
    {'hidden': None, '_type': 'LSTMConfig'}
    """
    for mixer in config.mixers:
        if not isinstance(mixer, CausalMixerConfig):
            raise ValueError(
                f"{type(mixer).__name__} is no mixer that can be saved; add it to CausalMixerConfig in relnet/nn/model.py"
            )
    return converter().unstructure(config.mixer, CausalMixerConfig | tuple[CausalMixerConfig, ...])


def mixer_from_json(content: Any) -> CausalMixerConfig | tuple[CausalMixerConfig, ...]:
    """Return the mixer, or one a block, of its JSON; ValueError naming what does not fit."""
    try:
        return converter().structure(content, CausalMixerConfig | tuple[CausalMixerConfig, ...])
    except (cattrs.BaseValidationError, KeyError, TypeError, AttributeError) as error:
        faults = cattrs.transform_error(error) if isinstance(error, cattrs.BaseValidationError) else [str(error)]
        raise ValueError(f"mixer {content!s:.80} does not fit: {'; '.join(faults)}") from None
