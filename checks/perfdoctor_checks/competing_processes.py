"""Other programs take the CPU or the GPU.

What it finds
-------------
Processes, containers or virtual machines that compute at the same time as the training and take
time from it.

Why it costs
------------
XLA on a CPU splits an operation over all cores and waits for the slowest part, so that one busy
core holds all up; on a GPU two processes share time slices and memory.

How it is measured
------------------
Over the traced window: the CPU time of everything but the training and the kernel itself (processes
by name, the hypervisor's steal), and the time for which the training's threads were ready but had
no core (/proc/<pid>/task/*/schedstat). What others take for less than half of the window does not
count, since it may be a command that ended at once; so a rival that rests more than it works stays
unseen. The loss is the smaller of the two: threads also
wait for each other. Memory bandwidth that others take can't be seen from here. Programs that the
training itself has started, and that work on while its step is held up, are tried: the captured
step with and without as many processes that never rest.

How to fix
----------
Stop the other program or move it; give the training cores of its own (`taskset`, a job's CPU
request); on shared GPUs choose one that is free with CUDA_VISIBLE_DEVICES.

References
----------
Deeplearning4j, "Performance debugging", step 12. proc_pid_schedstat(5); NVML.
"""

from perfdoctor import Observation, Outcome, hint, issue, needed, ok
from perfdoctor_checks._beside import programs
from perfdoctor_checks._limits import SLIGHT
from perfdoctor_checks._reasons import hint_of
from perfdoctor_checks._rivals import facts, fix, gain, rivals_cores, summary

ID = "competing-processes"
NEEDS = ("load", "steps")


def check(observation: Observation) -> Outcome:
    """Reads what others took, and what that cost the training."""
    load, cores = needed(observation.load), observation.host.usable_cores
    evidence = facts(load)
    taken = (rivals_cores(load) + load.steal_cores) / cores
    if taken >= SLIGHT:
        return issue(summary(load, cores), evidence, [fix(load)], gain(load, cores))
    own = programs(observation)
    if own:
        return hint_of(own, evidence)
    rivals = [each for gpu in observation.gpus for each in gpu.processes]
    on_gpu = observation.backend is not None and observation.backend.platform in ("gpu", "cuda")
    if rivals and on_gpu:
        names = ", ".join(f"{each.name} ({each.pid})" for each in rivals[:3])
        return hint(f"other processes hold memory on the GPU: {names}", evidence)
    return ok(f"others take {taken:.1%} of the CPU", *evidence)
