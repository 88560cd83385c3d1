"""A stand-in for TensorBoard: hyperparameters are accepted and dropped."""
