"""Scripts with which something is wrong, and what `perfdoctor check` must say of each."""

from dataclasses import dataclass

TRAINING = """
import jax, jax.numpy as jnp
@jax.jit
def step(params, x):
    return params - 0.1 * jax.grad(lambda p: jnp.tanh(x @ p).mean())(params)
params, x = jnp.ones((256, 256)), jnp.ones((64, 256))
"""
FOR_EVER = """
while True:
    for _ in range(100):
        params = step(params, x)
    params.block_until_ready()
"""


@dataclass(frozen=True)
class Case:
    """A script, what the report's sentence must hold, and the exit code."""

    name: str
    script: str
    says: str
    exit_code: int = 3
    file: str = "train.py"
    args: tuple[str, ...] = ()


CASES = (
    Case(
        "raises at once",
        "import jax\nraise ValueError('no such data set')",
        "ValueError: no such data set",
    ),
    Case(
        "raises after some training",
        TRAINING
        + """
import time
for i in range(10**9):
    params = step(params, x)
    if i % 100 == 0:
        params.block_until_ready()
    if i == 0:
        start = time.monotonic()
    if time.monotonic() - start > 6:
        raise RuntimeError("the loss is NaN")
""",
        "No cause of slowness found",
        0,
    ),
    Case("exits at once", "import sys; sys.exit(0)", "never imported jax"),
    Case("exits with an error", "import jax, sys; sys.exit(4)", "status 4"),
    Case("never imports jax", "print('hello')", "never imported jax"),
    Case("never computes", "import jax\nprint(jax.__version__)", "jax computed nothing"),
    Case(
        "never trains",
        TRAINING + "print(step(params, x).sum())",
        "ended before it was steady",
    ),
    Case(
        "prints megabytes",
        TRAINING + "for _ in range(100): print('x' * 100_000)\n" + FOR_EVER,
        "No cause of slowness found",
        0,
    ),
    Case(
        "forks workers",
        "import multiprocessing, time\n"
        "def work():\n    time.sleep(1e6)\n"
        "if __name__ == '__main__':\n"
        "    for method in ('fork', 'spawn', 'forkserver'):\n"
        "        multiprocessing.get_context(method).Process(target=work, daemon=True).start()\n"
        + "\n".join("    " + line for line in (TRAINING + FOR_EVER).splitlines()),
        "No cause of slowness found",
        0,
    ),
    Case(
        "ignores SIGINT and SIGTERM",
        "import signal\n"
        "for number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, signal.SIG_IGN)\n"
        + TRAINING
        + FOR_EVER,
        "No cause of slowness found",
        0,
    ),
    Case(
        "deadlocks",
        TRAINING + "step(params, x)\nimport threading\nlock = threading.Lock()\n"
        "lock.acquire(); lock.acquire()",
        "no jitted function was called",
    ),
    Case(
        "runs out of memory",
        "import jax\nheld = bytearray(2**46)",
        "MemoryError",
    ),
    Case(
        "is killed",
        "import jax, os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "signal 9",
    ),
    Case(
        "removes its working directory",
        "import os, shutil\nshutil.rmtree(os.getcwd())\n" + TRAINING + FOR_EVER,
        "No cause of slowness found",
        0,
    ),
    Case("has a syntax error", "x = (", "SyntaxError: '(' was never closed (train.py, line 1)"),
    Case("is no Python file", "\x7fELF\x02\x01\x00binary", "SyntaxError"),
    Case("needs a module", "import jax, no_such_module", "No module named 'no_such_module'"),
)
