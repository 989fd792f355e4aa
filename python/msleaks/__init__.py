# SPDX-License-Identifier: Apache-2.0
"""The older name of msmemscope: the same objects, one state."""
