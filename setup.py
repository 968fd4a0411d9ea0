"""Adds to the wheel what lies beside the package in a checkout; all else is in pyproject.toml."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithConfigurations(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for path in sorted(Path().glob("default_config_*.yaml")):
                self.copy_file(str(path), str(Path(self.build_lib) / "envolve" / path.name))


setup(cmdclass={"build_py": BuildWithConfigurations})
