"""What loads data faster, or beside the step: in a script, and in a workload file."""

from perfdoctor import Change, Fix, Workload
from perfdoctor_checks._limits import LIMIT_OF_WORKERS, SEVERAL

CHEAPER = Fix(
    summary="make the preparation itself cheaper",
    how="decode once and save the arrays, augment less or on the device, read from a faster disk",
    change=Change(step={"loading": "nowhere"}, is_bound=True),
)
IN_THREAD = Fix(
    summary="prepare batches ahead in a thread, and put them on the device there",
    how="ahead = pool.submit(lambda: jax.device_put(next(batches)))  # .result() a step later",
    change=Change(step={"loading": "thread"}),
)


def for_script(*, in_our_loop: bool = False) -> list[Fix]:
    """What to write, and what it is worth at most. In a loop of ours a thread can be tried."""
    ahead = Fix(
        summary="prepare batches ahead, in other threads or processes",
        how="grain: dataset.to_iter_dataset(grain.ReadOptions(num_threads=4, "
        "prefetch_buffer_size=8)); torch: DataLoader(..., num_workers=4, "
        "prefetch_factor=2)",
        change=Change(step={"loading": "process"}),
    )
    return [*([IN_THREAD] if in_our_loop else []), ahead, CHEAPER]


def for_workload(workload: Workload, cores: int) -> list[Fix]:
    """Pre-saved records, more prefetch, worker processes: as far as they are not in use."""
    data, found = workload.data, []
    cores = min(cores, LIMIT_OF_WORKERS)
    prefetch, threads = max(SEVERAL, data.prefetch), max(cores, data.threads)
    if data.source == "images":
        found.append(
            Fix(
                summary="decode the files once and read the saved arrays",
                how='[data] source = "records"',
                change=Change(workload={"data.source": "records"}),
            )
        )
    if (prefetch, threads) != (data.prefetch, data.threads):
        found.append(
            Fix(
                summary="prepare batches ahead of the step, in threads",
                how=f"[data] prefetch = {prefetch}, threads = {threads}",
                change=Change(workload={"data.prefetch": prefetch, "data.threads": threads}),
            )
        )
    if data.workers < cores:
        found.append(
            Fix(
                summary="prepare batches in worker processes",
                how=f"[data] prefetch = {max(2, data.prefetch)}, workers = {cores}",
                change=Change(
                    workload={"data.prefetch": max(2, data.prefetch), "data.workers": cores}
                ),
            )
        )
    return found or [CHEAPER]
