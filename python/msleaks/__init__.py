# SPDX-License-Identifier: Apache-2.0
"""The older name of msmemscope: the same objects, one state.

This module is the other one, and so is every module below it. A program that imports this one first gets its results where
it expects them, in leaksDumpResults.
"""
import importlib
import importlib.machinery
import sys

_first = "msmemscope" not in sys.modules
_other = importlib.import_module("msmemscope")
if _first:
    importlib.import_module("msmemscope._control").call_as("msleaks")


class _Alias:
    """Finds msleaks.x as the module msmemscope.x."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if not name.startswith(f"{__name__}."):
            return None
        try:
            module = importlib.import_module("msmemscope" + name[len(__name__):])
        except ModuleNotFoundError:
            return None
        return importlib.machinery.ModuleSpec(name, _Loader(module), origin=module.__spec__.origin,
                                              is_package=hasattr(module, "__path__"))


class _Loader:
    def __init__(self, module):
        self.module = module
        self.spec = module.__spec__

    def create_module(self, spec):
        return self.module

    def get_code(self, _name):
        """For `python -m msleaks`."""
        return self.spec.loader.get_code(self.spec.name)

    def exec_module(self, module):
        module.__spec__ = self.spec  # it stays what it was


sys.meta_path.insert(0, _Alias)
sys.modules[__name__] = _other
