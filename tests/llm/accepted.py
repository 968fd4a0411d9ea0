"""Code as good models write it for the tasks here: all of it must be accepted."""

from __future__ import annotations

REWARD = ("compute_reward",)
ALL_KINDS = (
    "compute_reward", "compute_observation", "compute_torque", "compute_terminal", "compute_initial_state",
    "compute_goal",
)  # fmt: skip
ACCEPTED: dict[str, tuple[str, tuple[str, ...], str]] = {}  # name: task, functions asked for, code

ACCEPTED["envcoderbench_reward"] = (
    "Anymal",
    REWARD,
    '''
import torch
from typing import Dict
from torch import Tensor


def compute_reward(state_dict: Dict[str, Tensor]) -> Tensor:
    """Track the commanded velocity."""
    base_lin_vel = state_dict["base_lin_vel"]
    commands = state_dict["commands"]
    lin_vel_error = torch.sum(torch.square(commands[:, :2] - base_lin_vel[:, :2]), dim=1)
    lin_vel_temperature = 0.25
    lin_vel_reward = torch.exp(-lin_vel_error / lin_vel_temperature)
    ang_vel_error = torch.square(commands[:, 2] - state_dict["base_ang_vel"][:, 2])
    ang_vel_reward = torch.exp(-ang_vel_error / 0.25)
    torque_penalty = 2.5e-5 * torch.sum(torch.square(state_dict["torque"]), dim=1)
    total = 1.0 * lin_vel_reward + 0.5 * ang_vel_reward - torque_penalty
    return torch.clip(total, min=0.0)
''',
)

ACCEPTED["eureka_named_arguments"] = (
    "Ant",
    REWARD,
    """
import torch
from typing import Tuple, Dict


@torch.jit.script
def compute_reward(
    forward_velocity: torch.Tensor, torque: torch.Tensor, torso_position: torch.Tensor
) -> Tuple[torch.Tensor, Dict[str, torch.Tensor]]:
    velocity_temperature: float = 0.5
    height_temperature = torch.tensor(0.1)
    velocity_reward = torch.exp(velocity_temperature * forward_velocity.clamp(max=8.0)) - 1.0
    height_error = torch.abs(torso_position[:, 2] - 0.55)
    height_reward = torch.exp(-height_error / height_temperature)
    energy_penalty = -1e-4 * torch.sum(torque ** 2, dim=-1)
    total_reward = velocity_reward + 0.5 * height_reward + energy_penalty
    reward_components = {
        "velocity_reward": velocity_reward,
        "height_reward": height_reward,
        "energy_penalty": energy_penalty,
    }
    return total_reward, reward_components
""",
)

ACCEPTED["in_place_accumulation"] = (
    "Ant",
    REWARD,
    """
def compute_reward(state):
    velocity = state["forward_velocity"]
    reward = torch.zeros_like(velocity)
    reward += 2.0 * velocity
    reward -= 0.05 * torch.norm(state["joint_velocity"], dim=-1)
    reward *= 0.5
    total = reward.clone()
    total[state["torso_position"][:, 2] < 0.3] -= 1.0
    total[velocity > 3] = 3.0
    return total, {"reward": reward}
""",
)

ACCEPTED["masks_from_other_tensors"] = (
    "Anymal",
    REWARD,
    """
def compute_reward(state):
    commands, v = state["commands"], state["base_lin_vel"]
    moving = torch.norm(commands[:, :2], dim=1) > 0.5
    reward = -torch.abs(commands[:, 0] - v[:, 0])
    reward[moving] = torch.exp(-(commands[moving, 0] - v[moving, 0]) ** 2 / 0.25)
    bonus = torch.zeros(v.shape[0], 2, device=v.device)
    bonus[:, 0] = 0.1
    bonus[~moving, 1] = 0.2
    bonus[moving] *= 2
    return reward + bonus.sum(dim=-1), {"tracking": reward}
""",
)

