"""The figures, one per file. Each has

TITLE   what it shows, in a line
NEEDS   variant -> what it is drawn from (experiments/paper/common/drawing.py: Need); the variant "" is the only one
draw    (variant, what was found of NEEDS[variant], in that order) -> Drawing
"""
