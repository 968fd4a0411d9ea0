"""From a run to a world of the zoo: its file, its card, its picture. What reads them is the room ``worlds/``."""
