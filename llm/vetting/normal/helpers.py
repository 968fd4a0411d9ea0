"""Helper functions of robot simulators that replies call without writing them: each as code of the allowed kind.

Names and conventions are those of IsaacGymEnvs (https://github.com/isaac-sim/IsaacGymEnvs, torch_jit_utils.py):
quaternions are (x, y, z, w); a function that a reply uses and does not define is added to its code, so that the record,
the graph file and best.py are complete. Formulas: https://en.wikipedia.org/wiki/Quaternions_and_spatial_rotation.
"""

from __future__ import annotations

import re

SOURCES = {
    "normalize": """\
def normalize(x, eps=1e-9):
    return x / x.norm(dim=-1, keepdim=True).clamp(min=eps)
""",
    "quat_unit": """\
def quat_unit(q):
    return normalize(q)
""",
    "quat_conjugate": """\
def quat_conjugate(q):
    return torch.cat((-q[..., :3], q[..., 3:]), dim=-1)
""",
    "quat_mul": """\
def quat_mul(a, b):
    av, aw, bv, bw = a[..., :3], a[..., 3:], b[..., :3], b[..., 3:]
    vector = aw * bv + bw * av + torch.cross(av, bv, dim=-1)
    return torch.cat((vector, aw * bw - (av * bv).sum(dim=-1, keepdim=True)), dim=-1)
""",
    "quat_apply": """\
def quat_apply(q, v):
    twice = 2.0 * torch.cross(q[..., :3], v, dim=-1)
    return v + q[..., 3:] * twice + torch.cross(q[..., :3], twice, dim=-1)
""",
    "quat_rotate": """\
def quat_rotate(q, v):
    return quat_apply(q, v)
""",
    "my_quat_rotate": """\
def my_quat_rotate(q, v):
    return quat_apply(q, v)
""",
    "quat_rotate_inverse": """\
def quat_rotate_inverse(q, v):
    return quat_apply(quat_conjugate(q), v)
""",
    "quat_apply_inverse": """\
def quat_apply_inverse(q, v):
    return quat_apply(quat_conjugate(q), v)
""",
    "quat_apply_yaw": """\
def quat_apply_yaw(q, v):
    flat = torch.cat((torch.zeros_like(q[..., :2]), q[..., 2:]), dim=-1)
    return quat_apply(normalize(flat), v)
""",
    "get_basis_vector": """\
def get_basis_vector(q, v):
    return quat_apply(q, v)
""",
    "quat_axis": """\
def quat_axis(q, axis=0):
    basis = torch.zeros_like(q[..., :3])
    basis[..., axis] = 1.0
    return quat_apply(q, basis)
""",
    "quat_from_angle_axis": """\
def quat_from_angle_axis(angle, axis):
    half = (angle / 2).unsqueeze(-1)
    return normalize(torch.cat((normalize(axis) * torch.sin(half), torch.cos(half)), dim=-1))
""",
    "quat_from_euler_xyz": """\
def quat_from_euler_xyz(roll, pitch, yaw):
    sr, cr = torch.sin(roll / 2), torch.cos(roll / 2)
    sp, cp = torch.sin(pitch / 2), torch.cos(pitch / 2)
    sy, cy = torch.sin(yaw / 2), torch.cos(yaw / 2)
    x = cy * sr * cp - sy * cr * sp
    y = cy * cr * sp + sy * sr * cp
    z = sy * cr * cp - cy * sr * sp
    return torch.stack((x, y, z, cy * cr * cp + sy * sr * sp), dim=-1)
""",
    "get_euler_xyz": """\
def get_euler_xyz(q):
    x, y, z, w = q[..., 0], q[..., 1], q[..., 2], q[..., 3]
    roll = torch.atan2(2.0 * (w * x + y * z), w * w - x * x - y * y + z * z)
    pitch = torch.asin(torch.clamp(2.0 * (w * y - z * x), -1.0, 1.0))
    yaw = torch.atan2(2.0 * (w * z + x * y), w * w + x * x - y * y - z * z)
    return roll % (2 * math.pi), pitch % (2 * math.pi), yaw % (2 * math.pi)
""",
    "quat_diff_rad": """\
def quat_diff_rad(a, b):
    difference = quat_mul(a, quat_conjugate(b))
    return 2.0 * torch.asin(torch.clamp(difference[..., :3].norm(dim=-1), max=1.0))
""",
    "normalize_angle": """\
def normalize_angle(x):
    return torch.atan2(torch.sin(x), torch.cos(x))
""",
    "wrap_to_pi": """\
def wrap_to_pi(angles):
    turned = angles % (2 * math.pi)
    return turned - 2 * math.pi * (turned > math.pi)
""",
    "tensor_clamp": """\
def tensor_clamp(x, lower, upper):
    return torch.maximum(torch.minimum(x, upper), lower)
""",
    "saturate": """\
def saturate(x, lower, upper):
    return torch.maximum(torch.minimum(x, upper), lower)
""",
    "scale": """\
def scale(x, lower, upper):
    return 0.5 * (x + 1.0) * (upper - lower) + lower
""",
    "unscale": """\
def unscale(x, lower, upper):
    return (2.0 * x - upper - lower) / (upper - lower)
""",
    "tf_inverse": """\
def tf_inverse(q, t):
    inverse = quat_conjugate(q)
    return inverse, -quat_apply(inverse, t)
""",
    "tf_apply": """\
def tf_apply(q, t, v):
    return quat_apply(q, v) + t
""",
    "tf_vector": """\
def tf_vector(q, v):
    return quat_apply(q, v)
""",
    "tf_combine": """\
def tf_combine(q1, t1, q2, t2):
    return quat_mul(q1, q2), quat_apply(q1, t2) + t1
""",
}


def with_needed(names: list[str]) -> list[str]:
    """These helpers and those that they call, each once."""
    found: dict[str, None] = {}
    todo = list(names)
    while todo:
        name = todo.pop(0)
        if name not in found:
            found[name] = None
            todo += _called(name)
    return list(found)


def _called(name: str) -> list[str]:
    """Helpers that one calls."""
    words = re.findall(r"\w+(?=\()", SOURCES[name].split("\n", 1)[1])
    return [word for word in words if word in SOURCES and word != name]
