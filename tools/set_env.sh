# SPDX-License-Identifier: Apache-2.0
# Source this to have msmemscope in the shell:   . /path/to/dist/set_env.sh
# Works in bash, zsh and dash (in dash, cd there first). Sourcing it twice changes nothing more.
#
# Adds to PATH and MANPATH, and to PYTHONPATH the package msmemscope where the tree has it, and the module mstx of the
# simulated NPU where python3 finds no other.
#
#   . set_env.sh --load-api-env      and programs started from this shell have the library preloaded, so that msmemscope.start()
#                                    of the Python module works in them without the command
#   . set_env.sh --unload-api-env    takes exactly that back
# (In dash, which hands no words to a sourced file: set -- --load-api-env first.)
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

# Prints list $1, split at colons and blanks, without what lies in directory $2.
_msmemscope_without() {
	_msmemscope_kept=
	_msmemscope_rest=$(printf '%s' "$1" | tr ' ' ':'):
	while [ -n "$_msmemscope_rest" ]; do
		_msmemscope_one=${_msmemscope_rest%%:*}
		_msmemscope_rest=${_msmemscope_rest#*:}
		case "$_msmemscope_one" in
		"$2" | "$2/"* | "") ;;
		*) _msmemscope_kept=$_msmemscope_kept${_msmemscope_kept:+:}$_msmemscope_one ;;
		esac
	done
	printf '%s\n' "$_msmemscope_kept"
}

# Sets or takes back what --load-api-env is about; 1 when it cannot.
_msmemscope_api() {
	if [ ! -r "$2/libascend_kernel_hook.so" ]; then
		echo "set_env.sh: no library to preload in $2" >&2
		return 1
	fi
	case "$2" in
	*[\ :]*)
		echo "set_env.sh: the loader cannot preload from a path with a blank or colon: $2" >&2
		return 1
		;;
	esac
	LD_PRELOAD=$(_msmemscope_without "${LD_PRELOAD:-}" "$2")
	LD_LIBRARY_PATH=$(_msmemscope_without "${LD_LIBRARY_PATH:-}" "$2")
	if [ "$1" = --load-api-env ]; then
		LD_PRELOAD=$2/libascend_kernel_hook.so${LD_PRELOAD:+:$LD_PRELOAD}
		LD_LIBRARY_PATH=$2${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
		MSMEMSCOPE_LIB_PATH=$2
		export LD_PRELOAD LD_LIBRARY_PATH MSMEMSCOPE_LIB_PATH
	else
		[ -n "$LD_PRELOAD" ] || unset LD_PRELOAD
		[ -n "$LD_LIBRARY_PATH" ] || unset LD_LIBRARY_PATH
		unset MSMEMSCOPE_LIB_PATH
	fi
}

# True when a shell runs this file instead of reading it into itself: whatever it sets is lost.
_msmemscope_is_run() {
	case "${ZSH_EVAL_CONTEXT:-$0}" in
	*:file*) return 1 ;;
	set_env.sh | */set_env.sh | toplevel) return 0 ;;
	esac
	return 1
}

# True when python3 is there and knows no mstx; that in the current directory does not count.
_msmemscope_lacks_mstx() {
	command -v python3 >/dev/null 2>&1 || return 1
	! python3 -c 'import sys, importlib.util as u
sys.path = [p for p in sys.path if p]
sys.exit(u.find_spec("mstx") is None)' >/dev/null 2>&1
}

_msmemscope_status=0
case "${1:-}" in
--load-api-env | --unload-api-env)
	if _msmemscope_is_run; then
		echo "set_env.sh: $1 must be sourced: . set_env.sh $1" >&2
		exit 1
	fi
	_msmemscope_api "$1" "$_msmemscope_home/lib64" || _msmemscope_status=1
	;;
esac
if [ ! -x "$_msmemscope_home/bin/msmemscope" ]; then
	echo "set_env.sh: no bin/msmemscope in $_msmemscope_home" >&2
else
	PATH=$(_msmemscope_prepend "$PATH" "$_msmemscope_home/bin")
	export PATH
	# Installed below a prefix, manual pages lie with those of others: PREFIX/lib/msmemscope/../../share/man.
	_msmemscope_man=$_msmemscope_home/share/man
	[ -d "$_msmemscope_man" ] || _msmemscope_man=${_msmemscope_home%/*/*}/share/man
	MANPATH=$(_msmemscope_prepend "${MANPATH:-}" "$_msmemscope_man")
	# An empty part stands for the manual pages of the system.
	[ "$MANPATH" != "$_msmemscope_man" ] || MANPATH=$MANPATH:
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
unset -f _msmemscope_prepend _msmemscope_without _msmemscope_api _msmemscope_is_run _msmemscope_lacks_mstx
unset _msmemscope_home _msmemscope_man _msmemscope_kept _msmemscope_rest _msmemscope_one
# The last word on success is also the status of the sourced file, with nothing of ours left in the shell.
if [ "$_msmemscope_status" != 0 ]; then
	unset _msmemscope_status
	return 1
fi
unset _msmemscope_status
