// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// forgetOwnPages unmaps the pages of the program's own file, most of its idle memory: the kernel maps 16 of them around
// each one that is used, and keeps them. They stay in the page cache: a thread that uses one gets it again in a
// microsecond. An error leaves the memory as it is. MADV_RANDOM does not make the kernel map fewer (263 faults and
// 16.8 MB with and without it).
func forgetOwnPages() {
	own, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return
	}
	for _, s := range unchanged(smaps, own) {
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, s.from, s.to-s.from, syscall.MADV_DONTNEED)
	}
}

// span is a range of addresses.
type span struct{ from, to uintptr }

// unchanged returns the mappings of a file, from proc_pid_smaps(5), of which the file has every byte, so that they can
// be read from it again: private ones that nothing can write to, and of which no page has yet differed from the file.
// The loader writes the addresses of a position independent program into some of its pages, and then protects these as
// read-only: such a mapping has anonymous pages, in memory or in the swap. (A dirty page that is not anonymous is the
// file's own, which the kernel has yet to write to the disk.)
func unchanged(smaps []byte, file string) []span {
	var out []span
	var at span
	var isOurs bool
	known := 0 // counts of changed pages that are zero
	for line := range bytes.Lines(smaps) {
		fields := strings.Fields(string(line))
		if len(fields) > 1 && !strings.HasSuffix(fields[0], ":") {
			at, isOurs = mapping(string(line), file)
			known = 0
			continue
		}
		if len(fields) < 2 || !isOurs || !slices.Contains(changes, fields[0]) {
			continue
		}
		if isOurs = fields[1] == "0"; !isOurs {
			continue
		}
		if known++; known == len(changes) {
			out = append(out, at)
		}
	}
	return out
}

// changes are the counts of pages that differ from the file.
var changes = []string{"Anonymous:", "Swap:"}

// mapping parses the first line of a mapping. is: it is private, read-only, and of the file.
func mapping(line, file string) (at span, is bool) {
	fields := strings.Fields(line)
	if len(fields) < 6 || fields[1] != "r--p" && fields[1] != "r-xp" ||
		!strings.HasSuffix(line, " "+file+"\n") {
		return span{}, false
	}
	from, to, _ := strings.Cut(fields[0], "-")
	first, err := strconv.ParseUint(from, 16, strconv.IntSize)
	if err != nil {
		return span{}, false
	}
	last, err := strconv.ParseUint(to, 16, strconv.IntSize)
	return span{uintptr(first), uintptr(last)}, err == nil && last > first
}
