"""`python -m perfdoctor`."""

from perfdoctor.cli import main

main()
