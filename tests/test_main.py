"""What `relnet` answers before anything heavy is imported."""

import subprocess
import sys
from importlib import import_module

import pytest

import relnet
from relnet.__main__ import main


def test_the_version_needs_no_torch():
    code = "import runpy, sys; sys.argv[1:] = ['--version']\ntry: runpy.run_module('relnet', run_name='__main__')\n"
    code += "except SystemExit as ended: sys.exit(ended.code or 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"relnet {relnet.__version__}\n"


def test_all_else_is_the_command_line_s(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["relnet", "claims", "nowhere"])
    assert main() == 2
    assert capsys.readouterr().err.startswith("relnet: nowhere")


class Impatient:
    """The user, who presses Ctrl-C while this module is imported."""

    def __init__(self, module):
        self.module = module

    def find_spec(self, name, path=None, target=None):
        if name == self.module:
            raise KeyboardInterrupt
        return None


@pytest.mark.parametrize("module", ["relnet.cli", "relnet.commands.claims"])
def test_ctrl_c_while_modules_are_imported_is_one_line(monkeypatch, capsys, module):
    import_module("relnet.cli")
    for name in {"relnet.cli", module}:
        parent, _, child = name.rpartition(".")
        monkeypatch.delattr(sys.modules[parent], child)
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Impatient(module), *sys.meta_path])
    monkeypatch.setattr(sys, "argv", ["relnet", "--help"])
    assert main() == 130
    assert capsys.readouterr() == ("", "relnet: stopped\n")
