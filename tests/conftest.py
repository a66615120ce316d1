"""What every test may ask for: the folder of real images, when it is there."""

import os
import signal
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import settings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("MPLBACKEND", "agg")
os.environ["KAGGLE_API_ENVIRONMENT"] = "LOCALHOST"  # no test asks Kaggle itself
os.environ.setdefault("OMP_NUM_THREADS", "1")  # the tests are side by side themselves
# A shell's "&" makes its commands ignore interrupts, which tests send.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine makes an example slow; that says nothing of the code.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


ROOT = Path(__file__).resolve().parent.parent


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return the number of cores plus one, since many tests wait."""
    return (os.cpu_count() or 1) + 1


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the top folder of the checkout."""
    return ROOT


@pytest.fixture(autouse=True)
def _no_step() -> None:
    """End the step of the test before, so that its work folder gets no finding."""
    from kaggle_tfr import notebook  # after the variables above

    notebook.end()


@pytest.fixture(scope="session")
def sample(tmp_path_factory) -> Path:
    """Return a folder with the small sample, in/, and its dataset, work/sample/.

    One process writes it for all.
    """
    from support.chain import write_sample_dataset

    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with FileLock(folder / "sample.lock"):
        if not (folder / "sample").exists():
            write_sample_dataset(folder / "sample")
    return folder / "sample"


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Return the folder of real photographs, which is beside the checkout."""
    folder = ROOT.parent / "shared/data"
    if not folder.is_dir():
        pytest.skip("the folder of real images, ../shared/data, is not on this machine")
    return folder


@pytest.fixture(scope="session")
def eight_devices() -> list:
    """Return eight devices of JAX on the CPU."""
    jax = pytest.importorskip("jax", reason="the extra 'jax' is not installed")
    jax.config.update("jax_num_cpu_devices", 8)
    return jax.devices("cpu")
