"""Fixed sines and cosines of positions, added to the embeddings (Vaswani et al. 2017).

Shapes: T tokens, W width of the embeddings.
"""

import torch
from torch import Tensor


def sinusoids(positions_T: Tensor, width: int, theta: float) -> Tensor:
    """Return float32 (T, W): sines of W / 2 frequencies from 1 down to about 1 / theta, then their cosines."""
    powers = torch.arange(width // 2, device=positions_T.device) / (width // 2)
    angles = positions_T[:, None] * theta**-powers
    return torch.cat((angles.sin(), angles.cos()), dim=1)
