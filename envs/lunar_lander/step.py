def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
    # state, 8 numbers: 0 and 1 position relative to the pad (x to the right, y up), 2 and 3 velocity, 4 angle (0:
    # upright), 5 angular velocity, 6 and 7 whether the left and the right leg touch the ground (0 or 1)
    # action: 0 nothing, 1 left engine, 2 main engine, 3 right engine
    state, true_reward, terminated, truncated, _ = super().step(action)
    landed = terminated and not self.lander.awake
    crashed = terminated and not landed  # or flown out of sight

    reward, parts = self.compute_reward(state, action, landed, crashed)
    parts["fitness_score"] = self.compute_fitness_score(true_reward)

    return state, reward, terminated, truncated, parts