ACCEPTED["quaternion_helpers"] = (
    "Ant",
    REWARD,
    """
import torch

UP = [0.0, 0.0, 1.0]


def quat_rotate(q, v):
    q_w = q[:, -1]
    q_vec = q[:, :3]
    a = v * (2.0 * q_w ** 2 - 1.0).unsqueeze(-1)
    b = torch.cross(q_vec, v, dim=-1) * q_w.unsqueeze(-1) * 2.0
    c = q_vec * torch.bmm(q_vec.view(q.shape[0], 1, 3), v.view(q.shape[0], 3, 1)).squeeze(-1) * 2.0
    return a + b + c


def quat_rotate_inverse(q: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    conjugate = torch.cat((-q[:, :3], q[:, 3:4]), dim=-1)
    return quat_rotate(conjugate, v)


def compute_reward(state):
    rotation = state["torso_rotation"]
    up = torch.tensor(UP, device=rotation.device).repeat(rotation.shape[0], 1)
    upright = quat_rotate(rotation, up)[:, 2]
    local_velocity = quat_rotate_inverse(rotation, state["torso_velocity"])
    heading_weight = 0.5
    reward = local_velocity[:, 0] + heading_weight * upright
    return reward, {"upright": heading_weight * upright, "forward": local_velocity[:, 0]}
""",
)

ACCEPTED["softplus_and_friends"] = (
    "Ant",
    REWARD,
    """
import torch
import torch.nn.functional as F


def compute_reward(state):
    v = state["forward_velocity"]
    direction = F.normalize(state["torso_velocity"][:, :2], dim=-1)
    alive = torch.nn.functional.softplus(10.0 * (state["torso_position"][:, 2] - 0.3), beta=2.0)
    smooth = F.smooth_l1_loss(state["action"], state["previous_action"], reduction="none").sum(-1)
    return torch.tanh(v) + direction[:, 0] + 0.1 * F.relu(alive) - 0.01 * smooth + F.elu(v) * F.leaky_relu(v, 0.2)
""",
)

ACCEPTED["einsum_and_matmul"] = (
    "Anymal",
    REWARD,
    """
import torch


def compute_reward(state):
    forces = state["contact_forces"][:, [3, 6, 9, 12], :]
    weights = torch.tensor([1.0, 0.5, 0.25, 0.25], device=forces.device)
    vertical = torch.einsum("nij,i->nj", forces, weights)[..., 2]
    gram = torch.einsum("ni,nj->nij", state["base_lin_vel"], state["base_ang_vel"])
    mixing = torch.eye(3) * 0.5 + torch.ones(3, 3) * 0.1
    mixed = state["base_lin_vel"] @ mixing
    power = (state["torque"] * state["dof_vel"]).abs().sum(dim=1)
    return (
        torch.log1p(vertical.clamp(min=0.0)) * 0.1
        - 0.01 * gram.pow(2).mean(dim=(1, 2))
        + mixed[:, 0]
        - 1e-3 * power
        + torch.matmul(state["dof_pos"], torch.full((12,), 0.01))
    )
""",
)

ACCEPTED["loops_and_dicts"] = (
    "Anymal",
    REWARD,
    '''
import torch

WEIGHTS = {"tracking": 1.0, "yaw": 0.5, "torque": -2e-5, "limits": -0.1}
FEET = (3, 6, 9, 12)


def foot_term(forces, foot: int, threshold: float = 1.0):
    """Is this foot on the ground?"""
    return (torch.norm(forces[:, foot, :], dim=-1) > threshold).float()


def compute_reward(state):
    terms = {}
    terms["tracking"] = torch.exp(-((state["commands"] - state["base_lin_vel"])[:, :2] ** 2).sum(1) / 0.25)
    terms["yaw"] = torch.exp(-(state["commands"][:, 2] - state["base_ang_vel"][:, 2]).square() / 0.25)
    terms["torque"] = state["torque"].square().sum(dim=1)
    limits = torch.zeros_like(terms["yaw"])
    for i in range(state["dof_pos"].shape[1]):
        limits += torch.relu(torch.abs(state["dof_pos"][:, i] - state["default_dof_pos"][:, i]) - 0.5)
    terms["limits"] = limits
    contacts = sum([foot_term(state["contact_forces"], foot) for foot in FEET])
    components = {name: WEIGHTS[name] * term for name, term in terms.items()}
    components["contacts"] = 0.05 * contacts
    total = sum(components.values())
    return total, components
''',
)

