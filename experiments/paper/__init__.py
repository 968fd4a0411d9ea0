"""What the commands that reproduce the paper's experiments share."""
