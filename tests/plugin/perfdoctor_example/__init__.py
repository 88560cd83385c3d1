"""Checks of a third party: one that is good, and two that can't be used."""
