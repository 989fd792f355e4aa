# SPDX-License-Identifier: Apache-2.0
"""msmemscope: memory analysis for AI accelerators, from inside the program that is looked at."""
