"""The machine without a run."""

import os
from datetime import UTC, datetime

from perfdoctor import __version__
from perfdoctor.observe.gpu import gpus
from perfdoctor.observe.host import host
from perfdoctor.observe.libraries import environment, libraries
from perfdoctor.observe.probing import probe
from perfdoctor.processes import ProcessGroups
from perfdoctor.schema.machine import Machine
from perfdoctor.schema.observation import OF_THE_RUN, Observation, Target

REFERENCE = Target(kind="reference", name="reference")
"""The target where none is named."""


def machine(groups: ProcessGroups, limit_s: float) -> Machine:
    """All that can be seen of the machine; jax gets `limit_s` seconds to answer."""
    backend, _, failure = probe(groups, os.environ, limit_s)
    return Machine(
        host=host(),
        gpus=gpus(),
        libraries=libraries(),
        environment=environment(),
        backend=backend,
        failure=failure,
    )


def unobserved(target: Target = REFERENCE, why: str = "nothing was run") -> Observation:
    """This machine as an Observation of which no part was run, in a few hundredths of a second."""
    return Observation(
        schema="perfdoctor.observation/1",
        perfdoctor=__version__,
        created=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        target=target,
        host=host(),
        gpus=gpus(),
        libraries=libraries(),
        environment=environment(),
        not_measured=dict.fromkeys(OF_THE_RUN, why),
    )
