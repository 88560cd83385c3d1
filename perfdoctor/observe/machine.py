"""The machine without a run."""

import os

from perfdoctor.observe.gpu import gpus
from perfdoctor.observe.host import host
from perfdoctor.observe.libraries import environment, libraries
from perfdoctor.observe.probing import probe
from perfdoctor.processes import Ward
from perfdoctor.schema.machine import Machine


def machine(ward: Ward, limit_s: float) -> Machine:
    """All that can be seen of the machine; jax gets `limit_s` seconds to answer."""
    backend, _, failure = probe(ward, os.environ, limit_s)
    return Machine(
        host=host(),
        gpus=gpus(),
        libraries=libraries(),
        environment=environment(),
        backend=backend,
        failure=failure,
    )
