"""A stand-in for Matplotlib: nothing is drawn."""
