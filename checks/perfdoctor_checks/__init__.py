"""The built-in checks, one module each; `perfdoctor.catalogue` finds them by walking this package."""
