"""The functions a model may be asked for: exact signatures, shapes, units and frames; and an example of each."""

from __future__ import annotations

from collections.abc import Sequence

from envolve.envs.physics.task import PhysicsTask
from envolve.llm.search.task_facts import TaskFacts, limits_text


def signature(kind: str, task: type[PhysicsTask], facts: TaskFacts) -> str:
    """What one function takes and returns, at this task. Raises KeyError for an unknown one."""
    limits = limits_text(facts.effort_limits)
    drawn = f"random.uniform in [0, 1) and random.normal, [n, {task.random_numbers}] each, are all the randomness"
    texts = {
        "compute_reward": "def compute_reward(state): -> (total [n], components): components is a dictionary of the "
        "terms by name, [n] each; they are recorded, not added, so add them up to the total yourself.",
        "compute_observation": "def compute_observation(state): -> [n, F]: all that the policy sees; F is your choice "
        f"(the human's has {facts.features}). It sees nothing else: include what it needs to know of the goal.",
        "compute_torque": f"def compute_torque(action, state): -> effort [n, {facts.efforts}], one column per actuator "
        f"in the order of state['torque'], N m at hinges and N at slides{', clipped to ' + limits if limits else ''}. "
        "action [n, A] is the policy's: its mean lies in [-1, 1], exploration goes beyond. Choose A with a line "
        f"`ACTION_SIZE = {task.action_size}` (a number, outside the function; {task.action_size} is the human's).",
        "compute_terminal": "def compute_terminal(state): -> bool [n]: the training episode ends here. The time limit "
        "is not its matter, and the judge's episodes end where the task says.",
        "compute_initial_state": "def compute_initial_state(state, random, rest): -> Pose(root_state, joint_position, "
        f"joint_velocity), where training episodes begin: root_state [n, {facts.bodies}, 13] (of each free body "
        "position m, quaternion x y z w, velocity m/s, angular velocity rad/s; world frame), joint_position and "
        f"joint_velocity [n, {facts.joints}] (rad or m, and per s). `rest` is such a Pose, the model's own at rest; "
        f"`Pose` is defined already; its tensors are float64. {drawn}. state is that before the reset, but for the "
        "goal and the parameters.",
        "compute_goal": f"def compute_goal(state, random): -> [n, {task.goal_size}], what training episodes ask for, "
        f"then state['goal']: {task.goal_meaning}. {drawn}. state is that before the reset, but for the parameters.",
    }  # fmt: skip
    return "- " + texts[kind]


_EXAMPLES = {
    "compute_reward": """\
def compute_reward(state):
    height_weight = 1.0
    height_temperature = 0.5  # m
    calm_weight = 0.1
    error = (state["height"] - state["target_height"]).abs()  # [n]
    hold = height_weight * torch.exp(-error / height_temperature)
    calm = -calm_weight * state["climb_rate"].square().clamp(max=10.0)
    return hold + calm, {"hold": hold, "calm": calm}
""",
    "compute_observation": """\
def compute_observation(state):
    height_scale = 0.2  # per m
    rate_scale = 0.5  # per m/s
    error = height_scale * (state["target_height"] - state["height"])
    return torch.stack((error, rate_scale * state["climb_rate"]), dim=1)  # [n, 2]
""",
    "compute_torque": """\
ACTION_SIZE = 1


def compute_torque(action, state):
    stiffness = 2.0  # N m
    damping = 0.4  # N m s/m
    lift = stiffness * action[:, 0] - damping * state["climb_rate"]  # [n]
    return torch.stack((lift, lift), dim=1)  # both fans alike
""",
    "compute_terminal": """\
def compute_terminal(state):
    farthest = 5.0  # m
    return (state["height"] - state["target_height"]).abs() > farthest
""",
    "compute_initial_state": """\
def compute_initial_state(state, random, rest):
    spread = 0.3  # m
    shift = torch.zeros_like(rest.root_state)
    shift[:, 0, 2] = spread * (2 * random.uniform[:, 0] - 1)
    return Pose(rest.root_state + shift, rest.joint_position, rest.joint_velocity)
""",
    "compute_goal": """\
def compute_goal(state, random):
    lowest = 1.0  # m
    highest = 4.0  # m
    return lowest + (highest - lowest) * random.uniform[:, :1]  # [n, 1]
""",
}


def example(kinds: Sequence[str]) -> str:
    """Code for a made-up task, a blimp that hovers, with these functions."""
    return "\n\n".join(_EXAMPLES[kind] for kind in kinds)
