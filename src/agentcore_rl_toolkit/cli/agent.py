"""What commands are told of agents and models: an agent by its ARN, or by its name on the local
runtime; a model by its URL. What cannot be meant is refused before anything starts.
"""

from __future__ import annotations

import contextlib
import re

from .. import local
from ..errors import ConfigError
from .deploy import control_client, find_runtime, names_of
from .doctor import require_local, require_runtime


def find_agent(given: str, endpoint: str | None) -> local.RuntimeArn:
    """ConfigError where it is neither, or where nothing answers that could have it."""
    if not re.fullmatch(r"[a-zA-Z][a-zA-Z0-9_]{0,47}", given):
        arn = local.parse_arn(given)
        require_runtime(arn, endpoint)
        return arn
    require_local(endpoint)
    with contextlib.closing(control_client(endpoint)) as control:
        found = find_runtime(control, given)
        if found is not None:
            return local.parse_arn(local.runtime_arn(found))
        known = ", ".join(names_of(control)) or "none"
    raise ConfigError(
        f"the local runtime has no agent {given!r}, it has {known}: 'art deploy PATH --local' "
        "makes one; an agent on AWS is named by its ARN"
    )


def bucket_of(agent: local.RuntimeArn, given: str | None) -> str:
    """Where results go. On AWS the default is a stranger's: names of buckets are the world's."""
    if given is None and not agent.is_local:
        raise ConfigError("an agent on AWS needs --bucket: 'art deploy --aws' printed which")
    return given or local.DEFAULT_BUCKET


def check_base_url(url: str | None) -> None:
    if url is not None and not re.match(r"https?://[^/\s]", url):
        place = url.rpartition("//")[2].strip("/ ") or "127.0.0.1:8001/v1"
        raise ConfigError(f"--base-url {url!r} is no http or https URL: is it http://{place} ?")
