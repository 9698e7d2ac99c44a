"""Runs the model's code in a process of its own; ``apis`` are questions to the world outside.

One line of JSON each way: code comes in, calls go out and their results come in, output goes out.
Whatever the code does here, the data and the checks are not here.
"""

import contextlib
import io
import json
import os
import sys
import traceback


class Api:
    def __init__(self, ask, path):
        self._ask, self._path = ask, path

    def __getattr__(self, name):
        return Api(self._ask, (*self._path, name))

    def __call__(self, **arguments):
        return self._ask({"call": [*self._path, arguments]})


def main():
    inward, outward = os.fdopen(os.dup(0), "r"), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)  # the code must not speak for us
    os.dup2(2, 1)

    def send(message):
        outward.write(json.dumps(message) + "\n")
        outward.flush()

    def ask(message):
        send(message)
        answer = json.loads(inward.readline())
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["result"]

    space = {"apis": Api(ask, ()), "__name__": "__main__"}
    for line in inward:
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
            try:
                exec(json.loads(line)["code"], space)
            except BaseException:
                traceback.print_exc(limit=-1)
        send({"output": shown.getvalue()})


if __name__ == "__main__":
    sys.exit(main())
