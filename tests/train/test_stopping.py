"""Training that Ctrl-C or a full disk stops."""

import os
import signal
import threading

import pytest

from relnet.train import loop as module
from relnet.train.log import read_result
from tests.train.fakes import assert_same_weights, checkpoints, tiny_model, train_tiny


def press_at(step, times=1):
    def on_step(record):
        if record.step == step:
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)

    return on_step


def test_the_first_ctrl_c_saves_and_the_run_goes_on_to_the_same_bits(tmp_path):
    handler = signal.getsignal(signal.SIGINT)
    whole, resumed = tiny_model(), tiny_model()
    train_tiny(tmp_path / "whole", whole)
    with pytest.raises(KeyboardInterrupt, match="stopped after update 7; resume"):
        train_tiny(tmp_path / "run", on_step=press_at(7))
    assert signal.getsignal(signal.SIGINT) is handler
    assert checkpoints(tmp_path / "run") == ["step-00000005.safetensors", "step-00000007.safetensors"]
    assert not (tmp_path / "run" / "result.json").exists()
    train_tiny(tmp_path / "run", resumed, resume=True)
    assert_same_weights(resumed, whole)


def test_the_second_ctrl_c_stops_at_once_and_the_last_checkpoint_is_good(tmp_path):
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt, match="at once"):
        train_tiny(tmp_path, on_step=press_at(7, times=2))
    assert signal.getsignal(signal.SIGINT) is handler
    assert checkpoints(tmp_path) == ["step-00000000.safetensors", "step-00000005.safetensors"]
    assert train_tiny(tmp_path, resume=True).steps == 20


def test_a_ctrl_c_in_the_last_update_still_finishes_the_run(tmp_path):
    with pytest.raises(KeyboardInterrupt, match="finished all the same"):
        train_tiny(tmp_path, on_step=press_at(20))
    assert read_result(tmp_path).steps == 20


def test_training_works_outside_the_main_thread(tmp_path):
    results = []
    thread = threading.Thread(target=lambda: results.append(train_tiny(tmp_path)))
    thread.start()
    thread.join()
    assert results[0].steps == 20


def test_a_full_disk_stops_the_run_with_one_error_and_a_good_checkpoint(tmp_path, monkeypatch):
    write, written = module.save_checkpoint, []

    def save_until_full(folder, checkpoint, keep):
        written.append(checkpoint)
        if len(written) == 3:
            raise OSError(28, "No space left on device while writing")
        return write(folder, checkpoint, keep)

    monkeypatch.setattr(module, "save_checkpoint", save_until_full)
    with pytest.raises(OSError, match="No space left"):
        train_tiny(tmp_path)
    monkeypatch.undo()
    assert checkpoints(tmp_path) == ["step-00000000.safetensors", "step-00000005.safetensors"]
    assert train_tiny(tmp_path, resume=True).steps == 20
