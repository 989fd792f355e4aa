# SPDX-License-Identifier: Apache-2.0
"""What pytest loads of the package by itself, the entry point `msmemscope` of the wheel: two options. Nothing else is imported
unless one of them is used; `-p msmemscope.pytest_plugin` does the same without the entry point.
"""
import pytest


def add_options(parser):
    """Both options, once: with -p the plugin is there before the entry point."""
    group = parser.getgroup("msmemscope", "msmemscope: memory of tests")
    try:
        group.addoption("--memscope", action="store_true", help="record each test and list the tests with the highest memory peaks")
        group.addoption("--memscope-json", metavar="FILE", help="the same, and write the memory of each test as JSON")
    except ValueError:
        pass  # they are there


def pytest_addoption(parser):
    add_options(parser)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config):
    # Before pytest captures the output: the plugin starts the interpreter again.
    options = early_config.known_args_namespace
    if options.memscope or options.memscope_json:
        early_config.pluginmanager.import_plugin("msmemscope.pytest_plugin")
    yield
