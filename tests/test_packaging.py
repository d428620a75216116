"""What is built from the sdist, installed outside of the tree, is the whole package and works."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("cmake") is None, reason="without a network the build needs CMake to be here"),
]


def run(*command, **options):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The sdist, and a folder into which the wheel that was built from it is installed."""
    place = tmp_path_factory.mktemp("built")
    run(sys.executable, "-m", "build", "--no-isolation", "--skip-dependency-check", "--outdir", place, ROOT)
    (sdist,), (wheel,) = place.glob("*.tar.gz"), place.glob("*.whl")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-deps", "--no-index")
    run(*pip, "--target", place / "installed", wheel)
    return sdist, place / "installed"


def in_python(code, installed, folder):
    """What the code prints, with the installed package in place of this checkout's."""
    # -S: the checkout is found by a hook in site-packages, which is not asked then.
    paths = os.pathsep.join([str(installed), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
    environment = {**os.environ, "PYTHONPATH": paths}
    return run(sys.executable, "-S", "-c", code, cwd=folder, env=environment).strip()


def modules(folder):
    """Python's, and those of the report page."""
    files = (folder / "relnet").rglob("*")
    return {str(path.relative_to(folder)) for path in files if path.suffix in (".py", ".js", ".css")}


def test_the_wheel_holds_every_module_the_types_and_the_licence_and_no_sources_of_kernels(built):
    _, installed = built
    assert modules(installed) == modules(ROOT)
    assert (installed / "relnet" / "py.typed").exists()
    assert list(installed.glob("relnet-*.dist-info/**/LICENSE"))
    assert not [path for path in installed.rglob("*") if path.suffix in (".cpp", ".h", ".o")]


def test_the_installed_package_imports_and_computes(built, tmp_path):
    _, installed = built
    code = "import relnet, relnet.ops; print(relnet.__file__)"
    assert Path(in_python(code, installed, tmp_path)) == installed / "relnet" / "__init__.py"
    code = "import torch; from relnet import ops; print(tuple(ops.relation_mean(*torch.randn(2, 1, 5, 4)).shape))"
    assert in_python(code, installed, tmp_path) == "(1, 5, 4)"
    assert "usage: relnet" in in_python("from relnet import cli; cli.main(['--help'])", installed, tmp_path)


@pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="there is no C++ compiler")
def test_the_kernels_are_in_the_wheel_and_load(built, tmp_path):
    _, installed = built
    assert list((installed / "relnet" / "ops" / "kernels").glob("librelnet_kernels.*"))
    code = (
        "from relnet import ops; from relnet.ops import cpu_library; print(cpu_library.library()._name, ops.explain())"
    )
    said = in_python(code, installed, tmp_path)
    assert said.startswith(str(installed))
    assert "not built" not in said


def test_the_sdist_holds_what_its_readers_and_its_tests_need(built):
    sdist, _ = built
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = modules(ROOT) | {str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("*.py")}
    wanted |= {"CMakeLists.txt", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md"}
    wanted |= {"constraints.txt", "pyproject.toml", "docs/mathematics.md", "docs/numerics.md", "relnet/py.typed"}
    wanted |= {str(path.relative_to(ROOT)) for path in (ROOT / "relnet").rglob("*.cpp")}
    assert wanted - names == set()
    assert not [name for name in names if name.endswith((".so", ".o", ".pyc")) or name.startswith(("runs/", "build/"))]
