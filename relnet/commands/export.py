"""relnet export."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

import relnet
from relnet import nn, report, run
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

        config, model = run.load(self.run)
        hf.export(model, self.folder, tokenizer=hf.tokenizer_of(config.task), card=card(self.run, config, model))
        out.print(f"{self.folder}: load it with AutoModelForCausalLM.from_pretrained, after import relnet.hf")


def card(folder: Path, config: run.RunConfig, model: nn.SequenceModel) -> str:
    """Return the model card of a run: what it is, how it was trained, how it did, how to use it."""
    return f"""---
library_name: transformers
pipeline_tag: text-generation
tags: [relnet, {config.name}]
---

# {config.name} on {config.task.name}

{model.num_parameters:,} weights without embeddings, width {config.model.width}, {config.model.depth} blocks. Trained with relnet
{relnet.__version__} ([CausalRN, arXiv 2406.16168](https://arxiv.org/abs/2406.16168)).

## Use

```python
import relnet.hf  # pip install 'relnet[hf]'
from transformers import AutoModelForCausalLM, AutoTokenizer

model, tokenizer = AutoModelForCausalLM.from_pretrained(FOLDER), AutoTokenizer.from_pretrained(FOLDER)
said = model.generate(**tokenizer("a", return_tensors="pt"), do_sample=False)
print(tokenizer.decode(said[0]))
```

## Results

{report.markdown(report.read_runs([folder]))}

This folder was written by `relnet export {folder.name} FOLDER` from the run below.

## The run

```json
{json.dumps(json.loads(run.config_to_json(config)), indent=2)}
```
"""
