"""The computation does not run where it could.

What it finds
-------------
What runs the computation, and what could have: an accelerator that is there but unused, a plugin
that is missing or made for another version, `JAX_PLATFORMS`, a jax that can't be imported or that
hangs while it starts its devices.

Why it costs
------------
jax falls back to the CPU with one line in the log. A model that fits a GPU trains there ten to a
hundred times as fast.

How it is measured
------------------
A child process imports jax under a time limit and lists its devices. Beside it stand what the
machine shows without jax (NVML, device files), the installed packages and the environment.

How to fix
----------
Install the extra of jax that fits the driver, `pip install -U "jax[cuda13]"` or `"jax[cuda12]"`;
unset JAX_PLATFORMS and CUDA_VISIBLE_DEVICES.

References
----------
Deeplearning4j, "Performance debugging", step 1: "Loaded [CpuBackend] backend". JAX, "Installation".
"""

from perfdoctor import Evidence, Observation, Outcome, issue, not_measured, ok
from perfdoctor_checks._accelerators import (
    facts,
    failed,
    loaded,
    repair,
    unused_accelerator,
    use_accelerator,
)

ID = "backend"
NEEDS = ()


def check(observation: Observation) -> Outcome:
    """Looks for a failure first, then for an accelerator that is not used."""
    failure = observation.failure
    if failure is not None and failure.stage != "run":
        return issue(failed(failure), facts(observation), [repair(failure, observation)])
    if observation.backend is None:
        return not_measured("jax was not asked for its devices")
    accelerator = unused_accelerator(observation)
    if accelerator is None:
        return ok(loaded(observation), *facts(observation))
    summary = f"the computation runs on the CPU; {accelerator} is there and unused"
    return issue(summary, facts(observation), [use_accelerator(observation)])


def here(observation: Observation) -> list[Evidence]:
    """Cores, memory, accelerators and jax."""
    return facts(observation)
