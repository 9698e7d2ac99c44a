"""The access keys of a runtime that others can reach, and the file that they are kept in.

The file has the form of AWS's shared credentials file, one profile a key, so that every AWS tool
reads it as it is (``AWS_SHARED_CREDENTIALS_FILE``). It is made on first use, readable for its owner
alone, and refused when others can read it.
"""

from __future__ import annotations

import os
import secrets
import string
from dataclasses import dataclass, field
from pathlib import Path

from .. import local
from ..errors import ConfigError

SESSION_KEY = "ARTSESSION"
_ALPHABET = string.ascii_uppercase + string.digits


@dataclass(frozen=True)
class AccessKeys:
    secrets: dict[str, str]
    """Access key id to secret."""
    path: Path | None = None
    session: tuple[str, str] = field(
        default_factory=lambda: (SESSION_KEY, secrets.token_urlsafe(30))
    )
    """Of the sessions that share the machine's network: good for the object store alone, and as
    long as this runtime lives."""

    def secret(self, access_key: str, service: str) -> str | None:
        if access_key == self.session[0]:
            return self.session[1] if service == "s3" else None
        return self.secrets.get(access_key)


def load(path: Path) -> AccessKeys:
    """The keys of the file; one is made when there is no file."""
    if not path.exists():
        generate(path)
    if path.stat().st_mode & 0o077:
        raise ConfigError(f"others can read the access keys in {path}: chmod 600 {path}")
    keys = local.read_keys(path)
    if not keys:
        raise ConfigError(
            f"{path} holds no access key. It has the form of AWS's credentials file: a profile "
            "with aws_access_key_id and aws_secret_access_key"
        )
    if SESSION_KEY in keys:
        raise ConfigError(f"{path} uses the access key id {SESSION_KEY}, which is taken")
    return AccessKeys(keys, path)


def generate(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = "ART" + "".join(secrets.choice(_ALPHABET) for _ in range(17))
    text = (
        f"[default]\naws_access_key_id = {name}\naws_secret_access_key = "
        f"{secrets.token_urlsafe(30)}\n"
    )
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(file, "w") as opened:
        opened.write(text)
    os.replace(fresh, path)
