"""The ``agents.gtn`` section: the outer loop. (GTN is the original's name for its generator of worlds.)"""

from __future__ import annotations

from dataclasses import dataclass

from envolve.core.option import option

SE, RN, SHAPER = 0, 1, 2


@dataclass(frozen=True)
class GTNSection:
    """NES over worlds. The published update is the default; ``estimator: antithetic`` works better on SEs."""

    agent_name: str = option("DDQN", "the learner of the inner loop, e.g. DDQN, DDQN_vary, QL, SARSA_cb")
    synthetic_env_type: int = option(
        SE,
        "0: evolve a synthetic environment, 1: a reward network, 2: shapers of a task in a physics engine",
        choices=(SE, RN, SHAPER),
    )
    max_iterations: int = option(50, "generations", ge=1, le=10**8)
    num_workers: int = option(
        16,
        "perturbations per generation (the original ran one process for each; here any number of workers share them)",
        ge=1,
        le=10**6,
    )
    noise_std: float = option(0.1, "standard deviation of a perturbation", gt=0)
    step_size: float = option(1.0, "published update: step size; antithetic: Adam's learning rate", gt=0)
    nes_step_size: bool = option(False, "divide step_size by num_workers")
    mirrored_sampling: bool = option(True, "evaluate +eps and -eps and keep the better")
    num_grad_evals: int = option(1, "agents per perturbation", ge=1, le=10**5)
    grad_eval_type: str = option(
        "mean", "how the agents of one perturbation are combined: mean or worst (minmax)", choices=("mean", "minmax")
    )
    weight_decay: float = option(0.0, "share of the weights lost per generation", ge=0, lt=1)
    score_transform_type: int = option(
        7,
        "published update: 0 linear, 1 rank, 2 NES, 3 NES unnormalised, 4 single best, 5 single better, 6/7 all better",
        ge=0,
        le=7,
    )
    quit_when_solved: bool = option(True, "stop when the world is solved")
    unsolved_weight: float = option(10000.0, "reward_threshold objective: weight of the missing return", ge=0)
    mode: str = option(
        "multi", "single: the master starts local workers itself, as --single", choices=("multi", "single")
    )
    num_threads_per_worker: int = option(1, "CPU threads of one worker", ge=1, le=1024)
    # here
    search: str = option(
        "nes",
        "nes, snes, sep_cma, cma, openai_es, random, or a class of your own: my_search.py:MyES (docs/searches.md)",
    )
    init: str = option(
        "random",
        "the first world: random, or distilled from an agent trained on the task (bandits; section agents.expert)",
        choices=("random", "distilled"),
    )
    first_world: str = option(
        "", "file of the world that the search begins with, such as model.pt of another run; without: as init says"
    )
    estimator: str = option(
        "published",
        "published: sum of transformed scores times noise; antithetic: rank gradient with Adam",
        choices=("published", "antithetic"),
    )
    rn_objective: str = option(
        "reward_threshold", "score of a reward network's agent", choices=("reward_threshold", "auc", "mean_return")
    )
    iterate_averaging: float = option(
        0.0,
        "score and keep a running average of the search's iterates; weight of the old average",
        ge=0,
        lt=1,
    )
    num_orig_evals: int = option(
        0, "agents that score the unperturbed world, 0: num_workers as published", ge=0, le=10**6
    )
    keep: str = option(
        "best",
        "world to store: best by score; last (for scores too noisy to choose by); confirmed: the best, if it teaches "
        "confirm_agents fresh agents more than the distilled world that the search began with, else that one",
        choices=("best", "last", "confirmed"),
    )
    common_random_numbers: bool = option(False, "the two members of a mirrored pair share seed and hyperparameters")
    confirm_agents: int = option(
        0,
        "fresh agents that must confirm with 95 % confidence that the world is solved; 0: none, as published",
        ge=0,
        le=10**6,
    )
    collapse_generations: int = option(
        0,
        "restart after this many generations of SE episodes under 3 steps that teach nothing, 0: never",
        ge=0,
        le=10**8,
    )
    max_restarts: int = option(2, "how often a run may restart", ge=0, le=10**6)
    evolve_prelu: bool = option(True, "also perturb PReLU slopes; the original left them at 0.25")
    se_test_on_real: bool = option(
        False,
        "SE: test on the real task after every training episode and stop when solved, as the original's last commit",
    )
    chunk_size: int = option(8, "members per job, whatever the number of workers", ge=1, le=10**6)
    comparison_agents: int = option(
        20, "agents trained in the evolved world and on the real task for the closing summary, 0: none", ge=0, le=10**6
    )
    other_agents: str = option(
        "",
        "further learners beside agent_name, separated by spaces, which take turns by the pair of worlds. Without "
        "pairs num_grad_evals is a multiple of the number of learners: all worlds have the same ones",
    )
    best_paid_share: float = option(
        0.0,
        "bandits: share in a score of what the action returns on the task that the world pays most for, without an "
        "agent; the rest is the agent's return. A world then also serves agents that train longer",
        ge=0,
        lt=1,
    )
    horizon_start: int = option(
        1,
        "curriculum: steps of the perturbed worlds' tests in the first generation; grows linearly to max_steps",
        ge=1,
        le=10**6,
    )
    horizon_generations: int = option(
        0, "generations until tests have full length; 0: always full length", ge=0, le=10**8
    )
    backend: str = option(
        "auto",
        "auto: compiled kernels where there are any; compiled: or fail; torch: the readable path; "
        "torch_compile: the same, its updates compiled by torch.compile",
        choices=("auto", "compiled", "torch", "torch_compile"),
    )


