"""Names that other simulators give to the state, per task, as expressions of this project's names.

Language models and people write for IsaacGymEnvs (https://github.com/isaac-sim/IsaacGymEnvs, isaacgymenvs/tasks and
cfg/task) or for Gymnasium (https://gymnasium.farama.org/environments/mujoco). ``{s}`` stands for the state. Numbers are
tensors without dimensions, as there is code that calls methods of them. What means something else there than here (a
limit, a radius, a time step) has this project's value. quat_apply and its like are functions of that library.
"""

from __future__ import annotations

from typing import Dict, Type

from envolve.envs.physics.task import PhysicsTask

_COMMON = {
    "progress_buf": '{s}["progress"]',
    "episode_length_buf": '{s}["progress"]',
    "torques": '{s}["torque"]',
    "dof_torques": '{s}["torque"]',
    "actions": '{s}["action"]',
    "prev_actions": '{s}["previous_action"]',
    "prev_action": '{s}["previous_action"]',
    "previous_actions": '{s}["previous_action"]',
    "last_actions": '{s}["previous_action"]',
    "last_action": '{s}["previous_action"]',
    "num_envs": '{s}["progress"].shape[0]',
    "reset_buf": 'torch.zeros_like({s}["progress"])',
    "device": '{s}["progress"].device',
}
_JOINTS = {
    "dof_pos": '{s}["joint_position"]',
    "dof_vel": '{s}["joint_velocity"]',
    "joint_pos": '{s}["joint_position"]',
    "joint_vel": '{s}["joint_velocity"]',
    "joint_positions": '{s}["joint_position"]',
    "joint_velocities": '{s}["joint_velocity"]',
}
_TARGETS = {name: '{s}["goal"]' for name in "target goal_position target_position goal_pos target_pos".split()}
_TORSO = {
    **_JOINTS,
    "root_states": 'torch.cat(({s}["torso_position"], {s}["torso_rotation"], {s}["torso_velocity"], '
    '{s}["torso_angular_velocity"]), dim=-1)',
    "root_position": '{s}["torso_position"]',
    "torso_quat": '{s}["torso_rotation"]',
    "velocity": '{s}["torso_velocity"]',
    "ang_velocity": '{s}["torso_angular_velocity"]',
    "base_lin_vel": 'quat_rotate_inverse({s}["torso_rotation"], {s}["torso_velocity"])',
    "base_ang_vel": 'quat_rotate_inverse({s}["torso_rotation"], {s}["torso_angular_velocity"])',
    "vel_loc": 'quat_rotate_inverse({s}["torso_rotation"], {s}["torso_velocity"])',
    "angvel_loc": 'quat_rotate_inverse({s}["torso_rotation"], {s}["torso_angular_velocity"])',
    "up_vec": 'quat_axis({s}["torso_rotation"], 2)',
    "heading_vec": 'quat_axis({s}["torso_rotation"], 0)',
    "up_proj": 'quat_axis({s}["torso_rotation"], 2)[:, 2]',
    "heading_proj": 'quat_axis({s}["torso_rotation"], 0)[:, 0]',
    "torso_height": '{s}["torso_position"][:, 2]',
    "x_velocity": '{s}["forward_velocity"]',
    "heading_weight": "torch.tensor(0.5)",
    "up_weight": "torch.tensor(0.1)",
    "energy_cost_scale": "torch.tensor(0.05)",
}
_BY_TASK: Dict[str, Dict[str, str]] = {
    "Ant": {
        **_TORSO,
        "termination_height": "torch.tensor(0.31)",
        "actions_cost_scale": "torch.tensor(0.005)",
        "joints_at_limit_cost_scale": "torch.tensor(0.1)",
        "death_cost": "torch.tensor(-2.0)",
        "dof_vel_scale": "torch.tensor(0.2)",
        "contact_force_scale": "torch.tensor(0.1)",
    },
    "Humanoid": {
        **_TORSO,
        "termination_height": "torch.tensor(0.8)",
        "actions_cost_scale": "torch.tensor(0.01)",
        "joints_at_limit_cost_scale": "torch.tensor(0.25)",
        "death_cost": "torch.tensor(-1.0)",
        "dof_vel_scale": "torch.tensor(0.1)",
        "angular_velocity_scale": "torch.tensor(0.25)",
        "contact_force_scale": "torch.tensor(0.01)",
    },
    "Anymal": {
        "joint_pos": '{s}["dof_pos"]',
        "joint_vel": '{s}["dof_vel"]',
        "joint_position": '{s}["dof_pos"]',
        "joint_velocity": '{s}["dof_vel"]',
        "base_pos": '{s}["root_states"][:, :3]',
        "base_quat": '{s}["root_states"][:, 3:7]',
        "knee_indices": "torch.tensor([2, 5, 8, 11])",  # there: bodies called THIGH
        "feet_indices": "torch.tensor([3, 6, 9, 12])",
        "base_index": "0",
        "lin_vel_scale": "torch.tensor(2.0)",
        "ang_vel_scale": "torch.tensor(0.25)",
        "dof_pos_scale": "torch.tensor(1.0)",
        "dof_vel_scale": "torch.tensor(0.05)",
        "action_scale": "torch.tensor(0.5)",
        "Kp": "torch.tensor(85.0)",
        "Kd": "torch.tensor(2.0)",
    },
    "Cartpole": {
        "cart_pos": '{s}["cart_position"]',
        "cart_vel": '{s}["cart_velocity"]',
        "pole_pos": '{s}["pole_angle"]',
        "pole_vel": '{s}["pole_angular_velocity"]',
        "pole_velocity": '{s}["pole_angular_velocity"]',
        "pole_angular_vel": '{s}["pole_angular_velocity"]',
        "dof_pos": 'torch.stack(({s}["cart_position"], {s}["pole_angle"]), dim=-1)',
        "dof_vel": 'torch.stack(({s}["cart_velocity"], {s}["pole_angular_velocity"]), dim=-1)',
        "reset_dist": "torch.tensor(2.4)",
        "max_push_effort": "torch.tensor(10.0)",
    },
    "AllegroHand": {
        **_JOINTS,
        "object_pos": '{s}["object_position"]',
        "object_rot": '{s}["object_rotation"]',
        "object_linvel": '{s}["object_velocity"]',
        "object_angvel": '{s}["object_angular_velocity"]',
        "object_pose": 'torch.cat(({s}["object_position"], {s}["object_rotation"]), dim=-1)',
        "goal_pos": '{s}["target_position"]',
        "target_pos": '{s}["target_position"]',
        "goal_rot": '{s}["target_rotation"]',
        "target_rot": '{s}["target_rotation"]',
        "goal_pose": 'torch.cat(({s}["target_position"], {s}["target_rotation"]), dim=-1)',
        "fingertip_pos": '{s}["fingertip_position"]',
        "successes": '{s}["targets_reached"]',
        "success_tolerance": "torch.tensor(0.1)",
        "fall_dist": "torch.tensor(0.24)",
        "fall_penalty": "torch.tensor(0.0)",
        "dist_reward_scale": "torch.tensor(-10.0)",
        "rot_reward_scale": "torch.tensor(1.0)",
        "rot_eps": "torch.tensor(0.1)",
        "action_penalty_scale": "torch.tensor(-0.0002)",
        "reach_goal_bonus": "torch.tensor(250.0)",
        "vel_obs_scale": "torch.tensor(0.2)",
        "force_torque_obs_scale": "torch.tensor(10.0)",
    },
    "FrankaCubeStack": {
        **_JOINTS,
        "eef_pos": '{s}["hand_position"]',
        "eef_quat": '{s}["hand_rotation"]',
        "eef_vel": '{s}["hand_velocity"]',
        "eef_lf_pos": '{s}["left_finger_position"]',
        "eef_rf_pos": '{s}["right_finger_position"]',
        "q": 'torch.cat(({s}["joint_position"], {s}["finger_position"]), dim=-1)',
        "q_gripper": '{s}["finger_position"]',
        "cubeA_pos": '{s}["cube_a_position"]',
        "cubeA_quat": '{s}["cube_a_rotation"]',
        "cubeB_pos": '{s}["cube_b_position"]',
        "cubeB_quat": '{s}["cube_b_rotation"]',
        "cubeA_pos_relative": '{s}["cube_a_position"] - {s}["hand_position"]',
        "cubeA_to_cubeB_pos": '{s}["cube_b_position"] - {s}["cube_a_position"]',
        "cubeA_size": 'torch.full_like({s}["progress"], 0.05)',
        "cubeB_size": 'torch.full_like({s}["progress"], 0.07)',
        "table_height": "torch.tensor(0.0)",
        "r_dist_scale": "torch.tensor(0.1)",
        "r_lift_scale": "torch.tensor(1.5)",
        "r_align_scale": "torch.tensor(2.0)",
        "r_stack_scale": "torch.tensor(16.0)",
    },
    "HalfCheetah": {**_JOINTS, "x_velocity": '{s}["forward_velocity"]', "ctrl": '{s}["action"]'},
    "Reacher": {
        **_JOINTS, **_TARGETS,
        "fingertip": '{s}["fingertip_position"]',
        "fingertip_pos": '{s}["fingertip_position"]',
        "to_target": '{s}["goal"] - {s}["fingertip_position"]',
    },
    "Pusher": {
        **_JOINTS, **_TARGETS,
        "tips_arm": '{s}["tip_position"]',
        "object_pos": '{s}["object_position"]',
        "tip_pos": '{s}["tip_position"]',
    },
    "Quadcopter": {
        **_TARGETS,
        "root_positions": '{s}["root_states"][:, :3]',
        "root_quats": '{s}["root_states"][:, 3:7]',
        "root_linvels": '{s}["linear_velocity"]',
        "root_angvels": '{s}["root_states"][:, 10:13]',
        "target_root_positions": '{s}["goal"]',
        "root_position": '{s}["root_states"][:, :3]',
        "root_quat": '{s}["root_states"][:, 3:7]',
    },
    "BallBalance": {
        "ball_positions": '{s}["ball_position"]',
        "ball_linvels": '{s}["ball_velocity"]',
        "ball_velocities": '{s}["ball_velocity"]',
        "ball_angvels": '{s}["ball_spin"]',
        "ball_radius": "torch.tensor(0.1)",
        "dof_positions": '{s}["plate_angles"]',
        "dof_velocities": '{s}["plate_rates"]',
        "tray_positions": 'torch.tensor([0.0, 0.0, 0.7]).expand({s}["progress"].shape[0], 3)',
    },
}  # fmt: skip
DT = {  # s, of a control step
    "AllegroHand": 0.02, "Anymal": 0.02, "Ant": 0.05, "BallBalance": 0.01, "Cartpole": 0.02, "FrankaCubeStack": 0.016,
    "HalfCheetah": 0.05, "Humanoid": 0.015, "Pusher": 0.05, "Quadcopter": 0.01, "Reacher": 0.02,
}  # fmt: skip


def aliases(task: Type[PhysicsTask]) -> Dict[str, str]:
    """Names of the state that are not this task's own, and the expressions that they stand for."""
    found = {**_COMMON, **_BY_TASK.get(task.name, {})}
    for name in ("max_episode_length", "max_episode_steps", "episode_length"):
        found[name] = f"torch.tensor({float(task.max_steps)})"
    if task.name in DT:
        found["dt"] = found["control_dt"] = f"torch.tensor({DT[task.name]})"
    own = {*task.described(1), "action", "previous_action"}
    return {name: text for name, text in found.items() if name not in own}
