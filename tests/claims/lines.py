"""Results as the commands write them, made up."""

from relnet.claims import CLAIMS, Results

JUDGES = {claim.key: claim.judge for claim in CLAIMS}

MIXERS = {"linear-causalrn": "LinearCausalRNConfig", "transformer": "AttentionConfig"}


def run(
    name,
    length=16,
    reached=100,
    *,
    seed=0,
    lr=5e-4,
    heads=1,
    steps=None,
    curve=None,
    exam=(320, 320),
    limit=2000,
    stopped=None,
    **changes,
):
    """A copying run at 99 % after `reached` updates (None: never); curve: window accuracies; exam: exact of 320 in the two modes."""
    steps = steps or (limit if reached is None else reached + 20)
    if curve is None:
        curve = [min(1.0, 0.99 * step / (reached or 10 * steps)) for step in range(1, steps + 1)]
    modes = zip(("teacher_forced", "free_running"), exam, strict=True)
    return {
        "format": 1,
        "command": "relnet sweep",
        "name": name,
        "config": {
            "format": 1,
            "name": name,
            "task": {"_type": "Copying", "length": length, "layout": "cui2024"},
            "model": {
                "width": 192,
                "depth": 12,
                "mixer": {"_type": MIXERS.get(name, "CausalRNConfig"), "heads": heads},
            },
            "train": {
                "batch_size": 64,
                "precision": "float32",
                "lr": lr,
                "seed": seed,
                "stop_accuracy": 0.99,
                "steps": limit,
            }
            | changes,
        },
        "result": {
            "steps": steps,
            "steps_to_accuracy": reached,
            "stopped": stopped or ("limit" if reached is None else "accuracy"),
            "bits_per_byte": None,
            "machine": "here",
            "wall_seconds": 1.0,
        },
        "exam": [
            {"task": "copying-cui2024", "mode": mode, "length": length, "items": 320, "exact": exact}
            for mode, exact in modes
        ],
        "curve": {
            "step": list(range(1, len(curve) + 1)),
            "window_accuracy": curve,
            "loss": [1 - value for value in curve],
        },
    }


def falling(first, then, steps):
    """Accuracies that are 0 until 20 % at `first`, 90 % at `then`."""
    return [0.0] * (first - 1) + [0.2] * (then - first) + [0.9] * (steps - then + 1)


def exam(subject, train_length, length, exact, *, task="copying", seed=0, **changes):
    """A line of `relnet exam`: exact of 100 free-running answers."""
    return {
        "subject": subject,
        "task": f"{task}-jelassi2024",
        "train_length": train_length,
        "length": length,
        "lr": 1e-3,
        "mode": "free_running",
        "seed": seed,
        "items": 100,
        "exact": exact,
        "samples": 64_000,
        "samples_to_99": None,
        "train_accuracy": 0.5,
        "steps": 1000,
    } | changes


def of(*lines):
    return Results({"some.jsonl": list(lines)})


def verdict(key, *lines):
    return JUDGES[key](of(*lines)).verdict
