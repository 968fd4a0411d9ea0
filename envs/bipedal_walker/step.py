def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
    # state, 24 numbers: 0 angle of the hull, 1 its angular velocity, 2 forward velocity, 3 vertical velocity,
    # 4-7 angle and speed of hip 1, angle and speed of knee 1, 8 whether leg 1 touches the ground (0 or 1),
    # 9-12 the same of hip 2 and knee 2, 13 whether leg 2 touches the ground, 14-23 distances seen by the lidar
    state, true_reward, terminated, truncated, _ = super().step(action)
    position = self.hull.position  # x and y in m; the end is at x = (TERRAIN_LENGTH - TERRAIN_GRASS) * TERRAIN_STEP
    fallen = terminated and position[0] <= (TERRAIN_LENGTH - TERRAIN_GRASS) * TERRAIN_STEP

    reward, parts = self.compute_reward(position, action, state, fallen)
    parts["fitness_score"] = self.compute_fitness_score(true_reward)

    return state, reward, terminated, truncated, parts
