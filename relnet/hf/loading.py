"""Folders that hold a model whole, or are refused."""

from typing import Any

from safetensors import SafetensorError


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
        # What does not fit is refused below, by its name and not in a report.
        kwargs |= {"output_loading_info": True, "use_safetensors": True, "ignore_mismatched_sizes": True}
        parent: Any = super()
        try:
            model, info = parent.from_pretrained(pretrained_model_name_or_path, *args, **kwargs)
        except SafetensorError as error:
            raise ValueError(
                f"{pretrained_model_name_or_path}: its weights are cut or damaged ({error}); export or fetch them again"
            ) from None
        faults = {
            "has no": sorted(info["missing_keys"]),
            "has left over": sorted(info["unexpected_keys"]),
            "has in another shape": sorted(str(key) for key in info["mismatched_keys"]),
        }
        if any(faults.values()):
            said = "; ".join(f"{what} {', '.join(names[:5])}" for what, names in faults.items() if names)
            raise ValueError(f"{pretrained_model_name_or_path} does not hold this model: it {said}")
        return (model, info) if wanted else model
