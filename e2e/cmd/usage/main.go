// SPDX-License-Identifier: Apache-2.0

// Command usage runs a program and writes its usage to FILE: CPU time in nanoseconds, and peak memory in kB. The kernel
// attributes the starting process's memory to the program, so a test, which is large, cannot measure that itself.
//
//	usage FILE PROGRAM [ARGUMENT...]
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "usage:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return errors.New("want FILE PROGRAM [ARGUMENT...]")
	}
	cmd := exec.Command(args[1], args[2:]...)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return err
	}
	used := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return os.WriteFile(args[0], fmt.Appendf(nil, "%d %d\n", cpu.Nanoseconds(), used.Maxrss), 0o600)
}
