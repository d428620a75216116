"""relnet export."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

import relnet
from relnet import nn, report, run, tasks
from relnet.commands.console import out


@dataclass(frozen=True)
class Export:
    """Write a finished run as a Hugging Face folder: weights, configuration, tokenizer and a model card."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Folder of a finished run."""
    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FOLDER")]
    """New folder to write."""

    def __call__(self) -> None:
        """Run the command."""
        if self.folder.exists():
            raise ValueError(f"{self.folder} exists; give a new folder, an exported one is never overwritten")
        from relnet import hf

        config, model = run.load_any(self.run)
        written = card(self.run, config, model)
        if isinstance(model, nn.ImageModel):
            assert isinstance(config.task, tasks.Images)
            hf.export_images(model, self.folder, config.task, card=written)
        else:
            hf.export(model, self.folder, tokenizer=hf.tokenizer_of(config.task), card=written)
        out.print(f"{self.folder}: load it with {_auto_class(model)}.from_pretrained, after import relnet.hf")


USES = {
    "AutoModelForCausalLM": """from transformers import AutoModelForCausalLM, AutoTokenizer

folder = "."  # where this file lies
model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
said = model.generate(**tokenizer("{prompt}", return_tensors="pt"), max_new_tokens={most}, do_sample=False)
print(tokenizer.decode(said[0]))""",
    "AutoModelForImageClassification": """from PIL import Image
from transformers import AutoImageProcessor, AutoModelForImageClassification

folder, file = ".", "image.png"  # where this file lies, and an image of yours
model, processor = AutoModelForImageClassification.from_pretrained(folder), AutoImageProcessor.from_pretrained(folder)
logits = model(**processor(Image.open(file), return_tensors="pt")).logits
print(model.config.id2label[int(logits.argmax())])""",
}


def _auto_class(model: run.AnyModel) -> str:
    return "AutoModelForImageClassification" if isinstance(model, nn.ImageModel) else "AutoModelForCausalLM"


def _use(task: tasks.AnyTask, model: run.AnyModel) -> str:
    """Code that uses the model; one that copies is asked for a string of the length that it was trained on, and told to say all of it."""
    prompt, most = "a", 50
    if isinstance(task, tasks.Copying):
        prompt = task.decode(task.items(1, task.length, seed=0).answers[0, :-1])
        most = len(prompt) + 1
    return USES[_auto_class(model)].replace("{prompt}", prompt).replace("{most}", str(most))


def card(folder: Path, config: run.RunConfig, model: run.AnyModel) -> str:
    """Return the model card of a run: what it is, how it was trained, how it did, how to use it."""
    return f"""---
library_name: transformers
pipeline_tag: {"image-classification" if isinstance(model, nn.ImageModel) else "text-generation"}
tags: [relnet, {config.name}]
---

# {config.name} on {config.task.name}

{model.num_parameters:,} weights without embeddings, width {config.model.width}, {config.model.depth} blocks. Trained with relnet
{relnet.__version__} ([CausalRN, arXiv 2406.16168](https://arxiv.org/abs/2406.16168)).

## Use

```python
import relnet.hf  # pip install 'relnet[hf]'
{_use(config.task, model)}
```

## Results

{report.markdown(report.read_runs([folder]))}

This folder was written by `relnet export {folder.name} FOLDER` from the run below.

## The run

```json
{json.dumps(json.loads(run.config_to_json(config)), indent=2)}
```
"""
