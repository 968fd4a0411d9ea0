def step(self, action):
    # position and velocity in the plane, [x, y]; an episode has 100 steps of 0.05 s
    self.velocity = 0.95 * self.velocity + 0.05 * 4.0 * np.clip(action, -1, 1)
    self.position = np.clip(self.position + 0.05 * self.velocity, -5, 5)
    distance = float(np.linalg.norm(self.position - self.target))

    reward, parts = self.compute_reward(distance, self.velocity, action)
    parts["fitness_score"] = self.compute_fitness_score(distance)

    return self.observed(), reward, False, False, parts
