#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A plugin of health-checker(8), which runs it after each boot. If a plugin fails, health-checker rolls the system back,
# reboots it, or stops its services. So this plugin fails in one case only: the agent is enabled, and its program or its
# unit does not work on this system, which another snapshot may cure. These are no faults of the system:
#
#   a registry, containerd or kubelet is away     the agent runs and reports it
#   a setting is wrong, or the disk is full       the agent reports it and exits; another snapshot has the same /etc and
#                                                 /var. Drop-ins and the environment of the unit are settings
#   the agent is starting, or waits to start      it needs more time
#   it is not enabled, or masked                  an admin decided so
#   systemd does not answer                       the state is not known
#
# Usage: image-update-agent.sh check|stop
unit=image-update-agent.service
program=/usr/bin/image-update-agent
environment=/etc/sysconfig/image-update-agent

# property NAME: prints a property of the unit; nothing if systemd does not answer
property() {
	systemctl show --property="$1" "$unit" 2>/dev/null | sed -n "s/^$1=//p"
}

well() {
	echo "image-update-agent: $1"
	exit 0
}

# changed: succeeds if this node has drop-ins or a unit of its own.
changed() {
	case " $(property DropInPaths) $(property FragmentPath)" in
	*" /etc/"* | *" /run/"*) return 0 ;;
	esac
	return 1
}

# interval: prints the setting that the service takes from its environment, which `config check` does not read. The file
# is no shell script, so no shell reads it.
interval() {
	sed -n 's/^[[:space:]]*UPDATE_POLLING_INTERVAL=//p' "$environment" 2>/dev/null | tail -n 1 | tr -d "\"'"
}

# systemd restarts the agent 10 s after a crash, so three checks, 6 s apart, find an agent that does not come up.
check() {
	for look in 1 2 3; do
		case $(property UnitFileState) in
		enabled | enabled-runtime | static | indirect | linked | linked-runtime | generated) ;;
		*) well "is not enabled" ;;
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
	# ILL, TRAP, ABRT, BUS, FPE, SEGV, SYS: only the kernel, the C library or Go sends these. KILL and TERM come from a
	# person or the OOM killer, and ABRT from the watchdog has another result.
	signal/4 | signal/5 | signal/6 | signal/7 | signal/8 | signal/11 | signal/31 | \
		core-dump/4 | core-dump/5 | core-dump/6 | core-dump/7 | core-dump/8 | core-dump/11 | core-dump/31)
		why="ends by signal $status"
		;;
	# 203 EXEC, 218 CAPABILITIES, 226 NAMESPACE, 227 NO_NEW_PRIVILEGES, 228 SECCOMP: systemd could not set up the unit's
	# sandbox (systemd.exec(5)). The others come from a full disk (233, 238), a credential (243), a sysctl (217), ...
	exit-code/203 | exit-code/218 | exit-code/226 | exit-code/227 | exit-code/228)
		why="cannot be started: status $status"
		;;
	# A panic of Go, unless a setting is wrong.
	exit-code/2)
		UPDATE_POLLING_INTERVAL=$(interval) "$program" config check >/dev/null 2>&1 ||
			well "its settings are wrong, see image-update-agent config check"
		why="ends by a panic"
		;;
	*) well "does not start ($status), see journalctl -u $unit" ;;
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
