"""Types of elements."""

import numpy as np

bool_ = np.dtype(bool)
float32 = np.dtype(np.float32)
float64 = np.dtype(np.float64)
int32 = np.dtype(np.int32)
int64 = np.dtype(np.int64)
uint8 = np.dtype(np.uint8)
string = np.dtype(object)
