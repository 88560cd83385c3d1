"""More threads want to run than there are cores.

What it finds
-------------
A pool of XLA, BLAS or OpenMP threads, or data workers, that outnumber the cores which the training
may use, and that really run; threads and processes of the program that never rest, though the step
waits for nothing that they do; and an affinity that keeps it from cores which the machine has.

Why it costs
------------
XLA splits an operation among its whole pool and waits for the last part: with more threads than
cores some part always waits for its turn (1.3 times slower with 32 threads on 2 cores). Pools that
sleep cost nothing.

How it is measured
------------------
Threads by name (`tf_XLAEigen` is XLA's pool), pools by threadpoolctl, and how often a thread had to
leave its core though it could have gone on. `OMP_NUM_THREADS` does not change XLA's pool; `NPROC`
and the affinity do. A trial measures what fewer threads gain. The thread that makes the steps is
held up once, for a second or two: what works on all the time never rests, and what loads for the
step does once it is ahead. The step is replayed without those that never rest.

How to fix
----------
Unset NPROC, or set it to the cores of a container with a quota; as many data workers as cores;
`OMP_NUM_THREADS=1` where worker threads or processes share the cores; a thread that works ahead
waits when its queue is full.

References
----------
Deeplearning4j, "Performance debugging", step 10: OMP_NUM_THREADS. OpenXLA, `cpu_info.cc`: NPROC.
"""

from perfdoctor import Evidence, Observation, Outcome, needed, ok
from perfdoctor_checks._beside import restless, workers
from perfdoctor_checks._pools import affinity, facts, numerics, pool_of, xla
from perfdoctor_checks._reasons import hint_of

ID = "omp-threads"
NEEDS = ("threads",)


def check(observation: Observation) -> Outcome:
    """Compares what wants to run with the cores."""
    threads, cores = needed(observation.threads), observation.host.usable_cores
    evidence = facts(observation, threads)
    reasons = [
        *affinity(observation),
        *xla(observation, threads),
        *workers(observation),
        *numerics(observation, threads),
        *restless(observation),
    ]
    if reasons:
        return hint_of(reasons, evidence)
    pool = f"{pool_of(threads)} threads of XLA" if pool_of(threads) else "threads"
    return ok(f"{pool} for {cores:g} cores", *evidence)


def here(observation: Observation) -> list[Evidence]:
    """The cores, and the variables that size the pools."""
    host, env = observation.host, observation.environment
    cores = Evidence("cores", host.usable_cores, "usable", "affinity and quota")
    names = ("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return [cores] + [Evidence(name, env.get(name), "", "environment") for name in names]
