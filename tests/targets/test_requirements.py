from importlib import metadata
from pathlib import Path

import pytest

from perfdoctor.schema.errors import UsageError
from perfdoctor.targets.requirements import demand_jax, demand_reference, lacking, numbers
from tests.command import SAMPLES, perfdoctor


def installed(monkeypatch: pytest.MonkeyPatch, **versions: str | None) -> None:
    """As if these packages had these versions; None: not installed."""
    true = metadata.version

    def version(name: str) -> str:
        if name not in versions:
            return true(name)
        if (found := versions[name]) is None:
            raise metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(metadata, "version", version)


def test_what_is_installed_here_is_enough() -> None:
    demand_jax()
    demand_reference()


@pytest.mark.parametrize("version", ["0.4.38", "0.7.2", "0.7.2.dev20250101+abc"])
def test_an_old_jax_is_told_in_a_sentence(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, jax=version)
    with pytest.raises(UsageError, match=f"jax {version.split('+')[0]}.* is too old.*0.8 or later"):
        demand_jax()


@pytest.mark.parametrize("version", ["0.8", "0.8.0.dev1", "0.10.2", "1.0", None])
def test_a_new_jax_is_taken_and_a_missing_one_left_to_the_probe(
    version: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(monkeypatch, jax=version)
    demand_jax()


def test_what_the_reference_loop_lacks_is_named_with_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed(monkeypatch, optax=None, equinox="0.11.1")
    with pytest.raises(UsageError) as caught:
        demand_reference()
    message = str(caught.value)
    assert "needs equinox 0.13.2 or later (here is 0.11.1), optax: pip install" in message
    assert "'perfdoctor[reference]'" in message and "\n" not in message


def test_without_package_metadata_the_reference_loop_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def requires(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", requires)
    with pytest.raises(UsageError, match=r"no package metadata.*pip install 'perfdoctor\[ref"):
        demand_reference()


def test_requirements_are_read_as_metadata_writes_them() -> None:
    lines = [
        "no-such-a>=1.0; extra == 'reference'",
        'no_such_b; extra == "reference"',
        "no-such.c[x]>=2,<3 ; extra=='reference'",
        "no-such-d>=1; extra == 'html'",
        "no-such-e",
    ]
    assert list(lacking(lines)) == ["no-such-a", "no_such_b", "no-such.c"]


def test_all_that_only_the_reference_loop_imports_is_in_the_extra() -> None:
    lines = metadata.requires("perfdoctor") or ()
    told = " ".join(lacking(line.replace(">=", ">=99") for line in lines))
    for name in ("optax", "equinox", "grain", "pillow", "jaxtyping", "absl-py"):
        assert f"{name} 99" in told


def test_numbers_of_versions() -> None:
    assert numbers("0.8.0.dev20251101") == (0, 8, 0)
    assert numbers("0.10.2") > numbers("0.8")
    assert numbers("2") == (2,)


def test_the_command_says_so_and_exits_with_2(tmp_path: Path) -> None:
    old = tmp_path / "jax-0.4.30.dist-info"
    old.mkdir()
    (old / "METADATA").write_text("Metadata-Version: 2.1\nName: jax\nVersion: 0.4.30\n")
    script = tmp_path / "train.py"
    script.write_text("print('never runs')\n")
    for target in (script, SAMPLES / "healthy.toml"):
        answer = perfdoctor("check", str(target), env={"PYTHONPATH": str(tmp_path)})
        assert (answer.returncode, answer.stdout) == (2, "")
        assert answer.stderr.startswith("perfdoctor: jax 0.4.30 is too old")
        assert len(answer.stderr.splitlines()) == 1
