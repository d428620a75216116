"""RelnetForCausalLM: nn.SequenceModel as a transformers model; what it cannot do is refused, not ignored."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Embedding, Linear, Module
from torch.utils.checkpoint import checkpoint
from transformers import GenerationMixin, PreTrainedModel
from transformers.generation import GenerationMode
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.modeling_utils import slice_logits_to_keep

from relnet import nn
from relnet.hf.cache import RelnetCache
from relnet.hf.config import RelnetConfig
from relnet.hf.loading import StrictlyLoaded
from relnet.nn.generate import check_room
from relnet.nn.mixer import WEIGHT_STD


class RelnetForCausalLM(StrictlyLoaded, PreTrainedModel, GenerationMixin):
    """A causal language model of any relnet mixer.

    model(input_ids (B, S), attention_mask=None, cache=None, labels=None, use_cache=None, logits_to_keep=0) -> CausalLMOutputWithPast.
    attention_mask: (B, S) or, with a cache, of all positions; 1 = real token; pads on the left, on the right or inside. Where the last
    positions of a row are pads, logits_to_keep=1 gives the logits of its last real token, so that right-padded prompts generate as well.
    cache: a RelnetCache, which the call moves on. Beam search, sampling and greedy decoding; `from_pretrained` refuses a folder that
    lacks a tensor or has one too many.
    Raises ValueError for what `nn.SequenceModel` refuses, embeddings in place of tokens, hidden states, position ids, other caches.

    >>> config = RelnetConfig(vocab_size=29, width=16, depth=2, context=34)
    >>> model = RelnetForCausalLM(config)
    >>> model.generate(torch.randint(29, (2, 5)), max_new_tokens=3, do_sample=False).shape
    torch.Size([2, 8])
    """

    # A RelnetConfig; transformers lets no subclass say so.
    config: Any
    config_class = RelnetConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    accepts_loss_kwargs = True
    _is_stateful = True
    _no_split_modules = ["Block"]  # noqa: RUF012 (as the next one, read by transformers on the class)
    _tied_weights_keys = {"model.head.weight": "model.embedding.weight"}  # noqa: RUF012
    _supported_generation_modes = (
        GenerationMode.GREEDY_SEARCH,
        GenerationMode.SAMPLE,
        GenerationMode.BEAM_SEARCH,
        GenerationMode.BEAM_SAMPLE,
    )

    def __init__(self, config: RelnetConfig) -> None:
        super().__init__(config)
        self.model = nn.SequenceModel(config.model_config())
        self.gradient_checkpointing = False
        self.post_init()

    def get_input_embeddings(self) -> Embedding:
        """Return the embedding of tokens."""
        return self.model.embedding

    def get_output_embeddings(self) -> Linear:
        """Return the head."""
        return self.model.head

    def set_input_embeddings(self, value: Any) -> None:
        """Put another embedding of tokens there."""
        self.model.embedding = value

    def set_output_embeddings(self, new_embeddings: Any) -> None:
        """Put another head there."""
        self.model.head = new_embeddings

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> Embedding:
        """Refuse: the model checks tokens against its vocabulary."""
        raise ValueError("a relnet model keeps its vocabulary; build one with another vocab_size")

    def _init_weights(self, module: Module) -> None:
        # SequenceModel has drawn its weights, and what a folder lacks is refused.
        if self.config.tie_word_embeddings and isinstance(module, Embedding):
            # As a head, weights of N(0, 1) would give logits of tens.
            torch.nn.init.normal_(module.weight, std=WEIGHT_STD)

    def _set_gradient_checkpointing(
        self,
        enable: bool = True,
        gradient_checkpointing_func: Callable[..., Any] = checkpoint,
        every_n_layers: int = 1,
    ) -> None:
        if every_n_layers != 1:
            raise ValueError(f"every_n_layers={every_n_layers}; a relnet model recomputes every block or none")
        self.gradient_checkpointing = enable
        self.model.checkpoint = gradient_checkpointing_func if enable else None

    def generate(self, inputs: Tensor | None = None, *args: Any, **kwargs: Any) -> Any:
        """As in transformers; ValueError at once for a cache that leaves nothing to read, and for more new tokens than there is room."""
        ids, cache = kwargs.get("input_ids") if inputs is None else inputs, kwargs.get("cache")
        if isinstance(ids, Tensor) and ids.dim() == 2:
            self._check_prompt(ids, kwargs.get("attention_mask"), cache, kwargs.get("max_new_tokens"))
        parent: Any = super()
        return parent.generate(inputs, *args, **kwargs)

    def _check_prompt(self, ids: Tensor, mask: Any, cache: Any, max_new_tokens: int | None) -> None:
        past = cache if isinstance(cache, RelnetCache) else RelnetCache()
        if past.length >= ids.shape[1] > 0:
            raise ValueError(
                f"the cache holds {past.length} positions and input_ids {ids.shape[1]}; give all tokens from the start, with at least "
                "one that the cache has not read"
            )
        # Masks and caches that do not fit are refused where they are read.
        fits = mask is None or (isinstance(mask, Tensor) and mask.shape == ids.shape)
        if max_new_tokens is not None and fits and past.batch_size in (-1, len(ids)):
            real = None if mask is None else mask[:, past.length :]
            check_room(self.config.context, ids[:, past.length :], real, past.state, max_new_tokens)

    def _prepare_cache_for_generation(
        self,
        generation_config: Any,
        model_kwargs: dict[str, Any],
        generation_mode: GenerationMode,
        batch_size: int,
        max_cache_length: int,
    ) -> Any:
        if generation_config.cache_implementation is not None:
            raise ValueError(
                f"cache_implementation={generation_config.cache_implementation!r}; a relnet model has its own, leave it out"
            )
        mask = model_kwargs.get("attention_mask")
        if isinstance(mask, Tensor) and not bool((real := mask.bool().any(-1)).all()):
            row = int((~real).nonzero()[0, 0])
            raise ValueError(f"the prompt of row {row} is empty: its attention_mask has no real token")
        if model_kwargs.get("cache") is not None:
            model_kwargs["cache"]._is_user_defined = True
        elif generation_config.use_cache:
            model_kwargs["cache"] = RelnetCache()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        cache: RelnetCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        return_dict: bool | None = None,
        inputs_embeds: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **unsupported: Any,
    ) -> CausalLMOutputWithPast | tuple:
        """Return logits (B, S, vocab_size), the loss where labels are given, and the cache; see the class."""
        if inputs_embeds is not None or input_ids is None:
            raise ValueError("a relnet model takes input_ids; inputs_embeds is not supported")
        for name in ("output_hidden_states", "output_attentions"):
            unsupported[name] = unsupported.get(name) or getattr(self.config, name, False)
        if names := [name for name, value in unsupported.items() if value is not None and value is not False]:
            raise ValueError(f"{', '.join(names)}: not supported by relnet models; leave it out")
        if cache is not None and not isinstance(cache, RelnetCache):
            raise ValueError(f"the cache is a {type(cache).__name__}; give a RelnetCache, or none")
        if labels is not None and (
            labels.shape != input_ids.shape or not (isinstance(logits_to_keep, int) and logits_to_keep == 0)
        ):
            raise ValueError(
                f"labels of shape {tuple(labels.shape)}, input_ids of {tuple(input_ids.shape)}; give a label a token, and no logits_to_keep"
            )
        mask = _new_part(attention_mask, input_ids, 0 if cache is None else cache.length)
        if use_cache is None:
            # Who gives a cache wants it moved on, in training too.
            use_cache = cache is not None or (self.config.use_cache and not self.training)
        state = None if cache is None else cache.state
        features, new_state = self.model.features(input_ids, state, mask)
        if isinstance(logits_to_keep, int) and logits_to_keep == 1:
            features = features[:, -1:] if mask is None else _last_real(features, mask, state)
        else:
            features = slice_logits_to_keep(features, logits_to_keep)
        logits = self.model.head(features)
        loss = None
        if labels is not None:
            loss = self.loss_function(
                logits=logits, labels=labels, vocab_size=self.config.vocab_size, num_items_in_batch=num_items_in_batch
            )
        kept = None
        if cache is not None and use_cache and new_state is None:
            raise ValueError(
                "a cache while activations are recomputed, which keeps no state; leave it out or disable that"
            )
        if use_cache and new_state is not None:
            kept = RelnetCache() if cache is None else cache
            kept.state, kept.length = new_state, kept.length + input_ids.shape[1]
        output = CausalLMOutputWithPast(loss=loss, logits=logits, cache=kept)
        return output if return_dict is not False else output.to_tuple()


def _new_part(attention_mask: Tensor | None, ids: Tensor, past: int) -> Tensor | None:
    """Return the mask of the new tokens, (B, S) bool, or None where all are real; ValueError where it does not fit."""
    if attention_mask is None:
        return None
    if not isinstance(attention_mask, Tensor) or attention_mask.dim() != 2:
        shape = tuple(attention_mask.shape) if isinstance(attention_mask, Tensor) else type(attention_mask).__name__
        raise ValueError(f"attention_mask is {shape}; give (batch, length), 1 = real token")
    length = ids.shape[1]
    if attention_mask.shape[0] != ids.shape[0] or attention_mask.shape[1] not in (length, past + length):
        raise ValueError(
            f"attention_mask has shape {tuple(attention_mask.shape)}; give {(ids.shape[0], length)}, or "
            f"{(ids.shape[0], past + length)} with the {past} positions before"
        )
    new = attention_mask[:, -length:]
    mask = new.bool()
    if not torch.compiler.is_compiling() and new.dtype != torch.bool and not bool((new == mask).all()):
        raise ValueError("attention_mask has values other than 0 and 1; give 1 = real token, 0 = pad")
    # A mask of real tokens only says nothing and costs every block; compiled code cannot look.
    return mask if torch.compiler.is_compiling() or not bool(mask.all()) else None


def _last_real(features: Tensor, mask: Tensor, state: nn.ModelState | None) -> Tensor:
    """Return (B, 1, width): of each row's last real token; ValueError where it was read in an earlier call."""
    if state is not None and not torch.compiler.is_compiling():
        ended = ~mask.any(1) & (torch.as_tensor(state.num_tokens, device=mask.device) > 0)
        if bool(ended.any()):
            row = int(ended.nonzero()[0, 0])
            raise ValueError(f"the prompt of row {row} ended before; pad prompts on the left, or read them in one call")
    at = (mask.long() * torch.arange(1, mask.shape[1] + 1, device=mask.device)).argmax(1)
    return features.take_along_dim(at[:, None, None].expand(-1, 1, features.shape[-1]), dim=1)
