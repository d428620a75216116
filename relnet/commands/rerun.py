"""The command that makes a run again, or goes on with it, from its configuration."""

import dataclasses
import inspect
import itertools
import json
import shlex
from typing import Any, Literal, get_args, get_origin

from relnet import recipes, report
from relnet.run import RunConfig, config_from_json

# The paper's first: they need the fewest options.
RECIPES = {
    "paper-copying": recipes.paper_copying,
    "long-copying": recipes.long_copying,
    "copying": recipes.copying,
    "paper-text": recipes.paper_text,
    "text": recipes.text,
    "paper-images": recipes.paper_images,
    "images": recipes.images,
}
# Where recipes and configurations have other words for the same.
OTHER_NAMES = {"max_steps": "steps"}
# What a task learns from its data when they are prepared: a recipe leaves it empty.
FROM_DATA = ("stores", "shape", "mean", "std")


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
    made = f"run.train(run.read_config({folder!r}), {place})"
    return shlex.join(["python", "-c", f"from relnet import run; run.examine_unless_done({made})"])


def _options(recipe: Any, config: RunConfig) -> list[str] | None:
    """Options, without those that say what is so anyway, with which the recipe gives this configuration; None where none do."""
    # Of several mixers the last one's settings, where it has them: the first one of a windowed model gathers for it.
    first, last = (vars(config.model.mixers[place]) for place in (0, -1))
    mixer = first | {name: value for name, value in last.items() if value is not None}
    told = {**mixer, **vars(config.model), **vars(config.train), **vars(config.task)}
    parameters = inspect.signature(recipe).parameters
    options = {name: told[known] for name in parameters if (known := OTHER_NAMES.get(name, name)) in told}
    # What a configuration does not say by the recipe's words, as a mixer by its name: each word that there is.
    choices = {
        name: words
        for name, parameter in parameters.items()
        if get_origin(parameter.annotation) is Literal
        and options.get(name) not in (words := get_args(parameter.annotation))
    }
    for chosen in itertools.product(*choices.values()):
        options.update(zip(choices, chosen, strict=True))
        try:
            made = recipe(**options)
        except (TypeError, ValueError, OSError):
            # Also where the data are gone that a recipe looks at.
            continue
        if (
            dataclasses.replace(made, name=config.name, task=_filled(made.task, config), penalty=config.penalty)
            == config
        ):
            changed = {key: value for key, value in options.items() if value != parameters[key].default}
            return [word for key, value in changed.items() for word in _words(key, value)]
    return None


def _filled(task: Any, config: RunConfig) -> Any:
    """The task with what the configuration's has learnt from its data."""
    if type(task) is not type(config.task):
        return task
    empty = [name for name in FROM_DATA if hasattr(task, name) and not getattr(task, name)]
    return dataclasses.replace(task, **{name: getattr(config.task, name) for name in empty})


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
    if isinstance(value, bool):
        return [f"--{'' if value else 'no-'}{name.replace('_', '-')}"]
    values = value if isinstance(value, tuple) else (value,)
    return [f"--{name.replace('_', '-')}", *map(str, values)]
