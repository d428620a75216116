"""A headless Chromium, spoken to through the two pipes that it opens for this: no driver, no port, no package of Python's."""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
# Seconds for an answer: a machine that is busy with other tests is slow to start a browser.
PATIENCE = 60
# Nothing outside is to be reached.
OPTIONS = (
    "--headless",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--remote-debugging-pipe",
)
# The pipes are to be its file descriptors 3 and 4, which Popen cannot say. Above those first: one of them may be 3 or 4.
LAUNCHER = """import fcntl, os, sys
above = [fcntl.fcntl(int(pipe), fcntl.F_DUPFD, 10) for pipe in sys.argv[1:3]]
for place, pipe in enumerate(above, start=3):
    os.dup2(pipe, place)
os.execv(sys.argv[3], sys.argv[3:])
"""


def program() -> str | None:
    """Path of the browser, None where there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Chromium:
    """One tab. What the page complains of is collected in `complaints`, what it asked for in `requests`."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._unread, self._number, self._session, self._loaded = b"", 0, "", False
        self.complaints: list[str] = []
        self.requests: list[str] = []

    def renew(self) -> None:
        """Take a new tab, in which nothing is remembered."""
        self._session = ""
        target = self("Target.createTarget", url="about:blank")["targetId"]
        self._session = self("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self(f"{domain}.enable")
        self.complaints.clear()
        self.requests.clear()

    def __call__(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command of the DevTools protocol and return its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        os.write(
            self._to, json.dumps(message | ({"sessionId": self._session} if self._session else {})).encode() + b"\0"
        )
        while True:
            answer = self._read(method)
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def _read(self, waiting_for: str) -> dict[str, Any]:
        limit = time.monotonic() + PATIENCE
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._from], [], [], max(0.0, limit - time.monotonic()))
            assert ready, f"no answer to {waiting_for} within {PATIENCE} s"
            more = os.read(self._from, 1 << 20)
            assert more, f"the browser ended while {waiting_for} was waited for"
            self._unread += more
        message, _, self._unread = self._unread.partition(b"\0")
        found = json.loads(message)
        self._note(found.get("method"), found.get("params") or {})
        return found

    def _note(self, event: str | None, told: dict[str, Any]) -> None:
        if event == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(told["exceptionDetails"]))
        elif event == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(told["args"]))
        elif event == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.complaints.append(told["entry"]["text"])
        elif event == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        if event == "Page.loadEventFired":
            self._loaded = True

    def open(self, page: Path) -> None:
        """Open a file and return once it is loaded."""
        self._loaded = False
        self("Page.navigate", url=page.resolve().as_uri())
        while not self._loaded:
            self._read(str(page))

    def do(self, code: str) -> Any:
        """The value of an expression of JavaScript in the page; a promise is waited for."""
        answer = self("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, f"{code}: {answer.get('exceptionDetails')}"
        return answer["result"].get("value")

    def size(self, width: int, height: int) -> None:
        """Give the window this size in pixels."""
        self("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def prefer(self, scheme: str, medium: str = "") -> None:
        """Tell the page that the user prefers "light" or "dark", and on which medium ("print") it is shown."""
        self("Emulation.setEmulatedMedia", media=medium, features=[{"name": "prefers-color-scheme", "value": scheme}])

    def press(self, key: str) -> None:
        """Press and let go a key, by its name in JavaScript; Enter also says its character."""
        text = {"Enter": "\r", " ": " "}.get(key)
        code = {"Enter": 13, " ": 32, "Tab": 9, "End": 35, "ArrowLeft": 37, "ArrowRight": 39}.get(key, 0)
        told = {"key": key, "code": key, "windowsVirtualKeyCode": code} | ({"text": text} if text else {})
        self("Input.dispatchKeyEvent", type="keyDown", **told)
        self("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=code)

    def point(self, x: float, y: float) -> None:
        """Move the mouse there."""
        self("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, path: Path, **clip: float) -> None:
        """Write what is seen, or the rectangle x, y, width, height of the page, as a PNG."""
        options = {"clip": {**clip, "scale": 1}, "captureBeyondViewport": True} if clip else {}
        path.write_bytes(base64.b64decode(self("Page.captureScreenshot", format="png", **options)["data"]))

    def pdf(self) -> bytes:
        """The page as it is printed."""
        return base64.b64decode(self("Page.printToPDF", printBackground=False)["data"])


@contextlib.contextmanager
def chromium(executable: str, profile: Path) -> Generator[Chromium]:
    """A browser with one empty tab, ended at the end; profile: a folder of its own."""
    (its_input, to_browser), (from_browser, its_output) = os.pipe(), os.pipe()
    # For root Chromium does not start in its sandbox; what it opens here are files that the tests wrote.
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    arguments = [executable, *OPTIONS, *root, f"--user-data-dir={profile}", "about:blank"]
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", LAUNCHER, str(its_input), str(its_output), *arguments],
        pass_fds=(its_input, its_output),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(its_input)
    os.close(its_output)
    try:
        yield (tab := Chromium(to_browser, from_browser))
        # Asked to, it ends with all its processes: none goes on to write into the profile.
        tab("Browser.close")
        process.wait(PATIENCE)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(to_browser)
        os.close(from_browser)
