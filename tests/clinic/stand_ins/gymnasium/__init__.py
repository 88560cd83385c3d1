"""A stand-in for Gymnasium with Atari: a game of random frames and rewards, 210 by 160 pixels."""

from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from . import spaces

__all__ = ["Env", "RewardWrapper", "make", "register_envs", "spaces"]
LENGTH, ACTIONS = 1000, 6
Step = tuple[Any, float, bool, bool, dict[str, Any]]


class Env:
    """A game that ends after LENGTH frames."""

    def __init__(self) -> None:
        self.action_space = SimpleNamespace(n=ACTIONS)
        self.observation_space = spaces.Box(low=0, high=255, shape=(210, 160, 3), dtype=np.uint8)
        self.ale = SimpleNamespace(lives=lambda: 1, getScreenGrayscale=self._screen)
        self._random = np.random.default_rng()
        self._frames = self._random.integers(0, 256, (16, 210, 160), np.uint8)
        self._played = 0

    @property
    def unwrapped(self) -> "Env":
        """The game itself."""
        return self

    def reset(self) -> tuple[Any, dict[str, Any]]:
        """From the start."""
        self._played = 0
        return self._frames[0], {}

    def step(self, action: int) -> Step:
        """One frame on."""
        self._played += 1
        reward = float(self._random.integers(-1, 2))
        return self._frames[0], reward, self._played >= LENGTH, False, {}

    def _screen(self, output: Any) -> None:
        output[:] = self._frames[self._played % len(self._frames)]


class RewardWrapper:
    """A game with other rewards."""

    def __init__(self, env: Env) -> None:
        self.env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    def step(self, action: int) -> Step:
        """One frame on."""
        observation, reward, done, truncated, info = self.env.step(action)
        return observation, self.reward(reward), done, truncated, info

    def reward(self, reward: float) -> float:
        """The other reward."""
        raise NotImplementedError


def make(name: str) -> Env:
    """The one game that there is."""
    return Env()


def register_envs(module: ModuleType) -> None:
    """Nothing to do."""
