def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
    # state: [position in -1.2..0.6, velocity in -0.07..0.07]; the valley is at -0.52, the flag at goal_position
    state, true_reward, terminated, truncated, _ = super().step(action)

    reward, parts = self.compute_reward(state, action, terminated)
    parts["fitness_score"] = self.compute_fitness_score(true_reward)

    return state, reward, terminated, truncated, parts
