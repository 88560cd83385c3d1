"""Drafts a workload module from what a run of a script showed, and from the script's text."""
