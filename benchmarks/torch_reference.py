"""The paper's algorithm as a plain eager PyTorch loop: what the speed of collabnets is compared with.

Only the speed is compared, so the weights start as PyTorch starts them. Everything a careful author would do
in an eager loop is done: tensors are made once, no value is read back inside the loop, gradients are set to
None, and a step on f asks for the gradients of f alone.
"""

from time import perf_counter

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

LOGIT_SCALE = 3.29**0.5  # a standard normal times this has the variance of the logistic distribution


class ScaleShift(nn.Module):
    """A learnt scale and shift of each unit: batch normalisation as the paper's authors ran it."""

    def __init__(self, width: int):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width))

    def forward(self, h: Tensor) -> Tensor:
        return torch.addcmul(self.shift, h, self.scale)


class Network(nn.Module):
    """An MLP on one number (z for g, q for f) beside the features."""

    def __init__(self, n_features: int, hidden: tuple[int, ...], output_scale: float = 1.0):
        super().__init__()
        layers: list[nn.Module] = []
        n_in = 1 + n_features
        for width in hidden:
            layers += [nn.Linear(n_in, width), nn.ELU(), ScaleShift(width)]
            n_in = width
        self.layers = nn.Sequential(*layers, nn.Linear(n_in, 1))
        self.output_scale = output_scale

    def forward(self, number: Tensor, x: Tensor) -> Tensor:
        out = self.layers(torch.cat((number, x), dim=1))
        return out if self.output_scale == 1.0 else out * self.output_scale


def train(
    X: np.ndarray,
    y: np.ndarray,
    *,
    n_pretrain: int,
    n_joint: int,
    batch_size: int = 128,
    seed: int = 0,
    device: str = "cpu",
) -> dict[str, float]:
    """Train g alone, then g and f together; return the seconds each phase took."""
    torch.manual_seed(seed)
    X_all = torch.as_tensor(X, dtype=torch.float32, device=device)
    y_all = torch.as_tensor(y, dtype=torch.float32, device=device).reshape(-1, 1)
    n, n_features = X_all.shape
    batch_size = min(batch_size, n)
    z_low = float(y_all.min()) - 1.0
    z_width = float(y_all.max()) + 1.0 - z_low

    g = Network(n_features, (100, 80), LOGIT_SCALE).to(device)
    f = Network(n_features, (100, 80, 60)).to(device)
    f_parameters = list(f.parameters())
    g_optimizer = torch.optim.Adam(g.parameters(), lr=1e-4)
    f_optimizer = torch.optim.Adam(f_parameters, lr=5e-4)

    def draw() -> tuple[Tensor, Tensor]:
        rows = torch.randperm(n, device=device)[:batch_size]
        return X_all[rows], y_all[rows]

    def step_g(z: Tensor, x: Tensor, y: Tensor) -> None:
        loss = F.binary_cross_entropy_with_logits(g(z, x), (y < z).to(z.dtype))
        g_optimizer.zero_grad(set_to_none=True)
        loss.backward()
        g_optimizer.step()

    def step_f(q: Tensor, x: Tensor) -> None:
        loss = (q - torch.sigmoid(g(f(q, x), x))).square().mean()
        f_optimizer.zero_grad(set_to_none=True)
        loss.backward(inputs=f_parameters)
        f_optimizer.step()

    def seconds() -> float:
        if torch.device(device).type == "cuda":
            torch.cuda.synchronize()
        return perf_counter()

    start = seconds()
    for _ in range(n_pretrain):
        x, y_batch = draw()
        z = z_low + z_width * torch.rand(batch_size, 1, device=device)
        step_g(z, x, y_batch)
    pretrained = seconds()
    for _ in range(n_joint):
        x, y_batch = draw()
        q = torch.rand(batch_size, 1, device=device)
        with torch.no_grad():
            z = f(q, x)
        step_g(z, x, y_batch)
        step_f(q, x)
        step_f(q, x)
    joined = seconds()
    return {"pretrain_seconds": pretrained - start, "joint_seconds": joined - pretrained}
