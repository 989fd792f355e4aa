# SPDX-License-Identifier: Apache-2.0
"""The forms in which the stand-in for Ascend Transformer Boost is built (targets/atb), and what runs a program of a form."""
import pytest

# Both forms of std::string, both layouts of an operator's pack.
FORMS = ["atb_abi0", "atb_abi0_old", "atb_abi1", "atb_abi1_old"]


def libraries(dist, targets, form):
    """Environment in which a program finds the libatb.so of its form."""
    return {"LD_LIBRARY_PATH": f"{dist / 'simnpu' / 'lib64'}:{targets / form}"}


@pytest.fixture
def operators(client, dist, targets):
    """operators(form, arguments...): runs the program of that form with its own libatb.so."""
    def run(form, *arguments, options=(), env=None):
        return client(f"{form}/atb_ops", *arguments, options=options, env={**libraries(dist, targets, form), **(env or {})})

    return run
