"""Kaggle's own command-line client, read closely: it ends with code 0 when the server refuses."""

import re
import subprocess
import sys

# What the client prints with exit code 0 although its work was not done.
_REFUSALS = (
    r"Kernel push error: (.*)",
    r"Dataset (?:version )?creation error: (.*)",
    r"The following are not valid (?:dataset|competition|kernel) sources and could not (.*)",
)
_GONE = ("404", "403", "Not Found", "Forbidden", "was denied")


class KaggleError(RuntimeError):
    """The client or the server refused; the message says what was asked and what came back."""


class MissingError(KaggleError):
    """The kernel or dataset does not exist, or is somebody else's and private."""


def call(*arguments: str) -> str:
    """What `kaggle …` printed, when it did all that it was asked.

    Raises:
        ImportError: the client is not installed.
        MissingError: there is no such kernel or dataset.
        KaggleError: it failed, or reported a refusal while it ended with code 0.
    """
    command = [sys.executable, "-m", "kaggle", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    said = f"{done.stdout.strip()}\n{_last_lines(done.stderr)}".strip()
    asked = " ".join(["kaggle", *arguments])
    if done.returncode and "No module named" in done.stderr:
        raise ImportError(
            f"Kaggle's client cannot be started: {_last_lines(done.stderr, 1)}. "
            'Run: pip install "kaggle-tfr[kaggle]"'
        )
    if done.returncode:
        kind = MissingError if any(word in said for word in _GONE) else KaggleError
        raise kind(f"`{asked}` failed: {said or f'exit code {done.returncode}'}")
    for pattern in _REFUSALS:
        found = re.search(pattern, done.stdout)
        if found:
            raise KaggleError(f"`{asked}` was refused: {found.group(0).strip()}")
    return done.stdout


def username() -> str:
    """The Kaggle user whose key the client uses.

    Raises:
        KaggleError: no key is set up.
    """
    found = re.search(r"username: (\S+)", call("config", "view"))
    if not found or found.group(1) == "None":
        raise KaggleError(
            "Kaggle's client knows no user. Put kaggle.json, from your account's settings, into "
            "~/.kaggle/, or set KAGGLE_USERNAME and KAGGLE_KEY."
        )
    return found.group(1)


def _last_lines(text: str, count: int = 5) -> str:
    lines = [line.strip() for line in re.split(r"[\r\n]+", text) if line.strip()]
    return "\n".join(line for line in lines[-count:] if "B/s]" not in line)
