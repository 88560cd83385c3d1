"""A stand-in for the Arcade Learning Environment: the game is in the stand-in for Gymnasium."""
