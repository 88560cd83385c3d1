"""The built-in checks, one module each; `perfdoctor.catalogue` walks this package."""
