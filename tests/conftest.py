"""What holds for all tests: how JAX is set up, and that property-based tests draw the same examples everywhere."""

import gc
import os
import sys
from importlib.metadata import version
from pathlib import Path

# Compiling dominates these tests: little optimization, no emitters for fusions, without which it takes a third of the
# time, and what was compiled once is kept. Eight simulated devices are there for the tests of sharding; all others run
# on the first of them.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"
    " --xla_cpu_parallel_codegen_split_count=1"
    + (" --xla_cpu_use_fusion_emitters=false" if version("jaxlib") < "0.11" else ""),  # Later ones refuse the flag.
)
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parent.parent / ".cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

import signal
import threading

import pytest
from hypothesis import settings

# Whoever runs the tests may have been started to ignore signals, as nohup does; what they start must hear them.
if threading.current_thread() is threading.main_thread():
    for _ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(_ignored) is signal.SIG_IGN:
            signal.signal(_ignored, signal.default_int_handler if _ignored is signal.SIGINT else signal.SIG_DFL)

gc.set_threshold(50_000)  # Else a tenth of the time goes into looking through all that was compiled so far.

settings.register_profile("dpnlp", deadline=None, derandomize=True)
settings.load_profile("dpnlp")


@pytest.fixture(scope="module", autouse=True)
def _torch_begins_anew():
    """Models of transformers have the same first weights whichever tests ran before those of a file."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(1)


@pytest.fixture(scope="module", autouse=True)
def _what_is_left_is_kept():
    """What is still there when a file of tests is done stays until the end, and is not looked through again."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _home_of_a_stranger(tmp_path_factory: pytest.TempPathFactory):
    """Nothing that tests remember lies in the home of who runs them, and no file of tests knows what others did."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPNLP_HOME", str(tmp_path_factory.mktemp("home")))
        yield
