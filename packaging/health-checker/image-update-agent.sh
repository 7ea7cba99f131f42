#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A plugin of health-checker(8), which asks it after each boot. A plugin that fails has the system rolled back, or
# rebooted, or its services stopped. So it fails for one thing only: that the agent is to run, and that its program or
# its unit does not work on this system, which another snapshot may cure. Nothing else is a fault of the system:
#
#   a registry, containerd or kubelet is away     the agent runs all the same, and says so
#   a setting is wrong, or the disk is full       the agent says so and ends; another snapshot has the same /etc or /var.
#                                                 A drop-in of the unit is a setting, and so is its environment
#   it starts, or waits for its turn              there is no hurry
#   it is not enabled, or masked                  somebody wants it so
#   systemd cannot be asked                       then nothing is known
#
# Usage: image-update-agent.sh check|stop
unit=image-update-agent.service
program=/usr/bin/image-update-agent
environment=/etc/sysconfig/image-update-agent

# property NAME: what systemd says of the unit; nothing where it cannot be asked
property() {
	systemctl show --property="$1" "$unit" 2>/dev/null | sed -n "s/^$1=//p"
}

well() {
	echo "image-update-agent: $1"
	exit 0
}

# changed: somebody has made drop-ins, or a unit, on this node.
changed() {
	case " $(property DropInPaths) $(property FragmentPath)" in
	*" /etc/"* | *" /run/"*) return 0 ;;
	esac
	return 1
}

# interval is what the service has from its environment besides the files that `config check` reads. No shell reads the
# file: to systemd it is none of its scripts.
interval() {
	sed -n 's/^[[:space:]]*UPDATE_POLLING_INTERVAL=//p' "$environment" 2>/dev/null | tail -n 1 | tr -d "\"'"
}

# It is restarted 10 s after a crash, so three looks, 6 s apart, see one that does not come up, and let one pass that
# does, or may.
check() {
	for look in 1 2 3; do
		case $(property UnitFileState) in
		enabled | enabled-runtime | static | indirect | linked | linked-runtime | generated) ;;
		*) well "is not to run" ;;
		esac
		sub=$(property SubState)
		case $(property ActiveState)/$sub in
		failed/* | activating/auto-restart*) ;;
		*) well "${sub:-not known}" ;;
		esac
		[ $look = 3 ] || sleep 6
	done
	status=$(property ExecMainStatus)
	case $(property Result)/$status in
	# ILL, TRAP, ABRT, BUS, FPE, SEGV, SYS: nobody sends these but the kernel, the C library, or Go. KILL and TERM come
	# from a person or from a full memory, and ABRT from the watchdog is another result.
	signal/4 | signal/5 | signal/6 | signal/7 | signal/8 | signal/11 | signal/31 | \
		core-dump/4 | core-dump/5 | core-dump/6 | core-dump/7 | core-dump/8 | core-dump/11 | core-dump/31)
		why="ends by signal $status"
		;;
	# 203 EXEC, 218 CAPABILITIES, 226 NAMESPACE, 227 NO_NEW_PRIVILEGES, 228 SECCOMP: systemd could not start it in the way
	# of its unit (systemd.exec(5)). The others come from a full disk (233, 238), a credential (243), a sysctl (217), ...
	exit-code/203 | exit-code/218 | exit-code/226 | exit-code/227 | exit-code/228)
		why="cannot be started: status $status"
		;;
	# A panic of Go, unless it is a setting.
	exit-code/2)
		UPDATE_POLLING_INTERVAL=$(interval) "$program" config check >/dev/null 2>&1 ||
			well "its settings are wrong, see image-update-agent config check"
		why="ends by a panic"
		;;
	*) well "does not come up ($status), for a reason that it tells: journalctl -u $unit" ;;
	esac
	case $why in
	"ends by signal 31" | cannot* | *panic) ! changed || well "$why, and its unit was changed on this node" ;;
	esac
	echo "image-update-agent: $why" >&2
	exit 1
}

case ${1:-} in
check) check ;;
stop) systemctl stop "$unit" ;;
*)
	echo "usage: $0 check|stop" >&2
	exit 2
	;;
esac
