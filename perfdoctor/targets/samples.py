"""The sample workloads, each made to show one cause of slowness; the wheel has them too."""

from pathlib import Path

from perfdoctor.schema.errors import UsageError, meant

PACKAGE = Path(__file__).parents[1]
FOLDERS = (PACKAGE / "sample_configs", PACKAGE.parent / "sample_configs")
"""In an installed package, and in the repository."""


def samples() -> dict[str, Path]:
    """The workload files by their names."""
    folder = next((each for each in FOLDERS if each.is_dir()), None)
    return {file.stem: file for file in sorted(folder.glob("*.toml"))} if folder else {}


def sample(name: str) -> Path:
    """The workload file of a sample; a UsageError that names the nearest if there is none."""
    known = samples()
    if name not in known:
        raise UsageError(f"there is no sample {name!r}; {meant(name, known)}")
    return known[name]
