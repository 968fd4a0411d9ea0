"""Quaternions (x, y, z, w), the one order used outside the engines. They turn body into world coordinates."""

from __future__ import annotations

import torch
from torch import Tensor


def from_wxyz(q: Tensor) -> Tensor:
    """MuJoCo's order -> ours. q: [..., 4]."""
    return q.roll(-1, -1)


def to_wxyz(q: Tensor) -> Tensor:
    """Ours -> MuJoCo's. q: [..., 4]."""
    return q.roll(1, -1)


def rotate(q: Tensor, v: Tensor) -> Tensor:
    """Body coordinates -> world coordinates. q: [..., 4], v: [..., 3]."""
    # v' = v + 2 w (u x v) + 2 u x (u x v)  with q = (u, w)
    u, w = q[..., :3], q[..., 3:]
    cross = torch.cross(u.expand_as(v), v, dim=-1)
    return v + 2 * (w * cross + torch.cross(u.expand_as(v), cross, dim=-1))


def rotate_inverse(q: Tensor, v: Tensor) -> Tensor:
    """World coordinates -> body coordinates."""
    return rotate(conjugate(q), v)


def conjugate(q: Tensor) -> Tensor:
    """The inverse of a unit quaternion."""
    return torch.cat((-q[..., :3], q[..., 3:]), -1)


def multiply(a: Tensor, b: Tensor) -> Tensor:
    """First b, then a. [..., 4] each."""
    u, w, v, s = a[..., :3], a[..., 3:], b[..., :3], b[..., 3:]
    vector = w * v + s * u + torch.cross(u.expand_as(v), v.expand_as(u), dim=-1)
    return torch.cat((vector, w * s - (u * v).sum(-1, keepdim=True)), -1)


def yaw(q: Tensor) -> Tensor:
    """Heading, rad: the angle of the body's x axis in the world's xy plane. [..., 4] -> [...]."""
    x, y, z, w = q.unbind(-1)
    return torch.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
