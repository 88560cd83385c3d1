"""Errors of files."""

NotFoundError = FileNotFoundError
