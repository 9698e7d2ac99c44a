"""Assembles ``art``. Commands live in their own files and import what they need when they run."""

from __future__ import annotations

import errno
import os
import signal
import sys


def main() -> None:
    """Entry point. A Ctrl-C that comes while modules are still read is an end like any other."""
    try:
        run()
    except KeyboardInterrupt:
        sys.exit(130)


def run() -> None:
    """Says which extra is missing, and turns our errors into one readable line."""
    from ..errors import ToolkitError, install_extra

    # that PyTorch is not there is no news to who needs only tokenizers
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    try:
        import typer  # noqa: F401
    except ImportError:
        sys.exit(f"art needs the 'local' extra: {install_extra('local')}")
    from botocore.exceptions import BotoCoreError, ClientError

    from ..deploy.call import NO_CREDENTIALS, no_credentials
    from .app import app
    from .show import fail

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that sessions are stopped
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except NO_CREDENTIALS as error:
        fail(str(no_credentials(error)))
    except (ToolkitError, BotoCoreError, ClientError, OSError) as error:
        taken = getattr(error, "errno", None) == errno.EADDRINUSE
        more = "; choose another port with --port, 0 for any that is free" if taken else ""
        fail((str(error) or type(error).__name__) + more)
    except (KeyboardInterrupt, EOFError):
        fail("interrupted", code=130)
    except Exception as error:  # noqa: BLE001 - raised again unless it is the parser's own
        sys.exit(report(error))


def report(error: Exception) -> int:
    """Usage errors and ``Exit`` come from the command parser; the rest is a bug of ours."""
    exit_code = getattr(error, "exit_code", None)
    if exit_code is None:
        raise error
    show = getattr(error, "show", None)
    if show is not None:
        show()
    return int(exit_code)


if __name__ == "__main__":
    main()
