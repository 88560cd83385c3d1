"""What `pip install perfdoctor` adds to an environment that has jax: packages, and megabytes.

python -m tests.benchmarks.installed_size [FOLDER]

Builds the wheel, makes a fresh environment with jax alone, and installs the wheel into it. With a
FOLDER both are left there, to be tried (.ci/wheel), and no result is saved. Exits with 1 if it is
more than MOST_PACKAGES or MOST_MB, or if a package that was there has changed.
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.command import ROOT
from tests.saved import save

MOST_PACKAGES, MOST_MB = 15, 40.0


def run(*command: str | Path) -> None:
    """A command that has to succeed."""
    subprocess.run(command, check=True, cwd=ROOT, stdout=sys.stderr)


def built(folder: Path) -> Path:
    """The wheel, of this working tree."""
    run(sys.executable, "-m", "build", "--wheel", "--outdir", folder)
    [wheel] = folder.glob("*.whl")
    return wheel


def environment(folder: Path) -> Path:
    """The interpreter of a fresh environment, which has jax and nothing else."""
    run(sys.executable, "-m", "venv", folder)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "jax")
    return python


def packages(python: Path) -> set[str]:
    """Names and versions of all that is installed, but for pip's own."""
    listing = [str(python), "-m", "pip", "list", "--format=freeze"]
    listing += ["--exclude=pip", "--exclude=setuptools"]
    return set(subprocess.check_output(listing, text=True).split())


def megabytes(python: Path) -> float:
    """Of all files of its packages, compiled ones included."""
    folder = next(python.parents[1].glob("lib/python*/site-packages"))
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6


def measured(folder: Path) -> tuple[set[str], float, set[str]]:
    """What was added, how large it is, and what has changed or gone of what was there."""
    wheel = built(folder)
    python = environment(folder / "environment")
    before, before_mb = packages(python), megabytes(python)
    run(python, "-m", "pip", "install", "--quiet", wheel)
    after = packages(python)
    # The wheel has no index to be named by: `perfdoctor @ file:///…` in three words.
    added = {each.partition("==")[0] for each in after - before if "==" in each}
    return added | {"perfdoctor"}, megabytes(python) - before_mb, before - after


def main() -> None:
    """Measure, print, and judge."""
    with TemporaryDirectory() as temporary:
        added, added_mb, changed = measured(Path(sys.argv[1] if len(sys.argv) > 1 else temporary))
    lines = [
        f"packages  {len(added)} (at most {MOST_PACKAGES}): {', '.join(sorted(added))}",
        f"size      {added_mb:.1f} MB (at most {MOST_MB:.0f})",
        f"changed   {', '.join(sorted(changed)) or 'none of those that jax brought'}",
    ]
    if len(sys.argv) > 1:
        print("\n".join(lines))
    else:
        data = {"packages": sorted(added), "mb": round(added_mb, 2), "changed": sorted(changed)}
        save("installed_size", lines, data)
    if len(added) > MOST_PACKAGES or added_mb > MOST_MB or changed:
        sys.exit("perfdoctor adds too much to an environment")


if __name__ == "__main__":
    main()
