"""Ground floor: modules that every other package may import and that import none of them. Python 3.8."""
