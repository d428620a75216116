"""Ctrl-C in a long run: the first one asks, the second one stops."""

import signal
import threading


class StopTrainingError(Exception):
    """Raised by `on_step` of `relnet.train.train`: as a first Ctrl-C, the update is saved and training ends."""


class CtrlC:
    """While it is open, the first Ctrl-C only sets `pressed` and the second raises KeyboardInterrupt at once.

    The handler that was there before is put back at the end. Signals reach the main thread only: opened in another
    one, it does nothing.
    """

    def __enter__(self) -> "CtrlC":
        self.pressed = False
        self._handles = threading.current_thread() is threading.main_thread()
        if self._handles:
            self._previous = signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(self, *_: object) -> None:
        if self._handles:
            signal.signal(signal.SIGINT, self._previous)

    def _press(self, *_: object) -> None:
        if self.pressed:
            raise KeyboardInterrupt("stopped at once; resume goes on after the last checkpoint")
        self.pressed = True