ACCEPTED["stacked_where"] = (
    "Cartpole",
    REWARD,
    """
import math
import torch


def compute_reward(state):
    angle = state["pole_angle"]
    limit = 12 * math.pi / 180
    upright = torch.where(torch.abs(angle) < limit, 1.0, -1.0)
    bonus = torch.where((angle.abs() < 0.05) & (state["cart_position"].abs() < 1.0), torch.ones_like(angle), 0.0)
    scale = torch.where(angle > 0, 1.0, 2)
    effort = torch.linalg.norm(state["torque"], dim=-1)
    return upright + 0.5 * bonus - 0.01 * scale * effort, {"upright": upright, "bonus": bonus}
""",
)

ACCEPTED["batch_statistics"] = (
    "Ant",
    REWARD,
    """
def compute_reward(state):
    v = state["forward_velocity"]
    normalised = (v - v.mean()) / (v.std(unbiased=False) + 1e-5)
    torque = state["torque"]
    centred = torque - torque.mean(dim=0, keepdim=True)
    return normalised - 1e-4 * (centred ** 2).sum(dim=-1)
""",
)

ACCEPTED["gaussian_tolerance"] = (
    "Reacher",
    REWARD,
    """
import torch


def tolerance(x, lower, upper, margin):
    below = torch.clamp(lower - x, min=0.0)
    above = torch.clamp(x - upper, min=0.0)
    distance = (below + above) / margin
    return torch.exp(-0.5 * distance ** 2 * 4.6)


def compute_reward(state):
    distance = torch.norm(state["fingertip_position"] - state["goal"], dim=-1)
    near = tolerance(distance, 0.0, 0.01, margin=0.2)
    slow = tolerance(state["joint_velocity"].norm(dim=-1), lower=0.0, upper=1.0, margin=5.0)
    total = near * (0.5 + 0.5 * slow) - distance
    return total, {"near": near, "slow": slow, "distance": -distance}
""",
)

ACCEPTED["scalar_temperatures"] = (
    "Quadcopter",
    REWARD,
    """
import torch
from typing import Dict, Tuple


def compute_reward(state: Dict[str, torch.Tensor]) -> Tuple[torch.Tensor, Dict[str, torch.Tensor]]:
    distance = torch.linalg.norm(state["to_goal"], dim=-1)
    position_temp, spin_temp = 1.5, 0.3
    position = 1.0 / (1.0 + position_temp * distance ** 2)
    spin = torch.exp(-spin_temp * state["body_rates"].abs().max(dim=1).values)
    values, index = torch.max(state["up"], dim=-1)
    tilt = state["up"][..., 2].clamp(-1.0, 1.0)
    angle = torch.acos(tilt * 0.999)
    upness = 2 ** -angle + values * 0 + (index == 2).to(torch.float32)
    total = position + position * (spin + upness) - 0.001 * state["torque"].pow(2).sum(dim=1).sqrt()
    return total, dict(position=position, spin=spin, upness=upness)
""",
)

ACCEPTED["chunks_and_splits"] = (
    "Ant",
    REWARD,
    """
def compute_reward(state):
    hips, ankles = state["joint_position"][:, 0::2], state["joint_position"][:, 1::2]
    left, right = torch.chunk(state["joint_velocity"], 2, dim=1)
    a, b = torch.split(state["action"], [2, 6], dim=1)
    x, y, z = state["torso_position"].unbind(-1)
    legs = torch.stack([left.mean(1), right.mean(1), a.sum(1), b.sum(1)], dim=-1)
    force = state["contact_wrench"][:, :, 3:].reshape(x.shape[0], -1).clamp(-1, 1)
    flat = torch.cat([hips, ankles, legs], dim=-1).flatten(start_dim=1)
    spread = flat.amax(dim=1) - flat.amin(dim=1)
    drift = torch.atan2(y, x.abs() + 1.0)
    return x - y.abs() + torch.sin(z) * 0.1 - 0.01 * spread - 5e-4 * force.square().sum(1) + drift
""",
)

