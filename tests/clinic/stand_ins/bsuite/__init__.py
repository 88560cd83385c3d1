"""A stand-in for bsuite: its game of catching a ball."""
