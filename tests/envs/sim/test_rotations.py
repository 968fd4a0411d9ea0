"""Quaternions against MuJoCo's own functions (an independent twin in the order w, x, y, z)."""

from __future__ import annotations

import math

import mujoco
import numpy as np
import pytest
import torch

from envolve.envs.sim.rotations import conjugate, from_wxyz, multiply, rotate, rotate_inverse, to_wxyz, yaw


@pytest.fixture
def quaternions():
    q = torch.randn(50, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return q / q.norm(dim=1, keepdim=True)


@pytest.fixture
def vectors():
    return torch.randn(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_a_rotation_is_mujocos(quaternions, vectors):
    expected = np.zeros((50, 3))
    for out, v, q in zip(expected, vectors.numpy(), to_wxyz(quaternions).numpy(), strict=True):
        mujoco.mju_rotVecQuat(out, v, q)
    torch.testing.assert_close(rotate(quaternions, vectors), torch.from_numpy(expected))


def test_a_product_is_mujocos(quaternions):
    other, expected = quaternions.flip(0), np.zeros((50, 4))
    for out, a, b in zip(expected, to_wxyz(quaternions).numpy(), to_wxyz(other).numpy(), strict=True):
        mujoco.mju_mulQuat(out, a, b)
    torch.testing.assert_close(multiply(quaternions, other), from_wxyz(torch.from_numpy(expected)))


def test_a_product_turns_by_the_second_first(quaternions, vectors):
    other = quaternions.flip(0)
    expected = rotate(quaternions, rotate(other, vectors))
    torch.testing.assert_close(rotate(multiply(quaternions, other), vectors), expected)


def test_the_inverse_undoes_a_rotation(quaternions, vectors):
    torch.testing.assert_close(rotate_inverse(quaternions, rotate(quaternions, vectors)), vectors)
    torch.testing.assert_close(rotate(multiply(conjugate(quaternions), quaternions), vectors), vectors)


def test_the_order_of_components_goes_there_and_back(quaternions):
    assert from_wxyz(torch.tensor([1.0, 2.0, 3.0, 4.0])).tolist() == [2.0, 3.0, 4.0, 1.0]
    assert torch.equal(from_wxyz(to_wxyz(quaternions)), quaternions)


@pytest.mark.parametrize("angle", [0.0, 0.3, -2.0, math.pi / 2, 3.0])
def test_the_yaw_of_a_turn_about_z_is_its_angle(angle):
    q = torch.tensor([[0.0, 0.0, math.sin(angle / 2), math.cos(angle / 2)]], dtype=torch.float64)
    assert yaw(q).item() == pytest.approx(angle)
    x = rotate(q, torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64))[0]
    assert x.tolist() == pytest.approx([math.cos(angle), math.sin(angle), 0.0])


def test_the_yaw_is_the_heading_of_the_bodys_x_axis(quaternions):
    x = rotate(quaternions, torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64).expand(50, 3))
    torch.testing.assert_close(yaw(quaternions), torch.atan2(x[:, 1], x[:, 0]))


def test_leading_axes_broadcast_as_they_are(quaternions, vectors):
    many = rotate(quaternions.view(5, 10, 4), vectors.view(5, 10, 3))
    assert torch.equal(many.view(50, 3), rotate(quaternions, vectors))
