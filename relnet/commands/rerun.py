"""The command that makes a run again, or goes on with it, from its configuration."""

import dataclasses
import inspect
import json
import shlex
from typing import Any

from relnet import recipes, report, tasks
from relnet.recipes.models import MODEL_NAMES
from relnet.run import RunConfig, config_from_json

RECIPES = {"copying": recipes.copying, "text": recipes.text}
# Where recipes and configurations have other words for the same.
OTHER_NAMES = {"max_steps": "steps"}


def rerun(found: report.Run) -> str | None:
    """The command to make a run again, or to go on with an unfinished one; None for a configuration that this relnet cannot read.

    A recipe with its options where there is one that gives this very configuration, else a line of Python that reads the run's own.
    """
    try:
        config = config_from_json(json.dumps(found.config))
    except ValueError:
        return None
    folder, is_there = str(found.folder), (found.folder / "config.json").is_file()
    going_on = is_there and not found.result
    for name, recipe in RECIPES.items():
        if (options := _options(recipe, config)) is not None:
            further = ["--out", folder, "--resume"] if going_on else []
            return shlex.join(["relnet", "train", name, *options, *_penalty(config), *further])
    if not is_there:
        return None
    place = f"{folder!r}, resume=True" if going_on else repr(f"{folder}-again")
    return shlex.join(["python", "-c", f"from relnet import run; run.train(run.read_config({folder!r}), {place})"])


def _options(recipe: Any, config: RunConfig) -> list[str] | None:
    """Options, without those that say what is so anyway, with which the recipe gives this configuration; None where none do."""
    mixer = config.model.mixers[0]
    told = {**vars(mixer), **vars(config.model), **vars(config.train), **vars(config.task)}
    parameters = inspect.signature(recipe).parameters
    options = {name: told[known] for name in parameters if (known := OTHER_NAMES.get(name, name)) in told}
    for name in MODEL_NAMES:
        options["mixer"] = name
        try:
            made = recipe(**options)
        except (TypeError, ValueError):
            continue
        task = made.task
        if isinstance(task, tasks.Text) and isinstance(config.task, tasks.Text):
            # A configuration also says which files were made of a text; names are for tables.
            task = dataclasses.replace(task, stores=config.task.stores)
        if dataclasses.replace(made, name=config.name, task=task, penalty=config.penalty) == config:
            changed = {key: value for key, value in options.items() if value != parameters[key].default}
            return [word for key, value in changed.items() for word in _words(key, value)]
    return None


def _penalty(config: RunConfig) -> list[str]:
    """Options of relnet train that stand beside any recipe's."""
    if config.penalty is None:
        return []
    names = {"norm": "penalty_norm", "iters": "penalty_iters"}
    return [
        word
        for field in dataclasses.fields(config.penalty)
        if (value := getattr(config.penalty, field.name)) != field.default
        for word in _words(names.get(field.name, field.name), value)
    ]


def _words(name: str, value: Any) -> list[str]:
    values = value if isinstance(value, tuple) else (value,)
    return [f"--{name.replace('_', '-')}", *map(str, values)]