@dataclass(frozen=True)
class ARSSection:
    """``agents.ars_expert``: augmented random search for a linear policy (outer/distil/ars.py)."""

    train_steps: int = option(0, "budget of steps on the task; the iteration that reaches it is finished", ge=0)
    directions: int = option(16, "directions per iteration; both ways along each are played once", ge=1, le=4096)
    top: int = option(16, "best directions that the step uses", ge=1, le=4096)
    step_size: float = option(0.02, "length of the step along a direction", gt=0)
    noise_std: float = option(0.03, "how far along a direction a policy is tried", gt=0)
    action_noise: float = option(
        0.0, "standard deviation of noise on the actions of the search, in units of the largest action", ge=0, le=10
    )
    unit_power: float = option(
        1.0, "an observation is divided by this power of its standard deviation; 0: all by the same number", ge=0, le=1
    )
    alive_bonus: float = option(0.0, "subtracted from every reward of the search, of tasks that pay for being alive")
    test_episodes: int = option(10, "episodes of the test that chooses the best expert", ge=1, le=10**6)


@dataclass(frozen=True)
class ExpertSection:
    """The agents on the task from which ``init: distilled`` makes the first world. A learner's own section is
    ``agents.<learner>_expert``, also that of ``imitate``."""

    learner: str = option(
        "",
        "its learner, or ars, a random search for a linear policy; several with spaces between them take turns; "
        "empty: ddqn for discrete actions, else sac",
    )
    agents: int = option(3, "experts that are trained; the best of them teaches", ge=1, le=1000)
    chosen_by: str = option(
        "return",
        "which expert is the best: the one with the highest return on the task, or the one whose pupils, agents of "
        "the inner loop in the world that it teaches, have the highest",
        choices=("return", "pupils"),
    )
    context_noise: float = option(
        0.0, "noise on the states that become contexts, in standard deviations of each feature", ge=0, le=10
    )
    standardise: bool = option(False, "fit the world in units of each feature's standard deviation")
    balance: bool = option(
        False,
        "draw contexts at which each component of the best action is near zero on average; else TD3 and DDPG may "
        "get stuck at a bound",
    )
    imitate: str = option(
        "",
        "ars begins with the linear policy nearest to that of this learner, which trains first; empty: with zeros",
    )
    fit_steps: int = option(0, "steps of the fit of the reward; 0: 3,000", ge=0, le=10**7)
