# SPDX-License-Identifier: Apache-2.0
# Source this to have msmemscope in the shell:   . /path/to/dist/set_env.sh
# Works in bash, zsh and dash (in dash, cd there first). Sourcing it twice changes nothing more.
#
# Adds to PATH and MANPATH, and to PYTHONPATH the package msmemscope where the tree has it, and the module mstx of the
# simulated NPU where python3 finds no other.
if [ -n "${BASH_SOURCE:-}" ]; then
	_msmemscope_home=$(cd "$(dirname "${BASH_SOURCE}")" && pwd)
elif [ -n "${ZSH_VERSION:-}" ]; then
	_msmemscope_home=$(cd "$(dirname "$(eval 'echo ${(%):-%x}')")" && pwd)
else
	_msmemscope_home=$PWD
fi

# Prints list $1 with directory $2 in front, or as it is when that is in it.
_msmemscope_prepend() {
	case ":$1:" in
	*":$2:"*) printf '%s\n' "$1" ;;
	*) printf '%s\n' "$2${1:+:$1}" ;;
	esac
}

# True when python3 is there and knows no mstx; that in the current directory does not count.
_msmemscope_lacks_mstx() {
	command -v python3 >/dev/null 2>&1 || return 1
	! python3 -c 'import sys, importlib.util as u
sys.path = [p for p in sys.path if p]
sys.exit(u.find_spec("mstx") is None)' >/dev/null 2>&1
}

if [ ! -x "$_msmemscope_home/bin/msmemscope" ]; then
	echo "set_env.sh: no bin/msmemscope in $_msmemscope_home" >&2
else
	PATH=$(_msmemscope_prepend "$PATH" "$_msmemscope_home/bin")
	export PATH
	MANPATH=$(_msmemscope_prepend "${MANPATH:-}" "$_msmemscope_home/share/man")
	# An empty part stands for the manual pages of the system.
	[ "$MANPATH" != "$_msmemscope_home/share/man" ] || MANPATH=$MANPATH:
	export MANPATH
	if [ -d "$_msmemscope_home/python" ]; then
		PYTHONPATH=$(_msmemscope_prepend "${PYTHONPATH:-}" "$_msmemscope_home/python")
		export PYTHONPATH
	fi
	if _msmemscope_lacks_mstx; then
		PYTHONPATH=$(_msmemscope_prepend "${PYTHONPATH:-}" "$_msmemscope_home/simnpu/python")
		export PYTHONPATH
	fi
fi
unset _msmemscope_home
unset -f _msmemscope_prepend _msmemscope_lacks_mstx
