"""Causal models of transformers in relnet's signature: pretrained ones from a folder or the hub, and untrained ones by their config class.

Everything is float32, whatever the weights were saved in. A model sees no padding and no mask.
"""

import difflib
import hashlib
import inspect
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from relnet.exam.soundness import check_causal
from relnet.tasks import Tokeniser

# Under which name a model takes and gives the state it goes on from.
STATES = ("past_key_values", "cache", "cache_params", "state")
HEAD_WIDTH = 64


@dataclass(frozen=True)
class Shape:
    """What the exam asks of a model's config: the tokens it knows and the most it can read (None: no limit)."""

    vocab_size: int
    context: int | None


class TransformersModel(nn.Module):
    """A causal model of transformers, called as `logits, state = model(ids, state=None)`, ids (N, T) int64, logits (N, T, V) float32.

    A state is transformers' own and is used up by going on from it; in training mode there is none. last: logits of the last positions
    only, (N, last, V); of the others nearly every model computes none.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        inner: Any = model.float()
        self.model = inner
        settings = inner.config
        self.config = Shape(settings.vocab_size, getattr(settings, "max_position_embeddings", None))
        taken = inspect.signature(inner.forward).parameters
        self.keyword = next((name for name in STATES if name in taken), None)
        if self.keyword is None:
            raise ValueError(f"{type(model).__name__} takes no state to go on from; give a causal language model")
        self.takes_last = "logits_to_keep" in taken

    def __repr__(self) -> str:
        return f"TransformersModel({self.model.config.to_json_string(use_diff=False)}\n{self.model})"

    @property
    def num_parameters(self) -> int:
        """Number of weights without embeddings, as of relnet's models; one that is the output layer's as well counts."""
        output = self.model.get_output_embeddings()
        looked_up = {id(p) for part in self.modules() if isinstance(part, nn.Embedding) for p in part.parameters()}
        multiplied = set() if output is None else {id(p) for p in output.parameters()}
        return sum(p.numel() for p in self.parameters() if id(p) not in looked_up - multiplied)

    def forward(self, ids: Tensor, state: Any = None, mask: None = None, last: int | None = None) -> tuple[Tensor, Any]:
        """Logits, and the state to go on from."""
        if self.keyword != "state" or state is None or len(ids) == 1 or ids.shape[1] > 1:
            return self._read(ids, state, last)
        # RWKV mixes up the rows of a batch where it reads a single token (transformers 5.24: its shift lacks the axis of time).
        rows = [self._read(ids[n : n + 1], [part[n : n + 1] for part in state], last) for n in range(len(ids))]
        logits, states = zip(*rows, strict=True)
        return torch.cat(logits), [torch.cat(parts) for parts in zip(*states, strict=True)]

    def _read(self, ids: Tensor, state: Any, last: int | None) -> tuple[Tensor, Any]:
        given = {} if state is None else {str(self.keyword): state}
        if last is not None and self.takes_last:
            given["logits_to_keep"] = last
        answer = self.model(input_ids=ids, use_cache=not self.training, **given)
        logits = answer.logits if last is None else answer.logits[:, -last:]
        return logits, getattr(answer, str(self.keyword), None)


def load_pretrained(name: str) -> TransformersModel:
    """Load a causal model from a folder that save_pretrained wrote, or from the hub by name.

    ValueError where there is no such folder and no network, where its files are damaged, where the folder lacks weights that the
    model needs, and where the model reads what comes after, as encoders do.
    """
    transformers = _transformers()
    local = Path(name).is_dir()
    try:
        config = transformers.AutoConfig.from_pretrained(name, local_files_only=local)
        # The scan in plain PyTorch, where there is no kernel for a GPU.
        config.use_mambapy = config.model_type == "mamba"
        model, found = transformers.AutoModelForCausalLM.from_pretrained(
            name, config=config, dtype=torch.float32, local_files_only=local, output_loading_info=True
        )
    except Exception as error:  # A config that does not fit or weights that are damaged: each fails in its own way.
        raise ValueError(_not_found(name, local, error)) from None
    lost = sorted(found["missing_keys"]) + sorted(str(key) for key in found["mismatched_keys"])
    if lost:
        raise ValueError(f"{name} lacks weights that the model needs: {', '.join(lost[:5])}; save the whole model")
    loaded = TransformersModel(model.eval())
    try:
        check_causal(loaded)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    return loaded


def load_tokeniser(name: str) -> Tokeniser:
    """Load the tokenizer that belongs to a pretrained model; ValueError where there is none."""
    transformers = _transformers()
    local = Path(name).is_dir()
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, local_files_only=local)
    except Exception as error:  # As of a model.
        raise ValueError(f"{_not_found(name, local, error)}; a task over text needs a tokenizer") from None
    # What it puts before a text, such as <BOS>; what it puts behind one is not for a prompt.
    empty = tokenizer("")["input_ids"]
    prefix = tuple(token for token in empty if token == tokenizer.bos_token_id)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    content = backend.to_str() if backend is not None else repr(sorted(tokenizer.get_vocab().items()))
    return Tokeniser(
        lambda text: tokenizer(text, add_special_tokens=False)["input_ids"],
        lambda tokens: tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False),
        len(tokenizer),
        prefix,
        identity=hashlib.sha256(content.encode()).hexdigest(),
    )


def untrained(kind: str, vocab_size: int, context: int, width: int = 192, depth: int = 12) -> TransformersModel:
    """Make an untrained model of an architecture that transformers has, by the name of its config: "mamba", "gpt_neox", "llama", "rwkv" ...

    width, depth: of the residual stream, number of blocks; heads of 64 and an MLP of 4 x width where it has them; everything else
    is the architecture's default, the experts of a mixture as well. Weights are drawn from torch's global generator. ValueError for an
    unknown name, for a shape that the architecture refuses, where the model would be of another width or depth than asked, and where it
    cannot read tokens alone or go on from its state.
    """
    transformers = _transformers()
    models = transformers.models.auto.modeling_auto
    known, encoders = models.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, models.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    if kind not in known:
        near = difflib.get_close_matches(kind, known, n=5, cutoff=0.4) or ["gpt_neox", "llama", "mamba", "rwkv"]
        raise ValueError(f"transformers has no causal model {kind!r}; did you mean {', '.join(near)}?")
    try:
        default = transformers.AutoConfig.for_model(kind)
        taken = {*default.to_dict(), *default.attribute_map}
        sizes = _sizes(kind, width, depth, context)
        # Encoders would else read what comes after.
        if kind in encoders or kind == "bert-generation":
            sizes["is_decoder"] = True
        fitting = {name: value for name, value in sizes.items() if name in taken}
        # Their special tokens lie outside of so small a vocabulary; the task has its own.
        tokens = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
        config = transformers.AutoConfig.for_model(kind, vocab_size=vocab_size, **fitting, **tokens)
        # Without memory first: what cannot be given its size may be of billions of weights.
        with torch.device("meta"):
            found = _shape_of(transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32))
        if found != (width, depth):
            raise ValueError(
                f"it would be of width {found[0] or 'unknown'} and depth {found[1]}; take another architecture"
            )
        model = TransformersModel(transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32))
        _try_out(model)
        return model
    except Exception as error:  # Each architecture refuses in its own way.
        raise ValueError(
            f"{kind} cannot be built and run with width {width} and depth {depth} ({_reason(error)})"
        ) from None


def _sizes(kind: str, width: int, depth: int, context: int) -> dict[str, Any]:
    """The options of all architectures that set a model's size, under each of their names."""
    heads = max(1, width // HEAD_WIDTH)
    sizes = {
        "hidden_size": width,
        "attention_hidden_size": width,
        "max_position_embeddings": context,
        "use_mambapy": True,
        **dict.fromkeys(("num_hidden_layers", "decoder_layers", "num_decoder_layers"), depth),
        **dict.fromkeys(("num_attention_heads", "num_key_value_heads", "num_heads"), heads),
        **dict.fromkeys(("decoder_attention_heads", "num_decoder_attention_heads"), heads),
        **dict.fromkeys(("head_dim", "dim_head"), width // heads),
        **dict.fromkeys(("intermediate_size", "ffn_dim", "decoder_ffn_dim", "dim_ff", "dff", "d_inner"), 4 * width),
    }
    if kind in ("mamba", "falcon_mamba"):
        # Their blocks' inner width, which has its own default.
        del sizes["intermediate_size"]
    if kind == "mamba2":
        # Its heads are of the inner width, 2 x width, and share keys and queries as in its paper: 8 groups would ask for 8 heads.
        heads = max(1, 2 * width // HEAD_WIDTH)
        sizes |= {"num_heads": heads, "head_dim": 2 * width // heads, "n_groups": 1}
    if kind == "xlstm":
        # The states that it begins from have keys as wide as values, whatever its config says, and heads of 64 (transformers 5.24).
        sizes |= {"num_blocks": depth, "qk_dim_factor": 1.0}
    return sizes


def _shape_of(model: nn.Module) -> tuple[int | None, int | None]:
    """Width and depth of a model, None where it does not tell; of one that has several stacks of blocks the greatest depth."""
    config: Any = model.config
    stacks = [name for name, part in model.named_modules() if isinstance(part, nn.ModuleList)]
    outer = [name for name in stacks if not any(name.startswith(f"{other}.") for other in stacks)]
    told = getattr(config, "num_hidden_layers", None)
    depths = [len(cast(nn.ModuleList, model.get_submodule(name))) for name in outer]
    return getattr(config, "hidden_size", None), max(depths, default=told)


def _try_out(model: TransformersModel) -> None:
    """Read two tokens and a third one after them, and see that the model looks at none ahead."""
    ids = torch.zeros(1, 3, dtype=torch.int64)
    model.eval()
    with torch.no_grad():
        _, state = model(ids[:, :2])
        model(ids[:, 2:], state)
    check_causal(model)
    model.train()


def _reason(error: Exception) -> str:
    """What an error says, on one line; its name too where it was not written for users."""
    said = textwrap.shorten(str(error), 300)
    return said if said and isinstance(error, ValueError | OSError) else f"{type(error).__name__} {said}".strip()


def _not_found(name: str, local: bool, error: Exception) -> str:
    reason = _reason(error)
    if local:
        return f"the folder {name} holds no model that transformers can load ({reason})"
    return (
        f"{name} is no folder, and the hub could not be asked for it ({reason}); without a network, "
        "give a folder that save_pretrained wrote"
    )


def _transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise ValueError('transformers is not installed; install it with pip install "relnet[hf]"') from None
    return transformers
