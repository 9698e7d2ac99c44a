"""``python -m agentcore_rl_toolkit.backends.verl CONFIG [key.sub=value …]``.

The same as ``art train CONFIG backend=verl …``.
"""

from __future__ import annotations

import sys

from ...cli.main import main

if __name__ == "__main__":
    sys.argv = ["art", "train", *sys.argv[1:], "--backend", "verl"]
    main()
