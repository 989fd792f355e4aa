# SPDX-License-Identifier: Apache-2.0
# Points the shell to the simulated NPU, as the set_env.sh of real software does: `source simnpu/set_env.sh`.
if [ -n "${BASH_SOURCE:-}" ]; then
	simnpu_home=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
elif [ -n "${ZSH_VERSION:-}" ]; then
	simnpu_home=$(cd "$(dirname "${(%):-%x}")" && pwd)
else
	echo "simnpu: source set_env.sh from bash or zsh" >&2
	return 1
fi
export ASCEND_HOME_PATH=$simnpu_home
export ASCEND_TOOLKIT_HOME=$simnpu_home
export ASCEND_OPP_PATH=$simnpu_home/opp
export LD_LIBRARY_PATH=$simnpu_home/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export PYTHONPATH=$simnpu_home/python${PYTHONPATH:+:$PYTHONPATH}
unset simnpu_home
