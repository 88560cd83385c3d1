"""Accelerators that jax should use: why it does not, and what to install or set."""

from perfdoctor import Change, Evidence, Failure, Fix, Observation, needed, on_cpu, set_variables
from perfdoctor_checks._cuda import install
from perfdoctor_checks._limits import GIB


def failed(failure: Failure) -> str:
    """What jax did instead of answering."""
    doing = "be imported" if failure.stage == "import" else "list its devices"
    if failure.kind == "hung":
        return f"jax hangs when it is to {doing}: {failure.message}"
    return f"jax can't {doing}: {failure.message}"


def repair(failure: Failure, observation: Observation) -> Fix:
    """The likeliest way out."""
    variables = hiding(observation)
    if failure.stage == "devices" and variables and not wants_gpu(observation):
        return Fix(
            summary="let jax choose its devices",
            how=set_variables(observation, dict.fromkeys(variables)),
            change=Change(env=dict.fromkeys(variables)),
        )
    if failure.stage == "devices" and failure.kind == "raised" and observation.gpus:
        return install(observation)
    if failure.stage == "devices" and failure.kind == "hung":
        return Fix(
            summary="find what holds the device",
            how="nvidia-smi  # another process, a driver that hangs; JAX_PLATFORMS=cpu to go on",
        )
    return Fix(summary="install jax anew", how="pip install -U jax jaxlib")


def wants_gpu(observation: Observation) -> bool:
    """Whether a GPU is asked for and there, so that the way out is to make it work."""
    asked = observation.environment.get("JAX_PLATFORMS", "").split(",")[0] in ("cuda", "gpu")
    hidden = "CUDA_VISIBLE_DEVICES" in hiding(observation)
    return asked and bool(observation.gpus) and not hidden


def unused_accelerator(observation: Observation) -> str | None:
    """What the machine has while jax computes on the CPU."""
    if not on_cpu(observation):
        return None
    if observation.gpus:
        return observation.gpus[0].name
    libraries = observation.libraries
    return libraries.accelerators[0] if libraries and libraries.accelerators else None


def hiding(observation: Observation) -> list[str]:
    """Variables that keep jax from its accelerator."""
    env = observation.environment
    found = [name for name in ("JAX_PLATFORMS", "JAX_PLATFORM_NAME") if env.get(name)]
    if env.get("CUDA_VISIBLE_DEVICES") in ("", "-1", "none"):
        found.append("CUDA_VISIBLE_DEVICES")
    return found


def use_accelerator(observation: Observation) -> Fix:
    """The first obstacle between jax and the accelerator."""
    variables = hiding(observation)
    if variables:
        return Fix(
            summary="let jax use the accelerator",
            how=set_variables(observation, dict.fromkeys(variables)),
            change=Change(env=dict.fromkeys(variables)),
            changes_results="numerics",
        )
    for setting in observation.settings or ():
        if setting.name == "jax_platforms" and setting.origin == "code":
            return Fix(
                summary="let jax use the accelerator",
                how=f'remove jax.config.update("jax_platforms", {setting.value!r})',
            )
    if not observation.gpus:
        return Fix(
            summary="install jax for this accelerator",
            how="see https://docs.jax.dev/en/latest/installation.html for the right extra",
        )
    return install(observation)


def loaded(observation: Observation) -> str:
    """The guide's line: what was loaded."""
    backend = needed(observation.backend)
    kinds = sorted({device.kind for device in backend.devices})
    count = len(backend.devices)
    return (
        f"Loaded {backend.platform} backend: {count} device{'s' * (count > 1)} ({', '.join(kinds)})"
    )


def facts(observation: Observation) -> list[Evidence]:
    """Backend, devices, cores, memory and versions, as the guide's log lines have them."""
    host, found = observation.host, []
    if observation.backend is not None:
        found.append(
            Evidence("Loaded backend", observation.backend.platform, "", "jax.default_backend()")
        )
        found += [
            Evidence(f"device {d.id}", d.kind, "", "jax.devices()")
            for d in observation.backend.devices
        ]
        found += [
            Evidence("jax warned", warning, "", "jax's log")
            for warning in observation.backend.warnings
        ]
    found += [
        Evidence("cores", host.usable_cores, "cores", "affinity and quota"),
        Evidence("memory", round(host.memory_bytes / GIB, 1), "GiB", "host"),
    ]
    found += [
        Evidence(gpu.name, round((gpu.memory_bytes or 0) / GIB, 1), "GiB", "NVML")
        for gpu in observation.gpus
    ]
    packages = observation.libraries.packages if observation.libraries else {}
    return found + [
        Evidence(name, version, "", "installed packages")
        for name, version in packages.items()
        if name.startswith("jax")
    ]
