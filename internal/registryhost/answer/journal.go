// SPDX-License-Identifier: Apache-2.0

package answer

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/kubic-project/image-update-agent/agent/localregistry/table"
)

// Result is the result of a request to the local registry.
type Result string

// The results.
const (
	Served  Result = "served"  // the tag or digest is in the table
	Unknown Result = "unknown" // it is not: containerd asks the next host
	Refused Result = "refused" // not a HEAD of a manifest
)

// JournalFile is the name of the journal of answers in the runtime directory. Processes append to it one after another;
// it is empty after a boot, and reset at MaxJournal bytes.
const (
	JournalFile = "answers"
	MaxJournal  = 64 << 10
)

// AgentName is the User-Agent of the agent's own requests. They start no container, so they are not recorded.
const AgentName = "image-update-agent"

// Note appends an answer to the journal in a directory: the time, the result, and the image that was served. It returns
// no error, because a failure must not prevent the answer.
func Note(dir string, r Result, e table.Entry, at time.Time) {
	path := filepath.Join(dir, JournalFile)
	flags := os.O_WRONLY | os.O_CREATE | os.O_APPEND | syscall.O_NOFOLLOW
	if info, err := os.Lstat(path); err == nil && info.Size() >= MaxJournal {
		flags |= os.O_TRUNC
	}
	file, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return
	}
	defer file.Close()
	line := strconv.FormatInt(at.Unix(), 10) + " " + string(r)
	if r == Served {
		line += " " + e.Image()
	}
	_ = file.Chmod(0o644) // with the umask of the service the daemon could not read it
	_, _ = file.WriteString(line + "\n")
}
