"""``python <this folder> keep|agent|probe <fd>``: loads the folder as package ``_art_inside``."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys

NAME = "_art_inside"


def load() -> None:
    folder = os.path.dirname(os.path.abspath(__file__))
    # Python put this folder first on the path: its module names must not shadow the agent's.
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != folder]
    spec = importlib.util.spec_from_file_location(
        NAME, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = package
    spec.loader.exec_module(package)


if __name__ == "__main__":
    load()
    role, descriptor = sys.argv[1], int(sys.argv[2])
    module = {"keep": "keeper", "agent": "fresh", "probe": "probe"}[role]
    importlib.import_module(f"{NAME}.{module}").main(descriptor)
