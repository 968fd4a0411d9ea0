"""Every picture of the project from seeded data with the shape of a real run, and what all of them must fulfil.

    python -m tests.pictures DIR [NAME ...]      draws them, to be looked at

``paper.py`` and ``others.py`` have the data, ``rules.py`` the properties.
"""
