"""Tasks of mjlab and Isaac Lab with many candidates in one process (docs/mjlab.md, docs/isaaclab.md). The libraries
themselves are imported where they are used."""
