"""Efforts of MuJoCo's motors as Isaac Gym takes them: one number per joint, or a force and torque on a site's body."""

from __future__ import annotations

from typing import TYPE_CHECKING, List

import mujoco
import numpy as np
import torch
from torch import Tensor

from envolve.envs.sim.mujoco_model import ON_JOINT, gears

if TYPE_CHECKING:
    from isaacgym import gymapi


class Efforts:
    """joints, bodies: names in the engine's order, of one environment."""

    def __init__(
        self, model: mujoco.MjModel, joints: List[str], bodies: List[str], num_envs: int, device: torch.device
    ) -> None:
        limited, ranges = model.actuator_ctrllimited[:, None], model.actuator_ctrlrange
        ends = np.where(limited, ranges, [-np.inf, np.inf]) * gears(model)[:, None]
        self._least, self._most = (
            torch.from_numpy(end).to(device, torch.float32) for end in (ends.min(1), ends.max(1))
        )
        at_joint = np.zeros((model.nu, len(joints)))
        at_body = np.zeros((model.nu, len(bodies), 6))  # force and torque on the body, in its own axes, per N of effort
        for u in range(model.nu):
            target = int(model.actuator_trnid[u, 0])
            if model.actuator_trntype[u] == ON_JOINT:
                at_joint[u, joints.index(model.joint(target).name)] = 1
                continue
            unit = model.actuator_gear[u] / np.linalg.norm(model.actuator_gear[u, :3])
            axes, body = np.zeros(9), int(model.site_bodyid[target])
            mujoco.mju_quat2Mat(axes, model.site_quat[target])
            force, torque = axes.reshape(3, 3) @ unit[:3], axes.reshape(3, 3) @ unit[3:]
            arm = model.site_pos[target] - model.body_ipos[body]  # the engine's forces act at the centre of mass
            at_body[u, bodies.index(model.body(body).name)] = [*force, *(torque + np.cross(arm, force))]
        self._at_joint = torch.from_numpy(at_joint).to(device, torch.float32)
        self._at_body = torch.from_numpy(at_body).to(device, torch.float32)
        self._joint_force = torch.zeros(num_envs, len(joints), device=device)
        self._body_force, self._body_torque = (torch.zeros(num_envs, len(bodies), 3, device=device) for _ in range(2))
        self._on_joints, self._on_bodies = bool(at_joint.any()), bool(at_body.any())

    def set(self, effort: Tensor) -> None:
        """effort: [N, U], clipped to the motors' ranges, which need not lie about zero."""
        effort = effort.clamp(self._least, self._most)
        torch.mm(effort, self._at_joint, out=self._joint_force)
        if self._on_bodies:
            wrench = torch.mm(effort, self._at_body.flatten(1)).view(len(effort), -1, 6)
            self._body_force.copy_(wrench[..., :3])
            self._body_torque.copy_(wrench[..., 3:])

    def clear(self, ids: Tensor) -> None:
        for force in (self._joint_force, self._body_force, self._body_torque):
            force[ids] = 0

    def apply(self, gym: gymapi.Gym, sim: gymapi.Sim) -> None:
        """Applies the efforts for one simulated step, which is how long the engine keeps a force."""
        from isaacgym import gymapi, gymtorch

        if self._on_joints:
            gym.set_dof_actuation_force_tensor(sim, gymtorch.unwrap_tensor(self._joint_force))
        if self._on_bodies:
            force, torque = gymtorch.unwrap_tensor(self._body_force), gymtorch.unwrap_tensor(self._body_torque)
            gym.apply_rigid_body_force_tensors(sim, force, torque, gymapi.LOCAL_SPACE)
