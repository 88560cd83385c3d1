"""Imported by Python at its start, its folder being on the path; see `perfdoctor.injection`."""

import json
import os
import sys

here = os.path.dirname(__file__)  # noqa: PTH120  # pathlib is not loaded yet, and need not be
sys.path.remove(here)
_, _, others = os.environ["PYTHONPATH"].partition(os.pathsep)
if others:
    os.environ["PYTHONPATH"] = others
else:
    del os.environ["PYTHONPATH"]
orders = json.loads(os.environ.pop("PERFDOCTOR_ORDERS"))

from perfdoctor.injection.bootstrap import begin  # noqa: E402

begin(orders)

del sys.modules["sitecustomize"]
import sitecustomize  # type: ignore[import-not-found]  # noqa: E402, F401  # the one that stands behind ours; if none, as without us