ACCEPTED["nan_safe"] = (
    "Ant",
    REWARD,
    """
def safe_sqrt(x):
    return torch.sqrt(torch.clamp(x, min=1e-8))


def compute_reward(state):
    speed = safe_sqrt((state["torso_velocity"][:, :2] ** 2).sum(-1))
    ratio = state["forward_velocity"] / (speed + 1e-6)
    ratio = torch.nan_to_num(ratio, nan=0.0, posinf=1.0, neginf=-1.0)
    steps = state["progress"] / 1000
    mask = torch.isfinite(ratio) & (state["progress"] > 0)
    return torch.minimum(ratio, torch.tensor(1.0)) * mask + 0.1 * torch.maximum(speed, ratio) * (1 - steps)
""",
)

ACCEPTED["many_ways_to_one"] = (
    "Cartpole",
    REWARD,
    """
import torch
from math import cos, pi


def compute_reward(state):
    n = state["pole_angle"].shape[0]
    x = state["cart_position"].view(-1, 1)
    both = torch.cat([x, state["pole_angle"].unsqueeze(1)], dim=1)
    weights = torch.linspace(0.5, 1.0, 2).expand(n, -1)
    ramp = torch.arange(2, dtype=torch.float32).repeat(n, 1)
    alive = torch.ones(n, dtype=torch.float32)
    table = x.new_tensor([[0.5, 0.25]])
    quadratic = (both.square() * weights * table).sum(dim=1)
    constant = torch.full_like(x, cos(pi / 3)).squeeze(1)
    zero = torch.zeros(len(x), 1)
    filled = alive * 0.5
    filled[:] = 0.25
    return alive - quadratic + constant + zero[:, 0] + filled - 0.01 * (both * ramp).mean(-1) - 0.1 * both.std(dim=1)
""",
)

ACCEPTED["observation"] = (
    "Ant",
    ("compute_observation",),
    """
import torch


def compute_observation(state):
    parts = [
        state["torso_position"][:, 2:3],
        state["torso_rotation"],
        state["torso_velocity"] * 0.5,
        state["torso_angular_velocity"] / 5.0,
        state["joint_position"],
        0.1 * state["joint_velocity"],
        state["previous_action"],
        torch.clamp(state["contact_wrench"].flatten(1), -1.0, 1.0),
        state["forward_velocity"][:, None],
    ]
    return torch.cat(parts, dim=-1)
""",
)

ACCEPTED["observation_with_phase"] = (
    "Anymal",
    ("compute_observation",),
    """
import math


def compute_observation(state_dict):
    phase = 2.0 * math.pi * 1.5 * 0.02 * state_dict["progress"]
    clock = torch.stack((torch.sin(phase), torch.cos(phase)), dim=1)
    foot_contact = (state_dict["contact_forces"][:, [3, 6, 9, 12], 2] > 1.0).float()
    history = torch.cat((state_dict["action"], state_dict["previous_action"]), 1)
    scales = torch.tensor([2.0, 2.0, 0.25])
    return torch.cat(
        (
            state_dict["base_lin_vel"] * 2.0, state_dict["base_ang_vel"] * 0.25, state_dict["projected_gravity"],
            state_dict["commands"] * scales, state_dict["dof_pos"] - state_dict["default_dof_pos"],
            state_dict["dof_vel"] * 0.05, clock, foot_contact, history,
        ),
        dim=-1,
    )
""",
)

ACCEPTED["torque_pd"] = (
    "Anymal",
    ("compute_torque",),
    '''
import torch

KP = 85.0
KD = 2.0


def compute_torque(action, state):
    """Position targets around the default pose."""
    action_scale = 0.5
    target = state["default_dof_pos"] + action_scale * torch.clamp(action, -1.0, 1.0)
    torque = KP * (target - state["dof_pos"]) - KD * state["dof_vel"]
    return torch.clamp(torque, min=-80.0, max=80.0)
''',
)

