"""The extra of jax that a machine's NVIDIA driver can run."""

import re

from perfdoctor import Fix, Observation

FIRST_DRIVER = {12: "12.1", 13: "13.0"}
"""The CUDA version that the driver must support at least, by the plugin's major version."""
PLUGIN = re.compile(r"^jax-cuda(\d+)-plugin$")
"""The package that is jax's CUDA plugin, for one major version of CUDA."""


def install(observation: Observation) -> Fix:
    """The extra of jax that the driver can run; it replaces a plugin that can't be used."""
    driver = observation.gpus[0].cuda_driver_version
    majors = runnable(driver)
    if not majors:
        needs = FIRST_DRIVER[min(FIRST_DRIVER)]
        summary = f"update the NVIDIA driver: it supports CUDA {driver}, jax needs {needs}"
        return Fix(summary=summary, how="see https://www.nvidia.com/drivers")
    how = f'pip install -U "jax[cuda{max(majors)}]"'
    packages = observation.libraries.packages if observation.libraries else {}
    plugins = {
        int(m[1]): version for name, version in packages.items() if (m := PLUGIN.match(name))
    }
    if not plugins:
        return Fix(summary="install jax's CUDA plugin: there is none", how=how)
    usable = {major: version for major, version in plugins.items() if major in majors}
    if not usable:
        made_for = ", ".join(str(each) for each in plugins)
        summary = f"install a plugin that the driver can run: it supports {driver}, not {made_for}"
        return Fix(summary=summary, how=how)
    version = usable[max(usable)]
    if version != packages.get("jaxlib"):
        summary = f"plugin {version} and jaxlib {packages.get('jaxlib')} do not match"
        return Fix(summary=summary, how=how)
    return Fix(summary="find why the plugin does not start", how=f"{how}  # then: nvidia-smi")


def extra(observation: Observation) -> str:
    """The line that installs the extra in use, or else the one that the driver can run."""
    packages = observation.libraries.packages if observation.libraries else {}
    majors = [int(match[1]) for name in packages if (match := PLUGIN.match(name))]
    if not majors and observation.gpus:
        majors = runnable(observation.gpus[0].cuda_driver_version)
    return f'pip install -U "jax[cuda{max(majors, default=min(FIRST_DRIVER))}]"'


def runnable(driver: str) -> list[int]:
    """The plugins' major versions that a driver of this CUDA version can run."""
    return [major for major, first in FIRST_DRIVER.items() if number(driver) >= number(first)]


def number(version: str) -> tuple[int, ...]:
    """A version to compare."""
    return tuple(int(part) for part in version.split(".") if part.isdigit())
