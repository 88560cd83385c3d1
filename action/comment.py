"""The step of the GitHub Action that comments a pull request with the report.

A later run changes its own former comment, so that there is one. Needs the standard library only.
"""

import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LIMIT_S = 30
PAGE, MOST_PAGES = 100, 30


@dataclass(frozen=True)
class Api:
    """GitHub's REST API, for one repository."""

    url: str
    repository: str
    token: str

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The answer, decoded; an HTTPError if it is refused."""
        request = urllib.request.Request(
            f"{self.url}{path}",
            method=method,
            data=json.dumps(body).encode() if body is not None else None,
            headers={
                "Accept": "application/vnd.github+json",
                "Authorization": f"Bearer {self.token}",
                "Content-Type": "application/json",
                "User-Agent": "perfdoctor",
            },
        )
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            return json.load(answer)

    def of_repository(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The same, below the repository."""
        return self.call(method, f"/repos/{self.repository}{path}", body)


def main(environment: Mapping[str, str]) -> None:
    """A comment that may not be written (a fork's token only reads) is a warning, no failure."""
    event = json.loads(Path(environment["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
    number = event.get("pull_request", {}).get("number")
    if number is None:
        return
    api = Api(
        url=environment.get("GITHUB_API_URL", "https://api.github.com"),
        repository=environment["GITHUB_REPOSITORY"],
        token=environment["TOKEN"],
    )
    mark = marker(environment.get("NAME", "perfdoctor"))
    report = Path(environment["MARKDOWN"]).read_text(encoding="utf-8")
    try:
        comment(api, number, mark, f"{mark}\n{report}")
    except (urllib.error.URLError, TimeoutError) as error:
        print(f"::warning title=perfdoctor::the pull request could not be commented: {error}")


def marker(name: str) -> str:
    """How our comments begin; nobody sees it."""
    plain = re.sub(r"[^A-Za-z0-9_.]+", " ", name).strip()
    return f"<!-- perfdoctor: {plain} -->"


def comment(api: Api, number: int, mark: str, body: str) -> None:
    """Change our former comment, or write the first one."""
    former = next((each["id"] for each in ours(api, number, mark)), None)
    if former is None:
        api.of_repository("POST", f"/issues/{number}/comments", {"body": body})
    else:
        api.of_repository("PATCH", f"/issues/comments/{former}", {"body": body})


def ours(api: Api, number: int, mark: str) -> Iterator[dict[str, Any]]:
    """The comments that begin with our mark and that whoever owns the token wrote."""
    author = login(api)
    for page in range(1, MOST_PAGES + 1):
        found = api.of_repository("GET", f"/issues/{number}/comments?per_page={PAGE}&page={page}")
        for each in found:
            own = each["user"]["login"] == author if author else each["user"]["type"] == "Bot"
            if own and (each.get("body") or "").startswith(mark):
                yield each
        if len(found) < PAGE:
            return


def login(api: Api) -> str | None:
    """The user to whom the token belongs; None for the job's own, which is an app's."""
    try:
        return str(api.call("GET", "/user")["login"])
    except urllib.error.HTTPError:
        return None


if __name__ == "__main__":
    main(os.environ)