ACCEPTED["torque_action_size"] = (
    "Ant",
    ("compute_torque",),
    """
import torch

ACTION_SIZE = 4


def compute_torque(action, state):
    hips = action.clamp(-1, 1)
    t = state["progress"] * 0.05
    gait = torch.stack([torch.sin(t + k * 1.57) for k in range(4)], dim=1)
    ankles = 0.5 * gait + 0.5 * hips
    return 150.0 * torch.stack((hips, ankles), dim=2).reshape(action.shape[0], 8)
""",
)

ACCEPTED["torque_found_by_trying"] = (
    "Ant",
    ("compute_torque",),
    """
def compute_torque(action, joint_position, joint_velocity):
    left_right = torch.cat((action, -action), dim=-1)
    return 60.0 * (torch.tanh(left_right) - joint_position) - 2.0 * joint_velocity
""",
)

ACCEPTED["terminal"] = (
    "Ant",
    ("compute_terminal",),
    """
def compute_terminal(state):
    height = state["torso_position"][:, 2]
    fallen = (height < 0.25) | (height > 1.2)
    fast = torch.any(torch.abs(state["joint_velocity"]) > 100.0, dim=-1)
    return torch.logical_or(fallen, fast)
""",
)

ACCEPTED["terminal_of_numbers"] = (
    "Quadcopter",
    ("compute_terminal",),
    """
import torch


def compute_terminal(state):
    die = torch.zeros_like(state["progress"])
    ones = torch.ones_like(die)
    die = torch.where(torch.norm(state["to_goal"], dim=-1) > 8.0, ones, die)
    die = torch.where(state["root_states"][:, 2] < 0.2, ones, die)
    return die
""",
)

ACCEPTED["initial_state_noise"] = (
    "Ant",
    ("compute_initial_state",),
    """
def compute_initial_state(state, random, rest):
    n, joints = rest.joint_position.shape
    root = rest.root_state.clone()
    root[:, 0, 2] += 0.05 * random.uniform[:, 0]
    root[:, 0, 7:10] = 0.1 * random.normal[:, 1:4]
    position = rest.joint_position + 0.1 * (2.0 * random.uniform[:, 4 : 4 + joints] - 1.0)
    velocity = 0.1 * random.normal[:, 12 : 12 + joints] * torch.ones(n, 1)
    return Pose(root, position, rest.joint_velocity + velocity)
""",
)

ACCEPTED["initial_state_keywords"] = (
    "Cartpole",
    ("compute_initial_state",),
    """
import torch
from envolve.envs.physics.task import Pose


def compute_initial_state(state, random, rest):
    tilt = 0.2
    position = rest.joint_position + torch.zeros_like(rest.joint_position)
    position[:, 1] = tilt * (2 * random.uniform[:, 1] - 1)
    return Pose(
        root_state=rest.root_state, joint_position=position, joint_velocity=torch.zeros_like(rest.joint_velocity)
    )
""",
)

ACCEPTED["goal_curriculum"] = (
    "Anymal",
    ("compute_goal",),
    """
import torch


def compute_goal(state, random):
    easy = 0.5
    forward = 2.0 * random.uniform[:, 0] - 0.5
    side = easy * (2.0 * random.uniform[:, 1] - 1.0)
    yaw = torch.clamp(0.4 * random.normal[:, 2], -1.0, 1.0)
    return torch.stack((forward, side, yaw), dim=-1)
""",
)

ACCEPTED["goal_of_state"] = (
    "Quadcopter",
    ("compute_goal",),
    """
def compute_goal(state, random):
    here = torch.stack([state["goal_x"], state["goal_y"], state["goal_z"]], dim=1)
    radius = 0.5 * torch.sqrt(random.uniform[:, :1])
    angle = 6.2831853 * random.uniform[:, 1]
    offset = torch.stack((torch.cos(angle), torch.sin(angle), torch.zeros_like(angle)), -1)
    return here + radius * offset
""",
)

