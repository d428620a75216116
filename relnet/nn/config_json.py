"""Model configurations as JSON: dictionaries in which each mixer carries its type."""

from typing import Any, get_args, get_origin

import cattrs
from cattrs.strategies import configure_tagged_union

from relnet.nn.image_model import BidirectionalMixerConfig, ImageModelConfig
from relnet.nn.model import CausalMixerConfig, ModelConfig


def converter() -> cattrs.Converter:
    """Return a converter of configurations; unknown keys and mixers are refused (cattrs.BaseValidationError)."""
    converter = cattrs.Converter(forbid_extra_keys=True)
    for mixer in (CausalMixerConfig, BidirectionalMixerConfig):
        configure_tagged_union(mixer, converter, tag_name="_type")
    _take_one_or_many(converter, CausalMixerConfig, tuple[CausalMixerConfig, ...])
    _take_one_or_many(converter, BidirectionalMixerConfig, tuple[BidirectionalMixerConfig, ...])
    return converter


def _take_one_or_many(converter: cattrs.Converter, one: Any, many: Any) -> None:
    def structure(value: Any, _: Any) -> Any:
        return converter.structure(value, many if isinstance(value, list) else one)

    def unstructure(value: Any) -> Any:
        return converter.unstructure(value, many if isinstance(value, tuple) else one)

    converter.register_structure_hook(one | many, structure)
    converter.register_unstructure_hook(one | many, unstructure)


def mixer_to_json(config: ModelConfig | ImageModelConfig) -> dict[str, Any] | list[dict[str, Any]]:
    """Return the mixer of a model, or one a block, as JSON; ValueError for one that is in no registry.

    >>> from relnet import nn
    >>> mixer_to_json(ModelConfig(29, 16, 2, 34, nn.LSTMConfig()))
    {'hidden': None, '_type': 'LSTMConfig'}
    """
    known = BidirectionalMixerConfig if isinstance(config, ImageModelConfig) else CausalMixerConfig
    for mixer in config.mixers:
        if not isinstance(mixer, known):
            raise ValueError(
                f"{type(mixer).__name__} is no mixer that can be saved; add it to CausalMixerConfig in relnet/nn/model.py"
            )
    return converter().unstructure(config.mixer, known | tuple[known, ...])


def mixer_from_json(content: Any) -> CausalMixerConfig | tuple[CausalMixerConfig, ...]:
    """Return the causal mixer, or one a block, of its JSON; ValueError naming what does not fit."""
    return _from_json(content, CausalMixerConfig | tuple[CausalMixerConfig, ...])


def bidirectional_from_json(content: Any) -> BidirectionalMixerConfig | tuple[BidirectionalMixerConfig, ...]:
    """Likewise of a bidirectional one."""
    return _from_json(content, BidirectionalMixerConfig | tuple[BidirectionalMixerConfig, ...])


def _from_json(content: Any, kind: Any) -> Any:
    try:
        return converter().structure(content, kind)
    except (cattrs.BaseValidationError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, cattrs.BaseValidationError):
            faults = "; ".join(cattrs.transform_error(error))
        else:
            faults = f'known ones, under "_type", are {", ".join(_names(kind))}'
        raise ValueError(f"mixer {content!s:.80} does not fit: {faults}") from None


def _names(kind: Any) -> list[str]:
    """The mixers of a union, which may hold tuples of them as well."""
    return [part.__name__ for part in get_args(kind) if isinstance(part, type) and get_origin(part) is None]
