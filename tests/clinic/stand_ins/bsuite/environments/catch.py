"""Catch: a ball falls through 10 rows of 5 columns, the paddle in the last row moves one by one."""

import importlib
from typing import Any

import numpy as np
import numpy.typing as npt

dm_env: Any = importlib.import_module("dm_env")
specs: Any = importlib.import_module("dm_env.specs")
ROWS, COLUMNS = 10, 5


class Catch:
    """The reward is 1 when the ball is caught, else -1."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)
        self._over = True
        self._ball = [0, 0]
        self._paddle = 0

    def action_spec(self) -> Any:
        """Left, stay, right."""
        return specs.DiscreteArray(3, dtype=int, name="action")

    def observation_spec(self) -> Any:
        """The board."""
        return specs.BoundedArray((ROWS, COLUMNS), np.float32, 0, 1, name="board")

    def reset(self) -> Any:
        """A new ball."""
        self._over = False
        self._ball = [0, int(self._random.integers(COLUMNS))]
        self._paddle = COLUMNS // 2
        return dm_env.restart(self._board())

    def step(self, action: Any) -> Any:
        """The ball is one row lower."""
        if self._over:
            return self.reset()
        self._paddle = min(max(self._paddle + int(action) - 1, 0), COLUMNS - 1)
        self._ball[0] += 1
        self._over = self._ball[0] == ROWS - 1
        if not self._over:
            return dm_env.transition(reward=0.0, observation=self._board())
        reward = 1.0 if self._ball[1] == self._paddle else -1.0
        return dm_env.termination(reward=reward, observation=self._board())

    def _board(self) -> npt.NDArray[np.float32]:
        board = np.zeros((ROWS, COLUMNS), np.float32)
        board[tuple(self._ball)] = board[ROWS - 1, self._paddle] = 1
        return board