ACCEPTED["all_kinds"] = (
    "Anymal",
    ALL_KINDS,
    """
import torch

ACTION_SIZE = 12
GROUND = 0.35


def tracking_error(state):
    return (state["commands"][:, :2] - state["base_lin_vel"][:, :2]).square().sum(dim=-1)


def compute_reward(state):
    tracking = torch.exp(-tracking_error(state) / 0.25)
    yaw = torch.exp(-(state["commands"][:, 2] - state["base_ang_vel"][:, 2]).square() / 0.25)
    smoothness = (state["action"] - state["previous_action"]).square().sum(-1)
    total = tracking + 0.5 * yaw - 0.01 * smoothness
    return total, {"tracking": tracking, "yaw": yaw, "smoothness": smoothness}


def compute_observation(state):
    names = ["base_lin_vel", "base_ang_vel", "projected_gravity", "commands", "dof_pos", "dof_vel"]
    return torch.cat([state[name] for name in names], dim=1)


def compute_torque(action, state):
    return 80.0 * (0.5 * action + state["default_dof_pos"] - state["dof_pos"]) - 2.0 * state["dof_vel"]


def compute_terminal(state):
    return (state["root_states"][:, 2] < GROUND) | (state["projected_gravity"][:, 2] > -0.5)


def compute_initial_state(state, random, rest):
    spread = 0.1
    joints = rest.joint_position * (1 + spread * (random.uniform[:, :12].double() - 0.5))
    return Pose(rest.root_state, joints, rest.joint_velocity)


def compute_goal(state, random):
    low, high = torch.tensor([-1.0, -0.5, -0.5]), torch.tensor([2.0, 0.5, 0.5])
    return low + (high - low) * random.uniform[:, :3]
""",
)

ACCEPTED["power_and_smoothness"] = (
    "HalfCheetah",
    REWARD,
    """
import torch


def compute_reward(
    forward_velocity, action, previous_action, torso_pitch, speed_weight: float = 1.0, pitch_weight: float = 0.1
):
    run = speed_weight * forward_velocity
    pitch = -pitch_weight * torch.abs(torso_pitch)
    control = -0.1 * torch.sum(action ** 2, axis=1)
    change = -0.05 * torch.mean(torch.abs(action - previous_action), axis=-1)
    total = run + pitch + control + change
    # total = f"{total}" would be text
    return total, {"run": run, "pitch": pitch, "control": control, "change": change}
""",
)

ACCEPTED["potential_of_state"] = (
    "Pusher",
    REWARD,
    """
import torch


def distance(a, b):
    return torch.sqrt(torch.sum((a - b) ** 2, dim=-1) + 1e-6)


def compute_reward(state):
    reach = distance(state["tip_position"], state["object_position"])
    push = distance(state["object_position"][:, :2], state["goal"])
    near = torch.sigmoid(10 * (0.2 - reach))
    moved = (state["object_velocity"] * (state["goal"] - state["object_position"][:, :2])).sum(dim=1)
    staged = torch.where(reach < 0.15, 1.0 - torch.tanh(3.0 * push), -0.5 * reach)
    total = staged + near * moved.clamp(-1, 1)
    if total.dim() == 2:
        total = total.squeeze(-1)
    return total, {"reach": -reach, "push": -push, "near": near}
""",
)

ACCEPTED["nested_function"] = (
    "Humanoid",
    REWARD,
    """
import torch


def compute_reward(state):
    def bell(x, width):
        return torch.exp(-torch.square(x / width))

    q = state["torso_rotation"]
    x, y, z, w = q[:, 0], q[:, 1], q[:, 2], q[:, 3]
    up = 1 - 2 * (x * x + y * y)
    roll = torch.atan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))
    pitch = torch.asin(torch.clamp(2 * (w * y - z * x), -0.999, 0.999))
    speed = state["torso_velocity"][:, 0]
    posture = bell(state["torso_position"][:, 2] - 1.3, 0.2) * bell(roll, 0.5) * bell(pitch, width=0.5)
    cost = 0.01 * (state["torque"] / 100.0).square().mean(dim=1)
    reward = torch.zeros((q.shape[0],), dtype=torch.float32, device=q.device)
    for weight, term in zip([1.25, 2.0, 0.5], [speed, posture, up]):
        reward = reward + weight * term
    return reward - cost
""",
)
