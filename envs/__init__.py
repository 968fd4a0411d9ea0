"""Where agents learn: tasks, and the worlds that the outer loop changes."""
