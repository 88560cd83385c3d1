"""`import tensorflow.compat.v2 as tf` gives the stand-in itself."""

import sys

sys.modules[__name__] = sys.modules[__name__.removesuffix(".compat.v2")]
