import pytest
import torch
from accelerate.tracking import GeneralTracker

from relnet.train.engine import Engine, is_main_process, num_processes
from tests.assertions import assert_same_bits
from tests.train.fakes import train_tiny


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "cpu:0", "mps:1", "", "tpu"])
def test_an_unknown_device_is_refused_with_those_there_are(device):
    with pytest.raises(ValueError, match=f"device '{device}': must be auto, cpu, cuda, mps"):
        Engine(device)


def test_a_gpu_that_is_not_there_is_refused():
    number = torch.cuda.device_count()
    with pytest.raises(ValueError, match=f"device 'cuda:{number}': torch sees {number} CUDA GPUs"):
        Engine(f"cuda:{number}")


def test_with_several_processes_one_gpu_for_all_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="each takes its own GPU"):
        Engine("cuda:0")


def test_the_device_can_change_from_run_to_run(monkeypatch):
    for device in ("meta", "cpu"):
        monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", device)
        assert Engine("auto").device.type == device
    monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", "meta")
    assert Engine("cpu").device.type == "cpu"


def test_a_batch_that_cannot_be_shared_out_is_refused():
    engine = Engine("cpu")
    assert engine.share(64, 4) == 64
    engine.num_processes = 3
    with pytest.raises(ValueError, match=r"batch_size=64: must be a multiple of processes x accumulate = 3 x 2 = 6"):
        engine.share(64, 2)


def test_generators_go_on_where_they_were():
    engine = Engine("cpu")
    with engine.seeded(5):
        states = engine.rng_states()
        first = torch.rand(4)
        engine.restore_rng(states)
        assert_same_bits(torch.rand(4), first)


def test_each_process_takes_its_own_generator():
    engine = Engine("cpu")
    states, drawn = [], []
    for engine.process in (0, 1):
        with engine.seeded(5):
            states.append(torch.get_rng_state())
            drawn.append(torch.rand(4))
    assert not torch.equal(*states)
    engine.num_processes = 2
    with engine.seeded(6):
        engine.restore_rng({"cpu": torch.stack(states)})
        assert_same_bits(torch.rand(4), drawn[1])


def test_generators_of_other_processes_or_devices_are_left_alone():
    engine = Engine("cpu")
    with engine.seeded(5):
        expected = torch.rand(4)
        other = torch.get_rng_state()
    with engine.seeded(5):
        engine.restore_rng({"cpu": torch.stack([other, other])})
        engine.restore_rng({"tpu": other[None], "cuda": other[None]})
        assert_same_bits(torch.rand(4), expected)


def test_training_leaves_the_callers_generator_as_it_was(tmp_path):
    before = torch.get_rng_state()
    train_tiny(tmp_path)
    assert_same_bits(torch.get_rng_state(), before)
    with pytest.raises(ZeroDivisionError):
        train_tiny(tmp_path / "failed", on_step=lambda record: 1 / 0)
    assert_same_bits(torch.get_rng_state(), before)


class Recorder(GeneralTracker):
    name = "recorder"
    requires_logging_directory = False

    def __init__(self):
        super().__init__()
        self.settings, self.rows, self.finished = {}, [], 0

    @property
    def tracker(self):
        return self

    def store_init_configuration(self, values):
        self.settings = values

    def log(self, values, step, **_):
        self.rows.append((step, values))

    def finish(self):
        self.finished += 1


def test_trackers_get_the_settings_and_every_update_and_are_finished(tmp_path):
    tracker = Recorder()
    train_tiny(tmp_path, trackers=[tracker], steps=3)
    assert tracker.settings["lr"] == 1e-2
    assert [step for step, _ in tracker.rows] == [1, 2, 3]
    assert tracker.rows[2][1]["samples"] == 24
    assert tracker.finished == 1


def test_trackers_are_finished_when_training_fails(tmp_path):
    tracker = Recorder()
    with pytest.raises(ZeroDivisionError):
        train_tiny(tmp_path, trackers=[tracker], on_step=lambda record: 1 / 0)
    assert tracker.finished == 1


def test_a_tracker_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ValueError, match="tracker 'papyrus': not installed or unknown"):
        train_tiny(tmp_path / "run", trackers=["papyrus"])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("size", "rank", "main"), [(None, None, True), ("1", "3", True), ("2", "0", True), ("2", "1", False)]
)
def test_the_first_of_several_processes_is_the_main_one(monkeypatch, size, rank, main):
    for name, value in (("WORLD_SIZE", size), ("RANK", rank)):
        monkeypatch.delenv(name, raising=False)
        if value:
            monkeypatch.setenv(name, value)
    assert is_main_process() == main
    assert num_processes() == int(size or 1)
