# SPDX-License-Identifier: Apache-2.0
# Source this to have msmemscope in the shell:   . /path/to/dist/set_env.sh
# Works in bash, zsh and dash (in dash, cd there first). Sourcing it twice changes nothing more.
if [ -n "${BASH_SOURCE:-}" ]; then
	_msmemscope_home=$(cd "$(dirname "${BASH_SOURCE}")" && pwd)
elif [ -n "${ZSH_VERSION:-}" ]; then
	_msmemscope_home=$(cd "$(dirname "$(eval 'echo ${(%):-%x}')")" && pwd)
else
	_msmemscope_home=$PWD
fi
if [ ! -x "$_msmemscope_home/bin/msmemscope" ]; then
	echo "set_env.sh: no bin/msmemscope in $_msmemscope_home" >&2
else
	case ":$PATH:" in
	*":$_msmemscope_home/bin:"*) ;;
	*) PATH=$_msmemscope_home/bin:$PATH ;;
	esac
	export PATH
	case ":${MANPATH:-}:" in
	*":$_msmemscope_home/share/man:"*) ;;
	*) MANPATH=$_msmemscope_home/share/man:${MANPATH:-} ;;
	esac
	export MANPATH
fi
unset _msmemscope_home
