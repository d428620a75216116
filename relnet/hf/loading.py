"""Folders that hold a model whole, or are refused."""

from typing import Any


class StrictlyLoaded:
    """A transformers model whose `from_pretrained` takes safetensors only, and no folder that lacks a tensor or has one too many."""

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Any:
        """Load a folder as transformers does, from safetensors only; ValueError naming tensors that are missing, left over or misshapen.

        Arguments as for `PreTrainedModel.from_pretrained`.
        """
        if kwargs.pop("use_safetensors", True) is False:
            raise ValueError("use_safetensors=False; relnet models are kept in safetensors files only")
        wanted = kwargs.pop("output_loading_info", False)
        parent: Any = super()
        model, info = parent.from_pretrained(
            pretrained_model_name_or_path, *args, output_loading_info=True, use_safetensors=True, **kwargs
        )
        faults = {
            "has no": sorted(info["missing_keys"]),
            "has left over": sorted(info["unexpected_keys"]),
            "has in another shape": sorted(str(key) for key in info["mismatched_keys"]),
        }
        if any(faults.values()):
            said = "; ".join(f"{what} {', '.join(names[:5])}" for what, names in faults.items() if names)
            raise ValueError(f"{pretrained_model_name_or_path} does not hold this model: it {said}")
        return (model, info) if wanted else model
