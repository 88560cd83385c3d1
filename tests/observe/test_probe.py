from types import SimpleNamespace
from typing import NoReturn

from perfdoctor.observe.probe import gpu_library


def unable() -> NoReturn:
    raise RuntimeError("Unable to load cuDNN.\nIs it installed?")


def test_a_library_tells_its_versions() -> None:
    versions = SimpleNamespace(
        cuda_runtime_get_version=lambda: 12080, cuda_runtime_build_version=lambda: 12040
    )
    found = gpu_library(versions, "cuda_runtime")
    assert (found.name, found.loaded, found.built_for, found.error) == ("cuda", 12080, 12040, "")


def test_what_a_library_raises_is_kept() -> None:
    versions = SimpleNamespace(cudnn_get_version=unable, cudnn_build_version=lambda: 91002)
    found = gpu_library(versions, "cudnn")
    assert (found.loaded, found.built_for) == (None, 91002)
    assert found.error == "RuntimeError: Unable to load cuDNN. Is it installed?"


def test_a_plugin_that_does_not_tell_what_it_was_built_for_is_no_missing_library() -> None:
    found = gpu_library(SimpleNamespace(cudnn_get_version=lambda: 91002), "cudnn")
    assert (found.loaded, found.built_for, found.error) == (91002, None, "")
