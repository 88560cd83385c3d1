"""`perfdoctor list`."""


def command() -> None:
    """List the checks."""
    from perfdoctor.catalogue import checks

    every = checks()
    width = max(len(check.id) for check in every)
    for check in every:
        print(f"{check.id:<{width}}  {check.title}")
