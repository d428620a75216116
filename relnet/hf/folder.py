"""A trained model as a Hugging Face folder: weights, configuration, tokenizer, model card."""

import copy
import shutil
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from relnet import nn, tasks
from relnet.hf.config import RelnetConfig
from relnet.hf.images import RelnetForImageClassification, RelnetImageConfig, RelnetImageProcessor
from relnet.hf.model import RelnetForCausalLM
from relnet.hf.tokenizers import byte_tokenizer, letter_tokenizer


def tokenizer_of(task: Any) -> PreTrainedTokenizerFast | None:
    """Return the tokenizer that speaks a task's tokens, None where there is none: letters, bytes, or the tokenizer that the task names."""
    if isinstance(task, tasks.Copying):
        return letter_tokenizer()
    name = getattr(task, "tokenizer", None)
    if name is None:
        return None
    if name == "bytes":
        return byte_tokenizer()
    path = Path(name)
    file = path / "tokenizer.json" if path.is_dir() else path
    found = Tokenizer.from_file(str(file)) if file.is_file() else Tokenizer.from_pretrained(name)
    # What it puts around a text, such as an end, no text had in training.
    found.post_processor = processors.Sequence([])
    # A file of its own says nothing of which tokens are special.
    whole: Any = None if path.is_file() else AutoTokenizer.from_pretrained(name)
    return PreTrainedTokenizerFast(tokenizer_object=found, **({} if whole is None else whole.special_tokens_map))


def export(
    model: nn.SequenceModel,
    folder: str | Path,
    *,
    tokenizer: PreTrainedTokenizerFast | None = None,
    card: str = "",
) -> None:
    """Write a model to a new folder that transformers loads once relnet.hf is imported.

    tokenizer: of no more tokens than the vocabulary; saved beside the model, its special tokens become the model's, its longest text no
    longer than the model's positions; card: the text of README.md.
    Raises ValueError for a folder that exists, which is left as it is, a mixer that cannot be saved, and a tokenizer of more tokens.
    """
    if tokenizer is not None:
        _check_vocabulary(tokenizer, model.config.vocab_size)
    names = ("bos_token_id", "eos_token_id", "pad_token_id")
    special = {} if tokenizer is None else {name: getattr(tokenizer, name) for name in names}
    exported: Any = RelnetForCausalLM(RelnetConfig.from_model_config(model.config, **special))
    exported.model.load_state_dict(model.state_dict())
    exported.to(model.embedding.weight.dtype)
    for name, token in special.items():
        setattr(exported.generation_config, name, token)
    if model.config.context is not None:
        # What `generate` stops at where it is told nothing else.
        exported.generation_config.max_length = model.config.context
    with _new_folder(Path(folder), card) as partial:
        exported.save_pretrained(partial)
        if tokenizer is not None:
            limited = copy.deepcopy(tokenizer)
            if model.config.context is not None:
                limited.model_max_length = min(limited.model_max_length, model.config.context)
            limited.save_pretrained(partial)


def export_images(model: nn.ImageModel, folder: str | Path, task: tasks.Images, *, card: str = "") -> None:
    """Write a classifier of images to a new folder, with the image processor of the task that it was trained on.

    Raises ValueError as `export`.
    """
    shape = task.seen
    exported: Any = RelnetForImageClassification(RelnetImageConfig.from_task(task, model.config))
    exported.model.load_state_dict(model.state_dict())
    processor = RelnetImageProcessor(shape.height, shape.width, task.mean, task.std)
    with _new_folder(Path(folder), card) as partial:
        exported.save_pretrained(partial)
        processor.save_pretrained(partial)


@contextmanager
def _new_folder(folder: Path, card: str) -> Generator[Path]:
    """Give a folder to write into, which takes its name once all is in it."""
    if folder.exists():
        raise ValueError(f"{folder} exists; give a new folder, an exported one is never overwritten")
    # Apart, so that an error names the user's folder and not ours.
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}.tmp")
    partial.mkdir()
    try:
        yield partial
        if card:
            (partial / "README.md").write_text(card)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def load(folder: str | Path) -> tuple[RelnetForCausalLM, Any]:
    """Return an exported folder's model and tokenizer; ValueError where it lacks a tensor or a tokenizer."""
    folder = Path(folder)
    if not (folder / "tokenizer.json").exists():
        raise ValueError(
            f"{folder} has no tokenizer.json, so nothing turns a prompt into tokens; save a tokenizer there"
        )
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    except Exception as error:
        # Whatever a damaged file makes tokenizers and transformers raise.
        raise ValueError(
            f"{folder}/tokenizer.json cannot be read ({type(error).__name__}: {error}); export the run again"
        ) from None
    model = RelnetForCausalLM.from_pretrained(folder)
    _check_vocabulary(tokenizer, model.config.vocab_size)
    return model, tokenizer


def _check_vocabulary(tokenizer: PreTrainedTokenizerFast, vocab_size: int) -> None:
    if len(tokenizer) > vocab_size:
        raise ValueError(
            f"the tokenizer has {len(tokenizer)} tokens and the model's vocabulary {vocab_size}; give the one it was trained with"
        )
