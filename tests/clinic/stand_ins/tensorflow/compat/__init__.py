"""`tensorflow.compat.v2` is this same stand-in."""
